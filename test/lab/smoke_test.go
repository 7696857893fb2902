package lab_test

import (
	"testing"

	"pmnbd/test/lab"
)

// TestSmokeDisk writes to a filesystem on the kernel's block device, on persistent memory. It
// cuts the power right after an fsync and looks for what must be left.
func TestSmokeDisk(t *testing.T) {
	g := lab.Guest{Setup: []string{"devdax", "nbd"}, NVDIMM: lab.Memory(t, 128<<20)}
	const listen = "iwarp://127.0.0.1:7204"

	t.Run("files until a power cut", func(t *testing.T) {
		lab.Cut(t, g, func(t *testing.T) {
			sh(t, "pmnbd-target region create disk "+dax)
			_, initiator := device(t, listen)
			sh(t, attach+`
				mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0
				`+mount+`
				cp -r /usr/share/perl5 /mnt/disk/files
				head -c 16M /dev/urandom >/mnt/disk/noise
				(cd /mnt/disk; find . -type f -exec sha256sum {} + >/run/sums)
				`+umount+`
				fsck.ext4 -fn /dev/nbd0
				nbd-client -d /dev/nbd0`)
			initiator.stop()
			initiate(t, "iwarp://127.0.0.1:7204")
			sh(t, attach+mount+"cd /mnt/disk; sha256sum --quiet -c /run/sums; cd /\n"+extend)
		})
	})
	t.Run("the file after it", func(t *testing.T) {
		lab.Run(t, g, func(t *testing.T) {
			_, initiator := device(t, listen, "--accept-loss")
			sh(t, attach+mount+extended+umount+`
				fsck.ext4 -fn /dev/nbd0
				nbd-client -d /dev/nbd0`)
			initiator.stop()
		})
	})
}
