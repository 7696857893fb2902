package e2e

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnitsTryAgain checks what docs/runbook.md says of exit codes under systemd: after a failure a
// service starts again every 2 s without an end, and a mistake on the command line is not tried again.
// systemd gives a unit up that starts five times in 10 s.
func TestUnitsTryAgain(t *testing.T) {
	t.Parallel()
	for unit, never := range map[string]string{"pmnbd@.service": "2 3", "pmnbd-target.service": "2"} {
		text, err := os.ReadFile("../../dist/systemd/" + unit)
		require.NoError(t, err)
		got := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^(Restart\w*)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
			got[m[1]] = m[2]
		}
		require.Equal(t, map[string]string{"Restart": "on-failure", "RestartSec": "2s", "RestartPreventExitStatus": never}, got, unit)
	}
}
