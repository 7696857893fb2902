package lab_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// TestUblkBeside kills a pmnbd. The kernel keeps a write for the next server of its block device. Until that
// begins, pmnbd makes no second block device of the export. The kept write would go over newer ones that the second
// one had flushed.
func TestUblkBeside(t *testing.T) {
	g := lab.Guest{Setup: []string{"devdax", "ublk"}, NVDIMM: lab.Memory(t, 128<<20)}
	lab.Run(t, g, func(t *testing.T) {
		sh(t, "pmnbd-target region create disk "+dax)
		target := serve(t, "pmnbd-target", "--listen", "iwarp://127.0.0.1:7204", "--region", "disk="+dax)
		initiate(t, target.ready[0], "--ublk", ublkDisk).kill()

		sh(t, "printf %4096s | tr ' ' 1 >/run/older; printf %4096s | tr ' ' 2 >/run/newer")
		older := exec.Command("dd", "if=/run/older", "of="+ublkDisk, "bs=4k", "oflag=direct", "status=none")
		older.Stderr = os.Stdout
		require.NoError(t, older.Start())
		sh(t, fmt.Sprintf("until grep -q '^State:.D' /proc/%d/status; do sleep 0.1; done", older.Process.Pid))

		refused := func(command string, code int) {
			t.Helper()
			sh(t, fmt.Sprintf("code=0; timeout 60 %s >/run/refused 2>&1 || code=$?; cat /run/refused; test $code = %d\n"+
				"grep 'export \"disk\" is %s already' /run/refused; ! test -e %s", command, code, ublkDisk, otherDisk))
		}
		refused("pmnbd serve --target "+target.ready[0]+"/disk --id "+initiatorID+" --ublk "+otherDisk, 3)
		initiate(t, target.ready[0])
		refused("pmnbd attach --ublk disk", 1)
		refused("pmnbd attach --ublk disk "+otherDisk, 1)

		sh(t, byUblk.attach)
		require.NoError(t, older.Wait(), "the write that was kept")
		sh(t, "cmp -n 4096 /run/older "+ublkDisk+"; dd if=/run/newer of="+ublkDisk+" bs=4k oflag=direct conv=fsync status=none\n"+byUblk.detach)
		sh(t, "pmnbd attach --ublk disk "+otherDisk+"; cmp -n 4096 /run/newer "+otherDisk+"; pmnbd detach "+otherDisk)
	})
}
