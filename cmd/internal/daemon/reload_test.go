package daemon

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOnReload(t *testing.T) {
	called := make(chan struct{})
	stop := OnReload(func() { called <- struct{}{} })
	for range 3 {
		require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
		select {
		case <-called:
		case <-time.After(10 * time.Second):
			t.Fatal("SIGHUP went unnoticed")
		}
	}
	stop()
}
