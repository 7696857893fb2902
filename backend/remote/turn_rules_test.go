package remote

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// keeps expects that the lease of the initiator that joined last is nobody else's for a while.
func (a *fakeArbiter) keeps(t *testing.T, d time.Duration) {
	joined := a.joined()
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Second) {
		require.False(t, a.free())
		require.Equal(t, joined, a.joined())
	}
}

// newBeatingHost is newMirrorHostOf with the usual lease of the targets.
func newBeatingHost(t *testing.T, legs int, minCopies uint8) *mirrorHost {
	s := beating(t, legs, minCopies)
	cfg := s.config(t)
	cfg.WindowDir = inMemory(t)
	return &mirrorHost{&host{&farm{t: t}, cfg}, s, make([]byte, regionSize), 0}
}

// dials has h start in the background.
func (h *mirrorHost) dials() (d **Device, dialed chan error) {
	d, dialed = new(*Device), make(chan error, 1)
	go func() {
		var err error
		*d, err = Dial(h.t.Context(), h.cfg)
		dialed <- err
	}()
	return d, dialed
}

// A start that has a window to adopt keeps the lease, however long the window's life waits for a member: another life
// would take from it what nobody has flushed (mirror §4.8).
func TestWindowKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := newMirrorHostOf(t, 3, 2), newFakeArbiter()
		h.cfg.Arbiter, h.cfg.LegTimeout = a, time.Minute
		d, c := h.run()
		h.write(c, 0, block)
		require.NoError(t, c.Do(c.Flush()))
		h.write(c, stripe, block)
		h.losesSource(d)
		later, dialed := h.dials()
		time.Sleep(time.Second)
		a.keeps(t, ages)
		h.up(0)
		require.NoError(t, <-dialed)
		h.readsAll(backendtest.NewClient(t, *later))
		h.kill(*later)
	})
}

// So does a life whose generation the arbiter has, and no member yet (mirror §4.8).
func TestLifeThatHasBegunKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := newMirrorHostOf(t, 2, 1), newFakeArbiter()
		h.cfg.Arbiter, h.cfg.LegTimeout = a, time.Hour
		a.beforeSwap(func(*persist.Record) {
			h.network(0).Down()
			h.network(1).Down()
		})
		d, dialed := h.dials()
		time.Sleep(time.Second)
		a.keeps(t, ages)
		a.beforeSwap(nil)
		h.network(0).Up()
		h.network(1).Up()
		require.NoError(t, <-dialed)
		require.Equal(t, h.record(0).Ancestor, a.holds().Ancestor)
		require.NoError(t, (*d).Close())
	})
}

// A start with --accept-loss that waits for what clients have read from keeps the lease: that wait has an end (mirror §4.4).
func TestWaitForTheSourceKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := newBeatingHost(t, 3, 2), newFakeArbiter()
		h.cfg.Arbiter, h.cfg.LegTimeout, h.cfg.AcceptLoss = a, time.Minute, true
		d, c := h.run()
		h.write(c, 0, block)
		require.NoError(t, c.Do(c.Flush()))
		h.losesSource(d)
		later, dialed := h.dials()
		time.Sleep(time.Second)
		a.keeps(t, h.cfg.LegTimeout+2*usualLease)
		require.NotEmpty(t, dialed)
		require.NoError(t, <-dialed)
		h.kill(*later)
		h.up(0)
	})
}

// Without --accept-loss it has none. Another host has its turn then, and the start finds that its clients have lost their
// device (mirror §4.8).
func TestWaitForTheSourceGivesTheLeaseBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := newBeatingHost(t, 3, 2), newFakeArbiter()
		h.cfg.Arbiter, h.cfg.LegTimeout = a, time.Second
		d, c := h.run()
		h.write(c, 0, block)
		require.NoError(t, c.Do(c.Flush()))
		h.losesSource(d)
		_, dialed := h.dials()
		time.Sleep(time.Second)
		cfg := h.cfg
		cfg.ID, cfg.StateDir, cfg.WindowDir = [16]byte{7}, t.TempDir(), ""
		ctx, cancel := context.WithTimeout(t.Context(), ages)
		defer cancel()
		other, err := Dial(ctx, cfg)
		require.NoError(t, err)
		n := backendtest.NewClient(t, other)
		read := n.Read(0, block, 0)
		require.NoError(t, n.Do(read, n.Write(stripe, backendtest.Pattern(block, 2), 0), n.Flush()))
		require.Equal(t, h.want[:block], read.Got)
		require.Empty(t, dialed)
		h.up(0)
		require.NoError(t, other.Close())
		err = <-dialed
		require.ErrorAs(t, err, new(*LossError))
		require.ErrorContains(t, err, "somebody else had")
	})
}

// While the arbiter does not answer there is nobody to whom the lease could go: the start waits for the arbiter.
func TestNoTurnEndsWithoutTheArbiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArbitrated(t)
		other := a.contender(t, 7, "")
		old, _ := a.dial(t)
		other.start(t)
		time.Sleep(time.Minute)
		for _, cut := range other.cut {
			cut.Store(true)
		}
		require.NoError(t, old.Close())
		time.Sleep(2 * time.Second)
		joined := a.joined()
		a.cutOff(true)
		time.Sleep(ages)
		require.Equal(t, joined, a.joined())
		require.Contains(t, other.said(), "ask the arbiter")
		ended := func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.terms[joined-1].ended
		}
		require.False(t, ended())
		a.cutOff(false)
		time.Sleep(time.Minute)
		require.True(t, ended())
		require.Equal(t, joined, a.joined(), "it reaches nobody")
		for _, cut := range other.cut {
			cut.Store(false)
		}
		<-other.begun
		require.NoError(t, other.err)
		require.NoError(t, other.d.Close())
	})
}

// A start that has opened a member keeps the lease, too: another host could take the same life number (mirror §4.8).
func TestStartThatOpenedAMemberKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		windows := inMemory(t)
		a := newArbitrated(t)
		old, c := a.dial(t)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		require.NoError(t, old.Close())
		a.network(0).Down()
		a.loseContents(t, 0)
		a.network(0).Up()
		other := a.contender(t, 7, windows)
		other.cut[1].Store(true)
		other.start(t)
		time.Sleep(3 * time.Second)
		require.NotEqual(t, a.pairs[1].region.Superblock().Life, a.pairs[0].region.Superblock().Life, "it was opened")
		a.keeps(t, ages)
		other.cut[1].Store(false)
		<-other.begun
		require.NoError(t, other.err)
		n := backendtest.NewClient(t, other.d)
		read := n.Read(0, block, 0)
		require.NoError(t, n.Do(read))
		require.Equal(t, backendtest.Pattern(block, 1), read.Got)
		require.NoError(t, other.d.Close())
	})
}

// After its turn a start reaches targets that are no members of the mirror. It ends, as in its turn (mirror §4.1).
func TestStartIsRefusedAfterItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArbitrated(t)
		old, _ := a.dial(t)
		other := a.contender(t, 7, "")
		wrong := new(atomic.Bool)
		for i := range other.cfg.Members {
			m := &other.cfg.Members[i]
			bare := newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second})
			require.Equal(t, m.Addr, bare.addr)
			m.Provider = diversion{m.Provider, bare.provider, wrong}
		}
		other.start(t)
		time.Sleep(time.Second)
		for _, cut := range other.cut {
			cut.Store(true)
		}
		require.NoError(t, old.Close())
		time.Sleep(time.Minute)
		require.True(t, a.free())
		wrong.Store(true)
		<-other.begun
		require.ErrorAs(t, other.err, new(*MirrorError))
		require.True(t, a.free())
	})
}

// A diversion is a network that leads to another target from some moment on.
type diversion struct {
	rdma.Provider
	other rdma.Provider
	taken *atomic.Bool
}

func (p diversion) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	if p.taken.Load() {
		return p.other.OpenDomain(ctx, addr)
	}
	return p.Provider.OpenDomain(ctx, addr)
}
