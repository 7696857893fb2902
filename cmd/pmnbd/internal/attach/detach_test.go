package attach

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/cmd/pmnbd/internal/kernel"
)

// soon is a context for what does not come.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestDetachWhileOpen(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	defer s.stop(t)
	_, err := b.attach()
	require.NoError(t, err)
	b.opened = true
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the kernel disconnects it within that
	defer cancel()
	_, err = b.host().detach(ctx, b.dev, true)
	require.ErrorIs(t, err, kernel.ErrInUse)
	_, err = b.attach()
	require.ErrorContains(t, err, "was detached, but somebody has it open")
	b.denied = true
	_, err = b.host().detach(t.Context(), b.dev, true)
	require.ErrorIs(t, err, kernel.ErrPermission)
	_, err = b.attach()
	require.ErrorContains(t, err, "was detached, but somebody has it open", "the kernel has disconnected it before")
	b.release()
	_, err = b.attach()
	require.NoError(t, err)
}

// The kernel waits in DISCONNECT while a server takes no bytes. That is one device's
// business, and whoever waits for it says so.
func TestDetachStuck(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	defer s.stop(t)
	_, err := b.attach()
	require.NoError(t, err)
	goOn := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	b.disconnecting = func() {
		cancel()
		<-goOn
	}
	was, err := b.host().detach(ctx, b.dev, true)
	require.ErrorContains(t, err, "the kernel has not disconnected /dev/nbd0")
	require.True(t, was)

	// The device itself.
	was, err = b.host().detach(soon(t), b.dev, true)
	require.ErrorIs(t, err, errBusy)
	require.False(t, was, "that was not looked at")
	require.ErrorIs(t, b.keeper(1).supply(soon(t)), errBusy)

	// Another.
	other := kernel.Device{Index: 1, Root: b.root}
	was, err = b.host().detach(t.Context(), other, false)
	require.NoError(t, err)
	require.False(t, was)
	k := b.keeper(1)
	k.Device = other
	k.host.client = func() (*kernel.Client, error) { return nil, kernel.ErrNoModule }
	require.ErrorIs(t, k.supply(t.Context()), kernel.ErrNoModule, "as far as the kernel")

	close(goOn)
	_, err = b.detach(t, true) // when the other one is done
	require.NoError(t, err)
	require.NoFileExists(t, b.sysfs("pid"))
}

// The kernel looks for partitions for whoever opens the device first; others wait.
func TestDetachUnopened(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	defer s.stop(t)
	_, err := b.attach()
	require.NoError(t, err)
	path := filepath.Join(b.root, "dev/nbd0")
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600)) // opened when somebody writes
	was, err := b.host().detach(soon(t), b.dev, true)
	require.ErrorContains(t, err, "/dev/nbd0 cannot be opened, and is not detached")
	require.True(t, was)
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	l, err := b.host().lock(t.Context(), b.dev)
	require.NoError(t, err)
	l.unlock()
	require.NoFileExists(t, b.sysfs("pid"), "it went on")
}

// A device stays attached if the kernel refuses to disconnect it, or cannot be asked.
func TestDetachRefused(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	defer s.stop(t)
	_, err := b.attach()
	require.NoError(t, err)

	b.denied = true
	_, err = b.detach(t, true)
	require.ErrorIs(t, err, kernel.ErrPermission)
	_, err = b.attach()
	require.NoError(t, err, "it goes on")

	h := b.host()
	h.client = func() (*kernel.Client, error) { return nil, kernel.ErrNoModule }
	_, err = h.detach(t.Context(), b.dev, true)
	require.ErrorIs(t, err, kernel.ErrNoModule)
	_, err = b.attach()
	require.NoError(t, err, "it goes on")
}

// Who attaches a device that we detached is not waited for, and is remembered.
func TestDetachedAndAttached(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	defer s.stop(t)
	_, err := b.attach()
	require.NoError(t, err)
	b.opened = true // DISCONNECT leaves sysfs to us
	b.disconnecting = func() {
		b.release()
		b.fakeKernel.attach("pmnbd:next")
		l := locked{Device: b.dev, host: b.host()} // for the detach has the lock
		require.NoError(t, l.save(&Attachment{Backend: "pmnbd:next"}))
	}
	was, err := b.detach(t, true)
	require.NoError(t, err)
	require.True(t, was)
	l, err := b.host().lock(t.Context(), b.dev)
	require.NoError(t, err)
	defer l.unlock()
	a, err := l.attachment()
	require.NoError(t, err)
	require.Equal(t, "pmnbd:next", a.Backend)
}

// A device that cannot be looked at is not one that is not attached.
func TestDetachUnreadable(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.Mkdir(b.sysfs("pid"), 0o755))
	_, err := b.detach(t, true)
	require.ErrorContains(t, err, "who attached /dev/nbd0")
}
