package lab_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma/verbs"
	"pmnbd/test/lab"
)

// TestDiskByMethod runs the whole product with the methods that need no CPU of the target, on a
// device that has them, until the power is cut right after a barrier. It uses a filesystem, and
// beside it blocks that were written, zeroed and written again. Where a method is not sound,
// the product must say why.
func TestDiskByMethod(t *testing.T) {
	const (
		rxe, siw = "rdma://10.0.0.1:7204", "rdma://10.0.1.1:7205"
		// parts makes /run/before, which is written first, and /run/after, which is written
		// into the middle of the zeroes.
		parts = `
			head -c 8M <(seq 2000000) >/run/before
			head -c 1M <(seq 5000000 6000000) >/run/after
			`
	)
	type refusal struct{ method, region, why string }
	for _, tt := range []struct {
		method   string
		guest    lab.Guest
		refusals []refusal
	}{
		{"flush", lab.Guest{}, []refusal{
			{"flush", rxe + "/memory", "only class pmem or protected is durable"},
			{"flush", siw + "/disk", "lacks native FLUSH"},
			{"apm", rxe + "/disk", "CPU caches are not persistent"},
		}},
		{"apm", lab.Guest{EADR: true}, []refusal{
			{"apm", rxe + "/memory", "only class pmem or protected is durable"},
		}},
	} {
		t.Run(tt.method, func(t *testing.T) {
			needVerbs(t)
			if tt.method == "flush" && !verbs.CanFlush {
				t.Skip("this build cannot post FLUSH: build it with rdma-core 45 and the tag verbs_flush")
			}
			g := tt.guest
			g.Setup, g.NVDIMM = []string{"rdma-core", "rxe", "siw", "devdax", "nbd"}, lab.Memory(t, 128<<20)
			serveRegions := func(t *testing.T) {
				t.Helper()
				serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", rxe, "--listen", siw,
					"--region", "disk="+dax, "--region", "memory=memfd:,size=1M", "--allow-volatile")
			}
			t.Run("until a power cut", func(t *testing.T) {
				lab.Cut(t, g, func(t *testing.T) {
					sh(t, "pmnbd-target region create disk "+dax)
					serveRegions(t)
					for _, no := range tt.refusals {
						out, err := exec.Command("pmnbd", "serve", "--method", no.method, "--allow-volatile",
							"--target", no.region, "--listen", "unix:"+socket).CombinedOutput()
						require.Error(t, err, "%+v", no)
						require.Contains(t, string(out), no.why)
					}
					initiate(t, rxe, "--method", tt.method)
					sh(t, attach+`
						mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0 80M
						`+mount+`
						fio --name=fsync --directory=/mnt/disk --rw=randwrite --bsrange=512-64k --size=8m --fsync=8 --verify=crc32c --verify_fatal=1 --output-format=terse
						`+umount+"fsck.ext4 -fn /dev/nbd0\n"+mount+extend+parts+`
						dd if=/run/before of=/dev/nbd0 bs=1M seek=96 oflag=direct conv=fdatasync status=none
						blkdiscard -f -z -o 97M -l 4M /dev/nbd0
						dd if=/run/after of=/dev/nbd0 bs=1M seek=98 oflag=direct conv=fdatasync status=none
						pmnbd status --json | jq -e '.[].exports[] | .device.method == "`+tt.method+`" and .commands.WRITE_ZEROES.requests > 0'`)
				})
			})
			t.Run("after it", func(t *testing.T) {
				lab.Run(t, g, func(t *testing.T) {
					serveRegions(t)
					initiator := initiate(t, rxe, "--method", tt.method, "--accept-loss")
					sh(t, attach+parts+`
						{ head -c 1M /run/before; head -c 1M /dev/zero; cat /run/after; head -c 2M /dev/zero; tail -c 3M /run/before; } >/run/model
						dd if=/dev/nbd0 bs=1M skip=96 count=8 iflag=direct status=none | cmp - /run/model
						`+mount+extended+umount+`
						fsck.ext4 -fn /dev/nbd0
						nbd-client -d /dev/nbd0`)
					initiator.stop()
				})
			})
		})
	}
}
