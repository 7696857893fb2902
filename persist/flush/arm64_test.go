//go:build !arm64

package flush

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of this package for arm64, in an emulator whose CPU has DC CVAP, and
// in one whose has not: it must not fall back on what is not persistence.
func TestOnARM64(t *testing.T) {
	qemu := emulator(t, "aarch64")
	bin := buildTests(t, "arm64")
	run := func(cpu string) (string, error) {
		// What starts an emulator itself is not for this one.
		out, err := exec.Command(qemu, "-cpu", cpu, bin, "-test.v", "-test.skip=^TestInstructions$").CombinedOutput()
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
