package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma/iwarp"
)

// The Read by which apm makes Writes durable names what was written, and no place that the medium may have lost. So a
// region that has lost all other blocks still flushes, whether the target knows of them or not.
func TestAPMReadsAroundBadPlaces(t *testing.T) {
	lost := []persist.Range{{Off: 0, Len: 8 * block}, {Off: 9 * block, Len: regionSize - 9*block}}
	for name, known := range map[string]bool{"known": true, "not known": false} {
		t.Run(name, func(t *testing.T) {
			m := regiontest.EADR
			if known {
				m.Bad = func() []persist.Range { return lost }
			}
			p := newPairOn(t, iwarp.New(iwarp.Config{}), "127.0.0.1:0", inMemory(t), target.Config{}, m)
			p.lose(t, lost...)
			cfg := p.config(t)
			cfg.LossTimeout = 0
			d, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			require.Equal(t, "apm", d.Snapshot().Method)
			c := backendtest.NewClient(t, d)
			for i, n := range []int{block, 1, 100} {
				require.NoError(t, c.Do(c.Write(9*block-uint64(n), backendtest.Pattern(n, uint32(i)), 0), c.Flush()))
			}
			require.Zero(t, p.targetBarriers(), "none is the target's")
			require.Zero(t, d.Snapshot().Recoveries)
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
			require.NoError(t, p.region.Failed())
		})
	}
}
