package remote

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// A region is prepared, or is not, whichever answer of its target never comes.
func TestPrepareBesideASilentTarget(t *testing.T) {
	for silent := 1; ; silent++ {
		fell := false
		synctest.Test(t, func(t *testing.T) { fell = prepareSilenced(t, silent) })
		if !fell {
			require.Greater(t, silent, 3, "it has asked for nothing")
			return
		}
	}
}

// prepareSilenced prepares a region whose target falls silent when the initiator has been woken n times. It
// reports whether that came to pass.
func prepareSilenced(t *testing.T, n int) bool {
	var p *rdmafake.Provider
	var woken atomic.Int64
	var fell atomic.Bool
	p = rdmafake.New(rdmafake.Config{Woken: func(int, int) {
		if woken.Add(1) == int64(n) {
			fell.Store(true)
			p.Pause()
		}
	}})
	s := pairs{newPair(t, p, "fake:new", "", target.Config{})}
	cfg := s.config(t)
	began := time.Now()
	_, err := PrepareMember(context.Background(), cfg, uuid.UUID{0xee}, regionSize, true)
	require.Less(t, time.Since(began), time.Hour)
	if !fell.Load() {
		require.NoError(t, err)
	}
	p.Resume()
	return fell.Load()
}
