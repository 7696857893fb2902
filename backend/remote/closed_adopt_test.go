package remote

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// closedAtOne has a life end whose CLOSE reaches member 0 alone. That is away then, and the next start takes the session
// of member 1 back, which knows of no end.
func (h *mirrorHost) closedAtOne() (opened **Device, dialed chan error) {
	h.t.Helper()
	network := h.network(1)
	var cut atomic.Bool
	h.tap(1, func(wr *rdma.WorkRequest) {
		if kind, err := wire.TypeOf(wr.Inline); err == nil && kind == wire.TypeClose && !cut.Swap(true) {
			network.Down()
		}
	})
	h.cfg.Members[1].Provider = h.pairs[1].provider
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(h.t, c.Do(c.Flush()))
	require.NoError(h.t, d.Close())
	before := h.pairs[1].region.Superblock()
	require.False(h.t, before.Clean)
	h.network(0).Down()
	h.up(1)
	opened, dialed = h.dials()
	time.Sleep(time.Minute)
	require.Greater(h.t, h.pairs[1].region.Superblock().Epoch, before.Epoch, "its session was taken back")
	return opened, dialed
}

// Of two members one did not hear of the end, and the other one is away when the next run starts. That takes the
// session of the first back, for it knows of no end, and waits for the other one. Nothing is lost when that is back and
// says that it had been closed: everything was durable before (mirror §4.3).
func TestClosedMemberIsFoundWhileAdopting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMirrorHostOf(t, 2, 2)
		h.cfg.Arbiter = newFakeArbiter() // without it the start would wait before it adopts
		opened, dialed := h.closedAtOne()
		h.up(0)
		require.NoError(t, <-dialed)
		h.readsAll(backendtest.NewClient(t, *opened))
		require.NoError(t, (*opened).Close())
		h.has(h.all())
	})
}

// So it is when the adoption is about to let go of the closed member.
func TestClosedMemberIsFoundWhileItIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := newMirrorHostOf(t, 2, 1), newFakeArbiter()
		h.cfg.Arbiter, h.cfg.LegTimeout = a, 2*time.Minute
		opened, dialed := h.closedAtOne()
		asked := make(chan struct{})
		goOn := make(chan struct{})
		a.beforeSwap(func(*persist.Record) { asked <- struct{}{}; <-goOn })
		<-asked
		h.up(0)
		time.Sleep(time.Minute)
		a.beforeSwap(nil)
		close(goOn)
		require.NoError(t, <-dialed)
		h.readsAll(backendtest.NewClient(t, *opened))
		require.NoError(t, (*opened).Close())
		h.has(h.all())
	})
}

// The start decides again only once: a target could refuse for ever. What it meets then is a loss of nothing, and the
// next start is none.
func TestClosedMemberEndsTheSecondAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMirrorHostOf(t, 2, 2)
		h.cfg.Arbiter = newFakeArbiter()
		log := h.cfg.Log
		again := 0
		h.cfg.Log = slog.New(during{log.Handler(), "the life that the previous pmnbd closed does not go on", func() {
			again++
			h.network(0).Down()
		}})
		_, dialed := h.closedAtOne()
		h.up(0)
		time.Sleep(time.Minute)
		require.Equal(t, 1, again)
		require.Empty(t, dialed, "it waits for the closed member again")
		h.up(0)
		time.Sleep(time.Minute)
		require.NotEmpty(t, dialed)
		err := <-dialed
		require.ErrorAs(t, err, new(*LossError))
		require.ErrorContains(t, err, "0 acknowledged bytes were not flushed")
		require.Equal(t, 1, again)
		h.cfg.Log = log
		d, c := h.run()
		h.readsAll(c)
		require.NoError(t, d.Close())
		h.has(h.all())
	})
}

// A during handler calls do before it passes on each record of one message.
type during struct {
	slog.Handler
	message string
	do      func()
}

func (h during) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.do()
	}
	return h.Handler.Handle(ctx, r)
}

func (h during) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}
