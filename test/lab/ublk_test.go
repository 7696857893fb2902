package lab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// TestUblkRestart ends a pmnbd under load and starts it again. The block device stays, with what the
// kernel was told of it.
func TestUblkRestart(t *testing.T) {
	g := lab.Guest{Setup: []string{"devdax", "ublk"}, NVDIMM: lab.Memory(t, 128<<20)}
	lab.Run(t, g, func(t *testing.T) {
		sh(t, "pmnbd-target region create disk "+dax)
		target := serve(t, "pmnbd-target", "--listen", "iwarp://127.0.0.1:7204", "--region", "disk="+dax)
		initiator := initiate(t, target.ready[0], "--ublk", ublkDisk)
		sh(t, "grep -H . /sys/block/ublkb0/queue/{write_cache,fua,logical_block_size,physical_block_size,optimal_io_size,max_sectors_kb,discard_max_bytes,write_zeroes_max_bytes}")
		sh(t, "stat -c %t:%T "+ublkDisk+" >/run/device; cat /sys/block/ublkb0/diskseq >>/run/device")
		for _, tt := range []struct {
			name   string
			killed bool // acknowledged, unflushed writes are in the window alone
		}{
			{"killed", true},
			{"stopped", false},
			{"killed again", true},
		} {
			whole := t // an initiator outlives the subtest that starts it
			t.Run(tt.name, func(t *testing.T) {
				initiator = restart(t, ublkDisk, initiator, tt.killed, func() *server {
					return initiate(whole, target.ready[0], "--ublk", ublkDisk)
				})
				sh(t, "{ stat -c %t:%T "+ublkDisk+"; cat /sys/block/ublkb0/diskseq; } | cmp - /run/device")
			})
		}

		// Another lineage must not go on: what was acknowledged to the kernel may be gone.
		initiator.kill()
		err := try("rm -f /dev/shm/pmnbd*/*; timeout 60 pmnbd serve --target " + target.ready[0] + "/disk --listen unix:" + socket +
			" --id " + initiatorID + " --accept-loss --ublk " + ublkDisk + " >/run/refused 2>&1 || code=$?; cat /run/refused; test $code = 3")
		require.NoError(t, err)
		sh(t, "grep 'its server was another one' /run/refused")
		require.Error(t, try(byUblk.detach), "nobody serves it")
		sh(t, byUblk.detach+" --force; ! test -e "+ublkDisk+"\n"+byUblk.noErrors())
		initiate(t, target.ready[0], "--ublk", ublkDisk)
		sh(t, "dd if="+ublkDisk+" of=/dev/null bs=64k count=16 iflag=direct status=none; "+byUblk.detach+"; ! test -e "+ublkDisk)
	})
}
