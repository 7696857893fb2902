package remote

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// No bit is cleared for a member that is outside F and has been copied to, if that would be wrong.
func TestNothingIsCleared(t *testing.T) {
	for why, change := range map[string]func(*copies){
		// The targets in F keep none for it from the generation on that is without it. So the barrier behind that clears
		// none, although the member's connections have not ended yet.
		"it was removed": func(k *copies) {
			next, err := k.view.Remove(2)
			require.NoError(t, err)
			k.changeLocked(next)
			k.view, k.written = k.view.Activated(), 0
			k.departLocked()
		},
		"not all of F name its session": func(k *copies) { k.known.Members[2].Epoch-- },
	} {
		for what, follows := range map[string]bool{"copied to": false, "follows": true} {
			t.Run(why+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testNothingIsCleared(t, follows, change) })
			})
		}
	}
}

func testNothingIsCleared(t *testing.T, follows bool, change func(*copies)) {
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
	require.True(t, k.namesLocked(g))
	if follows {
		g.follow.bits.clean[0] = append(g.follow.bits.clean[0], 1)
	} else {
		g.copying.shares[0].clean = append(g.copying.shares[0].clean, persist.Range{Len: 64 << 10})
	}
	x.mu.Unlock()
	r := g.copying
	change(k)
	x.mu.Lock()
	x.carryLocked() // no barrier is queued, so to clear a bit would panic
	told := g.follow.bits.told
	if !follows {
		told = []int{r.shares[0].told}
	}
	x.mu.Unlock()
	k.core.commit.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Shutdown(ctx) // it mostly fails: no target knows of the generation
	require.Zero(t, slices.Max(append(told, 0)))
}
