//go:build !arm64

package flush

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of this package for arm64, in an emulator whose CPU has DC CVAP, and
// in one whose has not: it must not fall back on what is not persistence.
func TestOnARM64(t *testing.T) {
	const emulator = "qemu-aarch64-static"
	if _, err := exec.LookPath(emulator); err != nil {
		t.Skipf("no %s: install qemu-user-static (scripts/install-deps test)", emulator)
	}
	bin := filepath.Join(t.TempDir(), "flush.test")
	build := exec.Command("go", "test", "-c", "-o", bin, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "GOOS=linux", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := func(cpu string) (string, error) {
		out, err := exec.Command(emulator, "-cpu", cpu, bin, "-test.v").CombinedOutput()
		return string(out), err
	}
	for _, c := range []struct{ cpu, instruction string }{{"cortex-a57", None}, {"max", "dc cvap"}} {
		t.Run(c.cpu, func(t *testing.T) {
			out, err := run(c.cpu)
			if c.instruction != None && strings.Contains(out, "SIGILL") {
				withoutCVAP(t, bin)
				out, err = run(c.cpu)
			}
			require.NoError(t, err, out)
			require.Contains(t, out, "this CPU and build: "+c.instruction+"\n")
			require.Contains(t, out, "--- PASS: TestMethodsLeaveDataAlone/"+strings.ReplaceAll(c.instruction, " ", "_"))
		})
	}
}

// withoutCVAP puts DC CVAC in the place of the program's DC CVAP, of which there is one.
// User-mode QEMU up to 7.2 at the least reports FEAT_DPB and then does not know its
// instruction; everything around it is run even so.
func withoutCVAP(t *testing.T, bin string) {
	// SYS #3, C7, C12, #1, X0 and, with C10, CVAC (Arm ARM DDI 0487, C5.3),
	// little-endian.
	cvap, cvac := []byte{0x20, 0x7c, 0x0b, 0xd5}, []byte{0x20, 0x7a, 0x0b, 0xd5}
	program, err := os.ReadFile(bin)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(program, cvap))
	require.NoError(t, os.WriteFile(bin, bytes.Replace(program, cvap, cvac, 1), 0o700))
	t.Log("this emulator does not know DC CVAP: DC CVAC was run in its place")
}
