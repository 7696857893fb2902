//go:build !arm64

package flush

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Runs the tests of this package for arm64 in an emulator, on a CPU with DC CVAP and on
// one without it. The latter must not fall back on an instruction that does not make data
// persistent.
func TestOnARM64(t *testing.T) {
	qemu := emulator(t, "aarch64")
	bin := buildTests(t, "arm64")
	run := func(cpu string) (string, error) {
		// Tests that start an emulator themselves cannot run in an emulator.
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
