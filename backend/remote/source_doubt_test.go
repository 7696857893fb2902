package remote

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma/rdmafake"
)

// A life begins behind one that had no end. Its clients read from the source what the life before had not flushed. Until
// the source's target has settled its doubt, a power failure there could take that back, so no FLUSH succeeds before
// (mirror §4.4). The life serves meanwhile: a target of persistent memory keeps a record without settling its doubt first.
func TestSourceInDoubt(t *testing.T) {
	for name, tt := range map[string]struct {
		legs   int  // if there is a B, the life before let it go, and it stays away
		writes bool // clients write before the FLUSH
	}{
		"nothing is dirty": {2, false},
		"the method of the session goes past the CPU": {1, true}, // no member is out, so no barrier sets bits
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cpu := make(chan struct{}, 1) // while it is full, A's target writes nothing back
				s := pairs{flushing(t, rdmafake.Config{}, func(_, _ uint64) { cpu <- struct{}{}; <-cpu })}
				for range tt.legs - 1 {
					s = append(s, flushing(t, rdmafake.Config{}, nil))
				}
				s.join(t, 1)
				cfg := s.config(t)
				cfg.LegTimeout, cfg.Takeover = 1, true // the lease has tests of its own
				d, c := s.dialWritten(t, cfg)
				if tt.legs > 1 {
					s.letsGo(t, c, 1)
				}
				read := func() {
					t.Helper()
					r := c.Read(0, block, 0)
					require.NoError(t, c.Do(r))
					require.Equal(t, backendtest.Pattern(block, 2), r.Got)
				}
				require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)))
				read() // it comes behind the write, so A has that
				s.die(t, d)
				require.False(t, s[0].region.Superblock().Doubt)

				cpu <- struct{}{}
				release := sync.OnceFunc(func() { <-cpu })
				t.Cleanup(release)
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				defer d.inVain()
				c = backendtest.NewClient(t, d)
				require.Equal(t, persist.Member(0), s.record(0).F)
				require.Equal(t, persist.MethodFlush, d.legs[0].method)
				require.NotZero(t, d.legs[0].granted.Flags&wire.OpenedDoubt)
				read()
				flush := c.Flush()
				if tt.writes {
					c.Submit(c.Write(stripe, backendtest.Pattern(block, 4), 0))
				}
				c.Submit(flush)
				time.Sleep(ages)
				require.True(t, s[0].region.Superblock().Doubt)
				require.False(t, flush.Completed(), "what was read is not durable")
				release()
				require.NoError(t, c.Wait(flush))
				require.False(t, s[0].region.Superblock().Doubt)
				require.False(t, d.Snapshot().Doubt)
				require.NoError(t, d.Close())
			})
		})
	}
}
