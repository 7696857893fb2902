package lab_test

import (
	"testing"

	"pmnbd/rdma"
	"pmnbd/test/lab"
)

const daxFile = "/mnt/pmem/disk"

// TestFilesRefused serves files that a device cannot serve. A device that must pin memory
// refuses a file with DAX, and so does one that misplaces data in memory that is not pinned.
// Every device refuses the page cache. The refusal names a remedy.
func TestFilesRefused(t *testing.T) {
	needVerbs(t)
	for _, tt := range []struct{ name, kernel, why string }{
		{"no on-demand paging", "", "it has no on-demand paging"},
		{"on-demand paging that misplaces", "backports", "it misplaces bytes in memory that is not pinned"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := lab.Guest{Kernel: tt.kernel, Setup: []string{"rxe", "fsdax"}, NVDIMM: lab.Memory(t, 64<<20)}
			lab.Run(t, g, func(t *testing.T) {
				const at = "rdma://10.0.0.1:7204"
				for _, file := range []struct{ mount, class, why string }{
					{"mount -o dax", "pmem", tt.why},
					{"mount", "file", "what the device writes does not make pages dirty"},
				} {
					sh(t, "umount /mnt/pmem; "+file.mount+" /dev/pmem0 /mnt/pmem; pmnbd-target region create --force disk "+daxFile+" --size 8M")
					target := serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", at, "--region", "disk="+daxFile)
					sh(t, `if pmnbd serve --target `+at+`/disk --listen unix:`+socket+` 2>/run/refused; then false; fi
						cat /run/refused
						grep -qF '`+file.why+`' /run/refused
						grep -qF 'use /dev/daxX.Y' /run/refused
						pmnbd-target region inspect `+daxFile+` | grep '^class  *`+file.class+`$'
						`)
					target.stop()
				}
			})
		})
	}
}

// TestFileWithDAX serves a file with DAX on a device that faults pages in, through syncs, which
// take the pages from the device, and through a power cut.
func TestFileWithDAX(t *testing.T) {
	needVerbs(t)
	g := lab.Guest{Kernel: "backports", Setup: []string{"rxe-repaired", "fsdax", "nbd"}, NVDIMM: lab.Memory(t, 256<<20)}
	const (
		at   = "rdma://10.0.0.1:7204"
		load = `
			fio --name=raw --filename=/dev/nbd0 --direct=1 --rw=randwrite --bsrange=512-64k --size=8m --fsync=8 --verify=crc32c --verify_fatal=1 --output-format=terse
			`
	)
	served := func(t *testing.T, method string, more ...string) (initiator *server) {
		serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", at, "--region", "disk="+daxFile, "--region", "gone="+daxFile+".gone")
		initiator = initiate(t, at, more...)
		sh(t, "pmnbd status disk | tee /dev/stderr | grep -qw "+method+"\n"+attach)
		return initiator
	}

	t.Run("until a power cut", func(t *testing.T) {
		lab.Cut(t, g, func(t *testing.T) {
			sh(t, "pmnbd-target region create disk "+daxFile+" --size 96M; pmnbd-target region create gone "+daxFile+".gone --size 8M")
			served(t, "gpspm")
			sh(t, `while sync -f /mnt/pmem; do sleep 0.1; done & trap "kill $!" EXIT`+load+
				"mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0\n"+mount+extend)
		})
	})
	t.Run("after it, eADR", func(t *testing.T) {
		g := g
		g.EADR = true
		lab.Run(t, g, func(t *testing.T) {
			served(t, "apm", "--accept-loss")
			sh(t, mount+extended+umount+"fsck.ext4 -fn /dev/nbd0\n"+load)

			// The file of another region becomes shorter, and another file gets its blocks.
			// Writes to them must fail, and only that device with them.
			serve(t, "pmnbd", "--target", at+"/gone", "--listen", "unix:/run/gone.sock")
			sh(t, `nbd-client -unix /run/gone.sock -N gone /dev/nbd1
				dd if=/dev/nbd0 of=/dev/nbd1 bs=1M count=8 conv=fsync status=none
				truncate -s 4M `+daxFile+`.gone
				fails() { if "$@"; then false; fi; }
				fails dd if=/dev/zero of=/mnt/pmem/other bs=1M status=none
				fails dd if=/dev/urandom of=/dev/nbd1 bs=4k seek=1536 count=1 oflag=direct conv=fsync status=none
				fails dd if=/dev/nbd1 of=/dev/null bs=4k skip=1536 count=1 iflag=direct status=none
				[ "$(tr -d '\0' </mnt/pmem/other | wc -c)" = 0 ]
				pmnbd status gone | tee /dev/stderr | grep '`+rdma.ErrRemoteAccess.Error()+`'
				`+load)
		})
	})
}
