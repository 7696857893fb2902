package flush

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// emulator returns the path of the user-mode emulator of a CPU, by QEMU's name for it.
func emulator(t *testing.T, cpu string) string {
	name := "qemu-" + cpu + "-static"
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no %s: install qemu-user-static (scripts/install-deps test)", name)
	}
	return name
}

// buildTests builds the tests of this package for goarch, without cgo: so it links
// nothing of the emulator's host, and all addresses are those in the file.
func buildTests(t *testing.T, goarch string) string {
	bin := filepath.Join(t.TempDir(), "flush.test")
	build := exec.Command("go", "test", "-c", "-o", bin, ".")
	build.Env = append(os.Environ(), "GOARCH="+goarch, "GOOS=linux", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

// withoutCVAP replaces the program's only DC CVAP by DC CVAC. User-mode QEMU up to at
// least 7.2 reports FEAT_DPB but does not know the instruction. The test still runs
// everything around it.
func withoutCVAP(t *testing.T, bin string) {
	// SYS #3, C7, C12, #1, X0. With C10 it is CVAC (Arm ARM DDI 0487, C5.3).
	// Little-endian.
	cvap, cvac := []byte{0x20, 0x7c, 0x0b, 0xd5}, []byte{0x20, 0x7a, 0x0b, 0xd5}
	program, err := os.ReadFile(bin)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(program, cvap))
	require.NoError(t, os.WriteFile(bin, bytes.Replace(program, cvap, cvac, 1), 0o700))
	t.Log("this emulator does not know DC CVAP: the test ran DC CVAC in its place")
}
