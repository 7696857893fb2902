package remote

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// holds is how many barriers stay in the window although they have succeeded.
func (d *Device) holds() int {
	c := &d.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.retired.n
}

// dialLagging opens a device on s that lets no follower go for its lag.
func (s pairs) dialLagging(t testing.TB, change func(*Config)) *Device {
	return s.dialAsync(t, 2, func(cfg *Config) {
		cfg.AsyncLagTime, cfg.LegTimeout = time.Hour, time.Hour
		if change != nil {
			change(cfg)
		}
	})
}

// fallBehind has barriers succeed that a follower lacks. It is not at its bound with them.
func fallBehind(t testing.TB, c *backendtest.Client) {
	t.Helper()
	for i := range 3 {
		require.NoError(t, c.Do(c.Write(uint64(i)*stripe, backendtest.Pattern(block, uint32(i)), 0), c.Flush()))
	}
}

// A follower that is removed from the mirror holds nothing up, and what it lacked leaves the window. It is not at
// its bound, so only the removal can let it go.
func TestFollowerIsRemoved(t *testing.T) {
	for name, keep := range map[string]func(p *pair) (release func()){
		"while it answers": func(p *pair) func() { return p.sync.blockData() },
		"while it hangs":   func(p *pair) func() { return p.sync.block() },
		"while it is away": func(p *pair) func() {
			n := p.provider.(*rdmafake.Provider)
			n.Down()
			return n.Up
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFollowerIsRemoved(t, keep, false) })
		})
		t.Run(name+", and another change begins at once", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFollowerIsRemoved(t, keep, true) })
		})
	}
}

func testFollowerIsRemoved(t *testing.T, keep func(p *pair) (release func()), another bool) {
	s := followed(t, 2, rdmafake.Config{})
	d := s.dialLagging(t, nil)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.follows(t, d, 2)
	s.has(t, d, 2)
	release := keep(s[2])
	defer func() { release() }()
	fallBehind(t, c)
	synctest.Wait()
	require.True(t, d.legs[2].following.Load())
	require.NotZero(t, d.holds())
	answers, removed := d.legs[2].up.Load(), make(chan error, 1)
	persists := func() {}
	if another {
		persists = s[1].sync.block() // so the other change stays pending
		d.removeAndChange(t, 2)
		removed <- nil
	} else {
		go func() {
			told, err := d.RemoveMember(context.Background(), 2)
			if err == nil && answers {
				err = told
			}
			removed <- err
		}()
	}
	defer func() { persists() }()
	synctest.Wait()
	d.core.commit.mu.Lock()
	require.Equal(t, another, d.core.copies.view.Pending)
	d.core.commit.mu.Unlock()
	require.False(t, d.legs[2].following.Load(), "it follows, and is no member")
	require.Zero(t, d.holds(), "what it lacks is kept")
	persists()
	release()
	require.NoError(t, <-removed)
	if answers && !another {
		require.Zero(t, s.record(2))
	}
	for i := range 8 { // more than the bound
		require.NoError(t, c.Do(c.Write(uint64(i%4)*stripe, backendtest.Pattern(256<<10, uint32(i)), 0), c.Flush()))
	}
	require.Zero(t, s.record(0).Async)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// removeAndChange removes the member in slot, and begins another change in the same moment. That happens to a caller
// of SetMinCopies that waits for the end of the removal.
func (d *Device) removeAndChange(t testing.TB, slot int) {
	k := d.core.copies
	c := &k.core.commit
	c.mu.Lock()
	next, err := k.view.Remove(slot)
	require.NoError(t, err)
	k.changeLocked(next)
	k.activateLocked()
	left := k.departLocked()
	next, err = k.view.SetMinCopies(2)
	require.NoError(t, err)
	k.changeLocked(next)
	c.mu.Unlock()
	for _, g := range left {
		g.lanes[0].abort(errRemoved)
	}
	k.rouse()
}

// A detour is a way to a target. Nobody can connect on it while it is shut.
type detour struct {
	rdma.Provider
	shut atomic.Bool
}

func (w *detour) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	if w.shut.Load() {
		return nil, rdma.ErrLost
	}
	return w.Provider.OpenDomain(ctx, addr)
}

// Two targets lead to one member that follows. While the first is away the second takes the member over. Then nothing
// is kept any more for the first.
func TestFollowerIsReachedAnotherWay(t *testing.T) { synctest.Test(t, testFollowerAnotherWay) }

func testFollowerAnotherWay(t *testing.T) {
	s := followed(t, 2, rdmafake.Config{})
	ways := [2]*detour{{Provider: s[2].provider}, {Provider: s[2].provider}}
	ways[1].shut.Store(true)
	d := s.dialLagging(t, func(cfg *Config) {
		first, second := cfg.Members[2], cfg.Members[2]
		first.Provider, second.Provider = ways[0], ways[1]
		cfg.Members = append(cfg.Members[:2], first, second)
	})
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.follows(t, d, 2)
	s.has(t, d, 2)
	ways[0].shut.Store(true)
	d.legs[2].lanes[0].abort(rdma.ErrLost)
	fallBehind(t, c)
	synctest.Wait()
	require.True(t, d.legs[2].following.Load())
	require.NotZero(t, d.holds())
	ways[1].shut.Store(false)
	require.Eventually(t, d.legs[3].following.Load, patience, 10*time.Millisecond)
	s.has(t, d, 2)
	synctest.Wait()
	require.False(t, d.legs[2].following.Load(), "it leads to no member, and follows")
	require.Zero(t, d.holds(), "what it lacks is kept")
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}
