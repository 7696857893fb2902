package e2e

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAbort ends both daemons as systemd's watchdog does. They end by the signal, with their stacks in the log: exit
// code 2 would say that the command line is wrong, and that no restart helps.
func TestAbort(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "r="+h.region(t, "r", "16M"))
	pmnbd, _, _ := h.initiator(t, uri, "r")
	for _, p := range []*process{pmnbd, target} {
		p.signal(t, syscall.SIGABRT)
		require.Equal(t, -1, p.wait(t), "a signal ends it")
		require.Equal(t, syscall.SIGABRT, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
		require.Contains(t, p.stderr.String(), "SIGABRT: abort")
		require.Contains(t, p.stderr.String(), "\ngoroutine 1 ")
	}
}
