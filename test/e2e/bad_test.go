package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestBadPlace takes a block of memory from a region while it is served: a hole in a file on a tmpfs that is full is
// a SIGBUS to whoever touches it, as a place is that a medium has lost. Just the READs of that block fail, and
// nobody but them notices. Nor can anybody overwrite it while the target has it in use.
func TestBadPlace(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	dir := filepath.Join(h.home, "memory")
	require.NoError(t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("mount a tmpfs: %v (needs root)", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	path := filepath.Join(dir, "region")
	h.run(t, "pmnbd-target", "region", "create", "log", path, "--size", "8M")
	target := start(t, h.home, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", "log="+path, "--allow-volatile")
	uri := target.waitReady(t)[0]
	pmnbd, socket, _ := h.initiator(t, uri, "log", "--allow-volatile")
	c := dialNBD(t, socket)
	const block, bad = 4096, 100 * 4096
	data := noise(t, 1<<20)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())

	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 2<<20+bad, block))
	require.NoError(t, f.Close())
	filler, err := os.Create(filepath.Join(dir, "filler"))
	require.NoError(t, err)
	for err == nil {
		_, err = filler.Write(make([]byte, block))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)

	got := make([]byte, block)
	for range 2 {
		require.ErrorIs(t, c.read(bad, got), syscall.EIO)
		require.ErrorIs(t, c.read(bad-100, got), syscall.EIO)
		for _, off := range []uint64{0, bad - block, bad + block, 1<<20 - block} {
			require.NoError(t, c.read(off, got))
			require.True(t, bytes.Equal(data[off:off+block], got), "at %d", off)
		}
		require.ErrorIs(t, c.write(bad+512, got[:512]), syscall.EIO, "a part of it")
		require.NoError(t, c.write(bad+block, data[bad+block:bad+2*block]))
		require.NoError(t, c.flush())
	}
	require.Contains(t, h.run(t, "pmnbd-target", "status"), "409600+4096")
	require.Contains(t, h.run(t, "pmnbd-target", "region", "inspect", path, "--control", controls(h.home)), "409600+4096")
	require.Contains(t, h.run(t, "pmnbd", "status"), "bad places  4K of log")

	require.ErrorIs(t, c.write(bad, data[:block]), syscall.EIO, "all of it")
	require.NoError(t, filler.Truncate(0))
	require.NoError(t, filler.Close())
	target.stop(t)
	target = start(t, h.home, "pmnbd-target", "serve", "--listen", uri, "--region", "log="+path, "--allow-volatile")
	target.waitReady(t)
	require.NoError(t, c.read(0, got), "the session is back")
	require.NoError(t, c.write(bad, data[:block]))
	require.NoError(t, c.read(bad, got))
	require.True(t, bytes.Equal(data[:block], got))
	require.NoError(t, c.flush())
	require.NotContains(t, h.run(t, "pmnbd-target", "status"), "bad places")
	require.NotContains(t, h.run(t, "pmnbd", "status"), "bad places")
	require.NoError(t, c.write(bad+512, data[:512]))
	c.close()
	pmnbd.stop(t)
	target.stop(t)
}
