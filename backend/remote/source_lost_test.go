package remote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// beginsAfterABoot begins a life behind one that had no end, on a host that has booted. A is the source, and the first
// generation is pending while the last member is away. begun waits for the life.
func (h *mirrorHost) beginsAfterABoot() (begun func() (*Device, *backendtest.Client)) {
	h.cfg.LocalClients, h.cfg.Takeover, h.cfg.LegTimeout = true, true, ages // the lease has tests of its own
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(h.t, c.Do(c.Flush()))
	h.kill(d)
	h.loseWindow()
	h.boot()
	last := len(h.pairs) - 1
	cut := h.cutAt(last, isRecord)
	dialed := make(chan error, 1)
	go func() {
		var err error
		d, err = Dial(h.t.Context(), h.cfg)
		dialed <- err
	}()
	time.Sleep(time.Minute)
	require.Empty(h.t, dialed)
	require.True(h.t, cut.Load())
	require.Equal(h.t, h.all(), h.record(0).F)
	return func() (*Device, *backendtest.Client) {
		h.t.Helper()
		require.NoError(h.t, <-dialed)
		return d, backendtest.NewClient(h.t, d)
	}
}

// The source is lost while the first generation of a life is pending. The life goes on with another member that it began
// with: each of them has every flushed write, and nobody was served (mirror §4.4).
func TestSourceOfAPendingGenerationIsLost(t *testing.T) {
	lost := func(h *mirrorHost) { h.loseContents(h.t, 0) }
	for name, tt := range map[string]struct {
		legs   int
		min    uint8
		before func(h *mirrorHost)
		lose   func(h *mirrorHost)
		away   bool // it does not come back
		stays  bool // out of the mirror until the next life
	}{
		"its contents are lost":               {legs: 3, min: 2, lose: lost},
		"it is needed":                        {legs: 2, min: 2, lose: lost},
		"so are those of the next one before": {legs: 3, min: 3, lose: lost, before: func(h *mirrorHost) { h.network(1).Down(); h.loseContents(h.t, 1); h.up(1) }},
		"it was restored from a copy": {legs: 3, min: 2, stays: true, lose: func(h *mirrorHost) {
			h.loseContents(h.t, 0)
			require.NoError(h.t, h.pairs[0].region.Update(func(sb *region.Superblock) error { sb.Contents[0]--; sb.Epoch--; return nil }))
		}},
		"it does not come back": {legs: 3, min: 2, away: true, stays: true, lose: func(*mirrorHost) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newMirrorHostOf(t, tt.legs, tt.min)
				begun := h.beginsAfterABoot()
				if tt.before != nil {
					tt.before(h)
					time.Sleep(time.Minute)
				}
				h.network(0).Down()
				tt.lose(h)
				if !tt.away {
					h.up(0)
				}
				time.Sleep(2 * ages)
				life := h.record(0).Life
				h.up(tt.legs - 1)
				d, c := begun()
				require.Equal(t, life, h.record(1).Life, "it is another life")
				h.readsAll(c)
				if tt.stays {
					require.Equal(t, persist.Members(6), h.record(1).F)
					require.NoError(t, d.Close())
					h.up(0)
					d, c = h.run()
					h.readsAll(c)
				}
				h.comesBack(d)
				require.NoError(t, d.Close())
			})
		})
	}
}
