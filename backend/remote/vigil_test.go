package remote

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// newTwin makes a host of which another one has the state directory, too.
func newTwin(t *testing.T, mirror bool, cfg target.Config) *host {
	s := pairs{newPair(t, rdmafake.New(rdmafake.Config{}), "", "", cfg)}
	c := s[0].config(t)
	if mirror {
		s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "", "", cfg))
		s.join(t, 1)
		c = s.config(t)
	}
	c.WindowDir, c.LocalClients, c.LossTimeout = inMemory(t), true, 0
	return &host{&farm{t: t, region: s[0].region}, c}
}

// elsewhere makes h the host with the copy. No window of the other one is there.
func (h *host) elsewhere() {
	h.t.Helper()
	copied := inMemory(h.t)
	require.NoError(h.t, os.CopyFS(copied, os.DirFS(h.cfg.StateDir)))
	require.NoError(h.t, os.Chmod(copied, 0o700))
	h.cfg.StateDir, h.cfg.WindowDir = copied, inMemory(h.t)
	h.boot()
}

// What a start does whose state directory another host has, too.
func TestOwnIDElsewhere(t *testing.T) {
	for _, mirror := range []bool{false, true} {
		for _, tt := range []struct {
			name   string
			change func(*host)
			taken  bool
		}{
			{"a living owner keeps the region", func(*host) {}, false},
			{"also if a loss is accepted", func(h *host) { h.cfg.AcceptLoss, h.cfg.LocalClients = true, false }, false},
			{"--takeover takes it", func(h *host) { h.cfg.Takeover = true }, true},
		} {
			t.Run(pick(mirror, "region: ", "mirror: ")+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newTwin(t, mirror, target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second})
					old, c := h.run()
					require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
					h.elsewhere()
					tt.change(h)
					d, err := Dial(context.Background(), h.cfg)
					if tt.taken {
						require.NoError(t, err)
						require.NoError(t, d.Close())
						require.Error(t, c.Do(c.Flush()))
						require.Error(t, old.Close())
						return
					}
					var refused *RefusedError
					require.ErrorAs(t, err, &refused)
					require.True(t, refused.Held())
					require.ErrorContains(t, err, "was the state directory copied")
					require.NoError(t, c.Do(c.Flush()))
					require.NoError(t, old.Close())
				})
			})
		}
	}
}

// A host that was booted begins once the lease of its own last run is over.
func TestOwnIDWaitsForItsLease(t *testing.T) {
	for name, mirror := range map[string]bool{"region": false, "mirror": true} {
		t.Run(name, func(t *testing.T) {
			h := newTwin(t, mirror, target.Config{Heartbeat: 100 * time.Millisecond, Lease: 400 * time.Millisecond})
			d, c := h.run()
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			h.kill(d)
			h.elsewhere()
			d, _ = h.run()
			require.NoError(t, d.Close())
		})
	}
}

// A vigil tells a lease that begins again from one that runs out.
func TestVigil(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every time.Duration
		left  []uint32
		lives bool
	}{
		{"a lease that runs out", time.Second, []uint32{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, false},
		{"a target that starts meanwhile", time.Second, []uint32{3, 2, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, false},
		{"heartbeats", time.Second, []uint32{10, 9, 10, 9, 10, 9, 10}, true},
		{"heartbeats that come more often", time.Second, []uint32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, true},
		{"a target that was away", time.Minute, []uint32{10, 10}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var v vigil
				lives := false
				for _, left := range tt.left {
					lives = v.hear(left)
					time.Sleep(tt.every)
				}
				require.Equal(t, tt.lives, lives)
			})
		})
	}
}
