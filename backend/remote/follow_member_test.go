package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// The targets in F keep no bits for a member from the generation on that is without it. So the barrier
// behind that clears none, although the member's connections have not ended yet.
func TestNothingIsClearedForALeaver(t *testing.T) {
	for name, follows := range map[string]bool{"that is copied to": false, "that follows": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testNothingIsCleared(t, follows) })
		})
	}
}

func testNothingIsCleared(t *testing.T, follows bool) {
	s := followed(t, 2, rdmafake.Config{})
	d := s.dialAsync(t, 2, func(cfg *Config) {
		if !follows {
			cfg.ResyncRate = 1
		}
	})
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	g, k := d.legs[2], d.core.copies
	if follows {
		s.follows(t, d, 2)
	} else {
		require.Eventually(t, func() bool { return d.resyncing(2) != nil }, patience, 10*time.Millisecond)
	}
	synctest.Wait()
	k.core.commit.mu.Lock()
	x := d.core.streams[0]
	x.mu.Lock()
	if follows {
		g.follow.bits.clean[0] = append(g.follow.bits.clean[0], 1)
	} else {
		g.copying.shares[0].clean = append(g.copying.shares[0].clean, persist.Range{Len: 64 << 10})
	}
	x.mu.Unlock()
	next, err := k.view.Remove(2)
	require.NoError(t, err)
	k.changeLocked(next)
	k.view, k.written = k.view.Activated(), 0
	k.departLocked()
	x.mu.Lock()
	x.carryLocked()
	carries := x.carries
	x.mu.Unlock()
	k.core.commit.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Shutdown(ctx) // it mostly fails: no target knows of the generation
	require.False(t, carries)
}
