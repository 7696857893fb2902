package lab_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// TestUblkStopsUnderLoad stops a pmnbd and starts the next one again and again under a load. A request
// that arrives while a queue ends must not be lost in the kernel: the driver would wait for it for ever,
// and no server could continue the block device.
func TestUblkStopsUnderLoad(t *testing.T) {
	g := lab.Guest{Setup: []string{"devdax", "ublk"}, NVDIMM: lab.Memory(t, 128<<20)}
	lab.Run(t, g, func(t *testing.T) {
		sh(t, "pmnbd-target region create disk "+dax)
		target := serve(t, "pmnbd-target", "--listen", "iwarp://127.0.0.1:7204", "--region", "disk="+dax)
		initiator := initiate(t, target.ready[0], "--ublk", ublkDisk)
		load := exec.Command("fio", "--name=load", "--filename="+ublkDisk, "--direct=1", "--rw=randwrite", "--bs=4k",
			"--iodepth=8", "--ioengine=libaio", "--size=8m", "--time_based", "--runtime=10m", "--fsync=16", "--output=/run/fio")
		require.NoError(t, load.Start())
		writes := "awk '{ print $5 }' /sys/block/ublkb0/stat"
		for round := range 25 {
			sh(t, writes+" >/run/before; until [ $("+writes+") -gt $(( $(cat /run/before) + 30 )) ]; do sleep 0.01; done")
			initiator.stop()
			begun := make(chan *server, 1)
			go func() { begun <- initiate(t, target.ready[0], "--ublk", ublkDisk) }()
			select {
			case initiator = <-begun:
			case <-time.After(time.Minute):
				sh(t, "echo w >/proc/sysrq-trigger; dmesg | tail -n 60")
				require.FailNow(t, "nobody can continue the block device", "round %d", round)
			}
		}
		require.NoError(t, load.Process.Kill())
		_ = load.Wait()
		initiator.stop()
	})
}
