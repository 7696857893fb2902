package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// The lease at the arbiter says nothing of an initiator that does not ask the arbiter. A start takes members
// from one only if an operator says so, as without an arbiter (mirror §4.8).
func TestArbiterTakesNothingFromOthers(t *testing.T) {
	synctest.Test(t, testArbiterTakesNothingFromOthers)
}

func testArbiterTakesNothingFromOthers(t *testing.T) {
	a := newArbitrated(t)
	d, _ := a.dial(t) // the mirror has an arbiter
	require.NoError(t, d.Close())
	alone := a.cfg
	alone.Arbiter, alone.Degraded, alone.WithoutArbiter = nil, true, true
	old, err := Dial(context.Background(), alone)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))

	cfg := a.cfg
	cfg.ID, cfg.StateDir = [16]byte{7}, t.TempDir()
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	_, err = Dial(soon, cfg)
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "grants no session")
	require.NoError(t, c.Do(c.Flush()))
	require.Equal(t, backendtest.Pattern(block, 1), a.pairs[0].region.Data()[:block])

	cfg.Takeover = true
	d, err = Dial(context.Background(), cfg)
	require.NoError(t, err)
	synctest.Wait() // until then a FLUSH with nothing to flush succeeds
	require.Error(t, c.Do(c.Flush()))
	require.True(t, a.pairs.record(0).Arbiter)
	require.Error(t, old.Close())
	require.NoError(t, d.Close())
}

// No mirror with an arbiter is made of regions that somebody serves.
func TestCreateWithAnArbiterTakesNothing(t *testing.T) { synctest.Test(t, testCreateTakesNothing) }

func testCreateTakesNothing(t *testing.T) {
	var s pairs
	for range 2 {
		s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second}))
	}
	d := s[0].dial(t)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	cfg := s.config(t)
	cfg.ID, cfg.StateDir, cfg.Arbiter = [16]byte{7}, t.TempDir(), newFakeArbiter()
	for _, accept := range []bool{false, true} {
		cfg.AcceptLoss = accept
		_, err := CreateMirror(context.Background(), cfg, NewMirror{From: 1})
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.True(t, refused.Held())
	}
	require.NoError(t, c.Do(c.Flush()))
	require.NoError(t, d.Close())
}
