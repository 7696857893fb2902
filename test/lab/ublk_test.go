package lab_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// TestUblk puts both filesystems on a block device that pmnbd serves by itself.
func TestUblk(t *testing.T) {
	g := lab.Guest{Setup: []string{"devdax", "ublk"}, NVDIMM: lab.Memory(t, 640<<20)}
	lab.Run(t, g, func(t *testing.T) {
		sh(t, "pmnbd-target region create --force disk "+dax)
		device(t, "iwarp://127.0.0.1:7204", "--ublk", ublkDisk)
		for _, fs := range filesystems {
			t.Run(fs.name, func(t *testing.T) {
				sh(t, "grep -H . /sys/block/ublkb0/queue/{write_cache,fua,logical_block_size,physical_block_size,optimal_io_size,max_sectors_kb,discard_max_bytes,write_zeroes_max_bytes}")
				sh(t, fs.mkfs+" "+ublkDisk+"\n"+ublkMount+extend+`
					fio --name=fsync --directory=/mnt/disk --rw=randwrite --bsrange=512-64k --size=8m --fsync=8 --verify=crc32c --verify_fatal=1 --output-format=terse
					`+umount+fs.fsck+" "+ublkDisk+"\n"+ublkMount+extended+umount)
			})
		}
		sh(t, "pmnbd status; pmnbd detach "+ublkDisk+"; ! test -e "+ublkDisk+"; ! dmesg | grep -E 'ublkb0.*error|WARNING'")
	})
}

// TestUblkRestart ends a pmnbd under load, cleanly or by a kill, and starts it again. The block device
// stays, no call of the load fails, and the load reads back what it wrote.
func TestUblkRestart(t *testing.T) {
	g := lab.Guest{Setup: []string{"devdax", "ublk"}, NVDIMM: lab.Memory(t, 128<<20)}
	lab.Run(t, g, func(t *testing.T) {
		sh(t, "pmnbd-target region create disk "+dax)
		target := serve(t, "pmnbd-target", "--listen", "iwarp://127.0.0.1:7204", "--region", "disk="+dax)
		initiator := initiate(t, target.ready[0], "--ublk", ublkDisk)
		sh(t, "stat -c %t:%T "+ublkDisk+" >/run/device; cat /sys/block/ublkb0/diskseq >>/run/device")
		whole := t // an initiator outlives the subtest that starts it
		for _, tt := range []struct {
			name   string
			killed bool // acknowledged, unflushed writes are in the window alone
		}{
			{"killed", true},
			{"stopped", false},
			{"killed again", true},
		} {
			t.Run(tt.name, func(t *testing.T) {
				load := exec.Command("fio", "--name=load", "--filename="+ublkDisk, "--direct=1", "--rw=randwrite", "--bs=4k",
					"--iodepth=8", "--ioengine=libaio", "--size=4m", "--io_size=8m", "--fsync=16", "--verify=crc32c", "--verify_fatal=1")
				load.Stdout, load.Stderr = os.Stdout, os.Stdout
				sh(t, "awk '{ print $5 }' /sys/block/ublkb0/stat >/run/before")
				require.NoError(t, load.Start())
				ended := make(chan error, 1)
				go func() { ended <- load.Wait() }()
				sh(t, "until [ $(awk '{ print $5 }' /sys/block/ublkb0/stat) -gt $(( $(cat /run/before) + 200 )) ]; do sleep 0.05; done")
				if tt.killed {
					require.NoError(t, os.Truncate("/run/pmnbd.log", 0))
					initiator.kill()
				} else {
					initiator.stop()
				}
				select {
				case err := <-ended:
					require.FailNow(t, "the load ended before the initiator", "%v", err)
				default:
				}
				initiator = initiate(whole, target.ready[0], "--ublk", ublkDisk)
				if tt.killed {
					sh(t, "grep -q 'adopting the window' /run/pmnbd.log")
				}
				require.NoError(t, <-ended)
				sh(t, "{ stat -c %t:%T "+ublkDisk+"; cat /sys/block/ublkb0/diskseq; } | cmp - /run/device")
			})
		}

		// Another lineage must not go on: what was acknowledged to the kernel may be gone.
		initiator.kill()
		err := try("rm -f /dev/shm/pmnbd*/*; timeout 60 pmnbd serve --target " + target.ready[0] + "/disk --listen unix:" + socket +
			" --id " + initiatorID + " --accept-loss --ublk " + ublkDisk + " >/run/refused 2>&1 || code=$?; cat /run/refused; test $code = 3")
		require.NoError(t, err)
		sh(t, "grep 'its server was another one' /run/refused")
		require.Error(t, try("pmnbd detach "+ublkDisk), "nobody serves it")
		sh(t, "pmnbd detach --force "+ublkDisk+"; ! test -e "+ublkDisk)
		sh(t, "! dmesg | grep -E 'ublkb0.*error|WARNING'")
		initiate(t, target.ready[0], "--ublk", ublkDisk)
		sh(t, "dd if="+ublkDisk+" of=/dev/null bs=64k count=16 iflag=direct status=none; pmnbd detach "+ublkDisk)
	})
}

const (
	ublkDisk  = "/dev/ublkb0"
	ublkMount = "mkdir -p /mnt/disk; mount /dev/ublkb0 /mnt/disk\n"
)
