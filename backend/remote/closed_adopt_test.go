package remote

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// closedAtOne has a run close the session of member A; its CLOSE to member B is lost. A is away when the next run starts,
// so that run, which dialed gets the end of, has resumed the session of B and waits for A. asked is closed when it asks A
// for its session.
func (h *mirrorHost) closedAtOne() (opened **Device, dialed chan error, asked chan struct{}) {
	h.t.Helper()
	network := h.network(0)
	asked = make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	h.tap(0, func(wr *rdma.WorkRequest) {
		if wr.Op == rdma.OpSend && isOf(wire.TypeResume)(message(wr)) {
			once()
		}
	})
	h.cfg.Members[0].Provider = h.pairs[0].provider
	h.cutAt(1, isOf(wire.TypeClose))
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(h.t, c.Do(c.Flush()))
	require.NoError(h.t, d.Close())
	before := h.pairs[1].region.Superblock()
	require.False(h.t, before.Clean)
	network.Down()
	h.up(1)
	opened, dialed = h.dials()
	synctest.Wait() // the start has resumed B and waits for A
	require.Greater(h.t, h.pairs[1].region.Superblock().Epoch, before.Epoch, "its session was resumed")
	return opened, dialed, asked
}

// A comes back and refuses the RESUME. The start must go on: everything was durable before A was closed (mirror §4.3).
func TestClosedMemberIsFoundWhileAdopting(t *testing.T) {
	for name, begins := range map[string]func(*Config){ // others wait before they adopt
		"with an arbiter": func(cfg *Config) { cfg.Arbiter = newFakeArbiter() },
		"degraded":        func(cfg *Config) { cfg.Degraded = true },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testClosedMember(t, begins) }) })
	}
}

func testClosedMember(t *testing.T, begins func(*Config)) {
	h := newMirrorHostOf(t, 2, 2)
	begins(&h.cfg)
	opened, dialed, _ := h.closedAtOne()
	h.up(0)
	require.NoError(t, <-dialed)
	h.readsAll(backendtest.NewClient(t, *opened))
	require.NoError(t, (*opened).Close())
	h.has(h.all())
}

// So it must when the adoption is about to let go of A. It then adopts once more, without A.
func TestClosedMemberIsFoundWhileItIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := newMirrorHostOf(t, 2, 1), newFakeArbiter()
		h.cfg.Arbiter, h.cfg.LegTimeout = a, time.Minute
		swaps, answer := make(chan struct{}), make(chan struct{})
		opened, dialed, asked := h.closedAtOne()
		a.beforeSwap(func(*persist.Record) { swaps <- struct{}{}; <-answer })
		<-swaps
		h.up(0)
		<-asked
		synctest.Wait() // A has refused
		a.beforeSwap(nil)
		close(answer)
		require.NoError(t, <-dialed)
		h.readsAll(backendtest.NewClient(t, *opened))
		require.NoError(t, (*opened).Close())
		h.has(h.all())
	})
}

// It is a loss if the window has bytes that were not durable, or if the member was not CLOSEd in the session's epoch.
func TestOnlyACleanEndIsNoLoss(t *testing.T) {
	f, err := openWindowFile(inMemory(t), [16]byte{1}, [16]byte{2})
	require.NoError(t, err)
	g := &leg{granted: wire.Opened{Epoch: 5}}
	for name, c := range map[string]struct {
		window windowState
		epoch  uint64
		closed bool
	}{
		"drained, closed":      {windowDrained, 5, true},
		"drained, taken since": {windowDrained, 6, false},
		"live, closed":         {windowLive, 5, false},
	} {
		f.update(func(h *header) { h.State = c.window })
		says := wire.Refused{Code: wire.CodeNotOwner, Epoch: c.epoch}
		r := &replayer{core: &core{copies: &copies{}}, file: f, legs: []*leg{g}, cause: &lastingError{g.refusal(&says)}}
		err := r.left(backend.ErrFailed, nil)
		require.ErrorAs(t, err, new(*LossError), name)
		require.Equal(t, c.closed, errors.As(err, new(closedError)), name)
	}
	require.NoError(t, f.Close())
}

// The start decides again only once: a target could refuse for ever. The second such end is a loss of no bytes, and the
// next start opens the mirror.
func TestClosedMemberEndsTheSecondAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMirrorHostOf(t, 2, 2)
		h.cfg.Arbiter = newFakeArbiter()
		log, again := h.cfg.Log, make(chan struct{}, 2)
		away := sync.OnceFunc(h.network(0).Down)
		h.cfg.Log = slog.New(said{log.Handler(), "the life that the previous pmnbd closed does not go on", func(slog.Record) {
			away()
			again <- struct{}{}
		}})
		_, dialed, _ := h.closedAtOne()
		h.up(0)
		<-again
		synctest.Wait()
		require.Empty(t, dialed, "it waits for A again")
		h.up(0)
		err := <-dialed
		require.ErrorAs(t, err, new(*LossError))
		require.ErrorContains(t, err, "0 acknowledged bytes were not flushed")
		require.Empty(t, again)
		h.cfg.Log = log
		d, c := h.run()
		h.readsAll(c)
		require.NoError(t, d.Close())
		h.has(h.all())
	})
}
