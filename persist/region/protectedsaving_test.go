package region

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// mayLockNothing calls f on a thread that may lock no memory.
func mayLockNothing(t *testing.T, f func()) {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 0, Max: was.Max}))
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&head, &caps[0])
		caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err == nil {
			err = unix.Capset(&head, &caps[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	err := <-done
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was))
	require.NoError(t, err)
}

// TestSaveWithoutWhatServingNeeds: a save before the host goes down does not fail for what only a
// region that is served needs: locked memory, and a disk that was measured.
func TestSaveWithoutWhatServingNeeds(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	data := bytes.Clone(r.Data())
	require.NoError(t, r.Close())
	mayLockNothing(t, func() {
		_, err := open(p.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(bootA))
		if err == nil || !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EPERM) {
			t.Errorf("opened to be served: %v", err)
		}
		r, err = open(p.memory, OpenOptions{Name: "r", Save: p.save, Saving: true}, saverIn(bootA))
		if err != nil {
			t.Error("opened to be saved:", err)
		}
	})
	require.NotNil(t, r)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	p.powerOff(t, r)
	require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
}

// TestClearWithoutWhatServingNeeds: an operator's shell may lock less memory than the service.
func TestClearWithoutWhatServingNeeds(t *testing.T) {
	p := protectedAt(t)
	mayLockNothing(t, func() {
		if err := clearSaved(p.memory, p.save, "found the cause", saverIn(bootA), nil); err != nil {
			t.Error(err)
		}
	})
	require.Equal(t, "found the cause", p.open(t, saverIn(bootA)).Superblock().Cleared)
}
