package remote

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// A life that was killed in a change finishes it, however far the arbiter and the members had it. If
// another life is at the arbiter by then, or comes after this one has asked, this one has ended (mirror §4.5,
// §4.8).
func TestArbiterAndAKill(t *testing.T) {
	for name, c := range map[string]struct {
		lost, mute bool
		another    bool // another life has begun
		late       bool // after this one has asked the arbiter
	}{
		"the arbiter does not have it":                               {lost: true},
		"the arbiter has it, and no member":                          {mute: true},
		"another life has begun":                                     {mute: true, another: true},
		"the arbiter has it, and another life begins late":           {mute: true, another: true, late: true},
		"the arbiter does not have it, and another life begins late": {lost: true, another: true, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			h, a := newMirrorHost(t, 2), newFakeArbiter()
			h.cfg.Arbiter, h.cfg.LegTimeout = a, 1
			d, client := h.run()
			h.write(client, 0, block)
			require.NoError(t, client.Do(client.Flush()))
			before := a.holds()
			a.mu.Lock()
			if a.lost = c.lost; c.mute {
				a.mute = errUnreachable
			}
			swaps := a.swaps
			a.mu.Unlock()
			h.network(1).Down()
			require.Eventually(t, func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.swaps > swaps
			}, patience, tick)
			h.write(client, stripe, block)
			h.kill(d)
			left := h.left().Mirror
			require.True(t, left.Pending)
			require.Equal(t, persist.Members(1), left.Record.F)
			require.Equal(t, persist.Members(3), h.record(0).F, "no member has it before the arbiter")
			require.Equal(t, c.mute, a.holds() != before)
			a.mu.Lock()
			a.lost, a.mute = false, nil
			a.mu.Unlock()
			if c.another {
				var other persist.Record
				if c.late {
					a.beforeSwap(func(*persist.Record) {
						if other == (persist.Record{}) {
							other = a.another()
						}
					})
				} else {
					other = a.another()
				}
				h.refused("another life of the mirror has begun")
				require.Equal(t, other, a.holds())
				require.Equal(t, persist.Members(3), h.record(0).F)
				h.network(1).Up()
				return
			}
			d, client = h.run()
			h.readsAll(client)
			require.Contains(t, h.record(0).Lineage, left.Record.Ancestor)
			require.Equal(t, h.record(0).Ancestor, a.holds().Ancestor)
			h.network(1).Up()
			h.comesBack(d)
			require.NoError(t, d.Close())

			h.cfg.Arbiter = nil
			_, err := Dial(context.Background(), h.cfg)
			require.ErrorContains(t, err, "--arbiter")
		})
	}
}

// A killed life that had an arbiter does not go on without it.
func TestKilledWithAnArbiter(t *testing.T) {
	h, a := newMirrorHost(t, 2), newFakeArbiter()
	h.cfg.Arbiter = a
	d, c := h.run()
	h.paused(func() {
		h.write(c, 0, block)
		h.kill(d)
	})
	h.cfg.Arbiter = nil
	_, err := Dial(context.Background(), h.cfg)
	require.ErrorAs(t, err, new(*MirrorError))
	require.ErrorContains(t, err, "--arbiter")
	h.cfg.Arbiter = a
	d, c = h.run()
	h.readsAll(c)
	require.NoError(t, d.Close())
}
