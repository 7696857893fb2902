package region

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// another opens the region of r once more, as a process with another device node does: a
// lock on one node has no effect on the other.
func another(t *testing.T, r *Region, h host) *Region {
	t.Helper()
	require.NoError(t, unix.Flock(int(r.file.Fd()), unix.LOCK_UN))
	return opened(t, r.path, OpenOptions{}, h)
}

// onEach runs a test on a device and on a file.
func onEach(t *testing.T, f func(t *testing.T, r *Region, h host)) {
	t.Run("device", func(t *testing.T) {
		path := newDevice(t, deviceSize)
		h := deviceHost(Platform{Domain: DomainMemory})
		_, err := create(path, CreateOptions{Name: "r"}, h)
		require.NoError(t, err)
		f(t, opened(t, path, OpenOptions{}, h), h)
	})
	t.Run("file", func(t *testing.T) {
		f(t, opened(t, created(t, fileHost), OpenOptions{}, fileHost), fileHost)
	})
}

// A region whose superblock another process has changed has two owners. The one that
// notices fails, in its own memory only: what the other wrote stays.
func TestForeignUpdate(t *testing.T) {
	raise := func(sb *Superblock) error { sb.Epoch++; return nil }
	for _, tt := range []struct {
		name string
		do   func(r *Region) error
	}{
		{"an update", func(r *Region) error { return r.Update(raise) }},
		{"a look", (*Region).Check},
		{"a failure", func(r *Region) error { return r.Fail(os.ErrDeadlineExceeded) }},
		{"a clear", func(r *Region) error { return r.clear("x", nil) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, r *Region, h host) {
				require.NoError(t, r.Update(raise))
				require.NoError(t, r.Check())
				other := another(t, r, h)
				require.NoError(t, r.Check(), "the other process has only opened the region")
				require.NoError(t, other.Update(raise))
				before := header(t, r.path)
				err := tt.do(r)
				require.ErrorIs(t, err, ErrFailed)
				require.ErrorContains(t, err, ErrForeign.Error())
				require.ErrorContains(t, err, "another device node")
				require.Equal(t, err, r.Failed())
				require.Equal(t, err, r.Flush([]persist.Range{{Len: 1}}))
				require.Equal(t, before, header(t, r.path))
				require.NoError(t, other.Check())
				require.NoError(t, other.Update(raise))
				require.False(t, other.Superblock().Failed)
			})
		})
	}
}

// Check notices the first step of another process's update, and each later step, in
// either copy.
func TestForeignSteps(t *testing.T) {
	for name, change := range map[string]func(h *[2 * CopySize]byte, newer int){
		"generation 0":            func(h *[2 * CopySize]byte, newer int) { clear(h[(1-newer)*CopySize+offGeneration:][:8]) },
		"a new older copy":        func(h *[2 * CopySize]byte, newer int) { h[(1-newer)*CopySize+offGeneration] += 2 },
		"a new newer copy":        func(h *[2 * CopySize]byte, newer int) { h[newer*CopySize+offGeneration] += 2 },
		"wiped":                   func(h *[2 * CopySize]byte, _ int) { clear(h[:]) },
		"another region's, whole": func(h *[2 * CopySize]byte, _ int) { h[offGeneration]++; h[CopySize+offGeneration]++ },
	} {
		t.Run(name, func(t *testing.T) {
			r := opened(t, created(t, fileHost), OpenOptions{}, fileHost)
			require.NoError(t, r.Update(func(sb *Superblock) error { sb.Epoch++; return nil }))
			h := header(t, r.path)
			change(&h, r.newer)
			setHeader(t, r.path, h)
			require.ErrorContains(t, r.Check(), ErrForeign.Error())
		})
	}
}

// A process recognizes what it left itself, also when its update failed in the middle.
func TestOwnFailureIsNotForeign(t *testing.T) {
	for step := range 3 {
		n := 0
		fail := false
		r := opened(t, created(t, fileHost), OpenOptions{}, fileHost.syncing(func(fd int) error {
			if n++; fail && n > step {
				return unix.EIO
			}
			return unix.Fdatasync(fd)
		}))
		fail, n = true, 0
		err := r.Update(func(sb *Superblock) error { sb.Epoch++; return nil })
		require.ErrorIs(t, err, ErrFailed)
		require.NotContains(t, err.Error(), ErrForeign.Error())
		info, err := Inspect(r.path)
		require.NoError(t, err)
		require.True(t, info.Superblock.Failed, "step %d", step)
	}
}
