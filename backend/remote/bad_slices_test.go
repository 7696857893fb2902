package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// A slice of a replay has all that a WRITE writes to a block, or nothing: a session that is lost behind the slice must
// not leave half of what makes a bad block good.
func TestSlicesDivideNoBlock(t *testing.T) {
	const cut = firstSlice - 100
	for name, c := range map[string]struct {
		writes []uint64 // where; each is cut in two pieces
		queued uint64
	}{
		"inside a block":        {[]uint64{0}, 2},
		"at the end of one":     {[]uint64{100}, 1},
		"and behind it another": {[]uint64{512, 1 << 19}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			network := rdmafake.New(rdmafake.Config{})
			p := newPair(t, network, "", "", target.Config{})
			cfg := p.config(t)
			cfg.LossTimeout = 0
			d, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			client := backendtest.NewClient(t, d)
			network.Down()
			require.Eventually(t, func() bool { return !d.legs[0].up.Load() }, patience, tick)
			for _, off := range c.writes {
				require.NoError(t, client.Do(client.Write(off, backendtest.Pattern(2*cut, 1), cut)))
			}
			l := d.legs[0].lanes[0]
			l.mu.Lock() // it is not connected, and starts from the beginning when it is
			l.behind, l.queued, l.slice = true, l.ring.Covered(), cut
			l.advanceLocked()
			queued := l.queued
			l.mu.Unlock()
			require.Equal(t, c.queued, queued)
			network.Up()
			require.NoError(t, client.Do(client.Flush()))
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
		})
	}
}
