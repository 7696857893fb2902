package lab_test

import (
	"testing"

	"pmnbd/test/lab"
)

// TestPartsByVerbs has each device register a region of two parts, which are mapped from different
// memory, as one: a file on tmpfs, then a device-dax NVDIMM. Data lie across the border, and are there
// after a restart of both ends.
func TestPartsByVerbs(t *testing.T) {
	needVerbs(t)
	nvdimm := lab.Memory(t, 128<<20)
	for _, tt := range []struct{ device, listen string }{
		{"rxe", "rdma://10.0.0.1:7204"},
		{"siw", "rdma://10.0.1.1:7204"},
	} {
		t.Run(tt.device, func(t *testing.T) {
			g := lab.Guest{Setup: []string{tt.device, "devdax", "nbd"}, NVDIMM: nvdimm}
			lab.Run(t, g, func(t *testing.T) {
				sh(t, "pmnbd-target region create --force disk --part /dev/shm/first --part "+dax+" --size-per-part 48M")
				both := func() (target, initiator *server) {
					target = serve(t, "pmnbd-target", "--insecure-no-auth", "--allow-volatile", "--listen", tt.listen, "--region", "disk=/dev/shm/first,part="+dax)
					return target, initiate(t, target.ready[0], "--allow-volatile")
				}
				target, initiator := both()
				sh(t, attach+`[ $(blockdev --getsize64 /dev/nbd0) = $((96<<20)) ]
					mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0 40M
					`+mount+extend+umount+`
					head -c 8M <(seq 2000000) >/run/across
					dd if=/run/across of=/dev/nbd0 bs=1M seek=44 oflag=direct conv=fdatasync status=none
					fio --name=both --filename=/dev/nbd0 --offset=52m --size=40m --rw=randwrite --bsrange=512-64k --fsync=8 --verify=crc32c --verify_fatal=1 --output-format=terse
					nbd-client -d /dev/nbd0`)
				initiator.stop()
				target.stop()
				target, initiator = both()
				sh(t, attach+"fsck.ext4 -fn /dev/nbd0\n"+mount+extended+umount+`
					dd if=/dev/nbd0 bs=1M skip=44 count=8 iflag=direct status=none | cmp - /run/across
					nbd-client -d /dev/nbd0`)
				initiator.stop()
				target.stop()
			})
		})
	}
}
