package remote

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist/region/regiontest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// errEnough is why tests end a context.
var errEnough = errors.New("enough")

// away stops the target and waits until d has noticed.
func (h *host) away(d *Device) {
	h.t.Helper()
	h.stop()
	require.Eventually(h.t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
}

// A Sync that is cancelled while the target is away costs nothing: the next one covers the writes.
func TestSync(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	require.NoError(t, d.Sync(t.Context()))
	require.Zero(t, d.Unflushed())
	require.Equal(t, backendtest.Pattern(block, 1), h.region.Data()[:block])

	h.away(d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)))
	ctx, cancel := context.WithCancelCause(t.Context())
	synced := make(chan error, 1)
	go func() { synced <- d.Sync(ctx) }()
	require.Eventually(t, func() bool { return d.Snapshot().Barriers.Waiting == 1 }, patience, tick)
	cancel(errEnough)
	require.ErrorIs(t, <-synced, errEnough)
	require.EqualValues(t, block, d.Unflushed())

	h.start(h.path, regiontest.ADR)
	require.NoError(t, d.Sync(t.Context()))
	require.Zero(t, d.Unflushed())
	require.Equal(t, backendtest.Pattern(block, 2), h.region.Data()[:block])
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.Sync(t.Context()), backend.ErrClosed)
}

// A Shutdown that gives up leaves the window to the next run, and says what is in it.
func TestShutdownGivesUp(t *testing.T) {
	for _, tt := range []struct {
		name      string
		noWindow  bool // Config.WindowDir
		unflushed bool
		says      string
	}{
		{"with a window file", false, true, "4096 bytes that were acknowledged are not flushed: open the region again on this host before it reboots"},
		{"without", true, true, "4096 bytes that were acknowledged are not flushed, and are lost"},
		{"with nothing to flush", false, false, "nothing is lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			if tt.noWindow {
				h.cfg.WindowDir = ""
			}
			d, c := h.run()
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			h.away(d)
			want := backendtest.Pattern(block, 1)
			if tt.unflushed {
				want = backendtest.Pattern(block, 2)
				require.NoError(t, c.Do(c.Write(0, want, 0)))
			}
			read, flush := c.Read(0, block, 0), c.Flush()
			c.Submit(read, flush)

			closed := make(chan error, 1)
			go func() { closed <- d.Close() }() // waits as long as the other lets it
			require.Eventually(t, func() bool { return d.core.life.refusal() != nil }, patience, tick)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errEnough)
			err := d.Shutdown(ctx)
			require.ErrorIs(t, err, errEnough)
			require.ErrorContains(t, err, tt.says)
			require.Equal(t, err, <-closed)
			require.ErrorIs(t, c.Wait(read, flush), backend.ErrClosed)
			require.Equal(t, StateClosed, d.Snapshot().State)

			h.start(h.path, regiontest.ADR)
			if tt.noWindow {
				return
			}
			d, c = h.run()
			require.False(t, d.Snapshot().Unclean)
			r := c.Read(0, block, 0)
			require.NoError(t, c.Do(r))
			require.Equal(t, want, r.Got)
			require.NoError(t, d.Close())
			require.Equal(t, want, h.region.Data()[:block])
		})
	}
}

// Shutdown gives up, too, where the target lives and its disk hangs.
func TestShutdownDuringABarrier(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialPatient(t, 2)
	c := backendtest.NewClient(t, d)
	release := p.sync.blockData()
	t.Cleanup(release)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	ctx, cancel := context.WithCancelCause(t.Context())
	closed := make(chan error, 1)
	go func() { closed <- d.Shutdown(ctx) }()
	<-p.sync.began
	cancel(errEnough)
	require.ErrorIs(t, <-closed, errEnough)
}

// Shutdown waits for the answer to CLOSE no longer than it may. Everything is flushed by then, and it says so.
func TestShutdownDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fake(t, rdmafake.Config{})
		var tries atomic.Int64
		p.provider = wrapped{&attempts{p.provider.(*rdmafake.Provider), func() { tries.Add(1) }}, func(c rdma.Conn) rdma.Conn { return closeless{c} }}
		d := p.dialPatient(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := d.Shutdown(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "nothing is lost: all that was acknowledged is flushed")
		require.Less(t, time.Since(began), 2*time.Second)
	})
}
