package remote

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/rdma/rdmafake"
)

// A member is let go, and its region is put back from a copy that was made in this life. The next life copies everything
// to it, although its bits name only what was written since it was let go (mirror §3.6).
func TestMemberIsRestoredWhileAway(t *testing.T) {
	for name, tt := range map[string]struct {
		older bool // the copy is older than the member's last session
		seen  bool // this life asks its target before it ends
	}{
		"this life is told":                        {seen: true},
		"an older copy, and this life is told":     {older: true, seen: true},
		"an older copy, and only the next is told": {older: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, 2, 1, rdmafake.Config{})
				cfg := s.config(t)
				cfg.LegTimeout = time.Second
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				c := backendtest.NewClient(t, d)
				old := bytes.Clone(s[0].region.Data())
				if tt.older {
					s.network(0).Down()
					s.up(0)
				}
				require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
				s.letsGo(t, c, 0)
				copy(s[0].region.Data(), old)
				if tt.older {
					require.NoError(t, s[0].region.Update(func(sb *region.Superblock) error { sb.Epoch--; return nil }))
				} else {
					d.legs[0].mark.Add(1) // the copy's mark is lower by one
				}
				if tt.seen {
					s.up(0)
					time.Sleep(ages)
				}
				require.False(t, s.record(1).F.Has(0))
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
				s.up(0)
				d = s.dial(t, 1)
				s.inSync(t, d)
				require.NoError(t, d.Close())
				require.True(t, bytes.Equal(s[0].region.Data(), s[1].region.Data()))
			})
		})
	}
}

// The copy is of the life before this one, in which the member was in sync. The target refuses the RESUME of this life as
// that of another owner, and all of F name the member's last session.
func TestMemberIsRestoredFromTheLifeBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 2, 1, rdmafake.Config{})
		cfg := s.config(t)
		cfg.LegTimeout = time.Second
		old := bytes.Clone(s[0].region.Data())
		d, c := s.dialWritten(t, cfg)
		was := s[0].region.Superblock()
		s.network(0).Down()
		require.NoError(t, c.Do(c.Write(stripe, backendtest.Pattern(4*stripe, 2), 0), c.Flush()))
		require.NoError(t, d.Close())

		cfg = s.config(t)
		cfg.LegTimeout, cfg.ResyncRate = time.Second, 1
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		s.up(0)
		time.Sleep(time.Minute) // it is copied to, and slowly
		s.network(0).Down()
		require.False(t, s.record(1).F.Has(0))
		copy(s[0].region.Data(), old)
		require.NoError(t, s[0].region.Update(func(sb *region.Superblock) error { sb.Epoch, sb.Owner = was.Epoch, was.Owner; return nil }))
		s.up(0)
		time.Sleep(ages)
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())

		d = s.dial(t, 1)
		s.inSync(t, d)
		require.NoError(t, d.Close())
		require.True(t, bytes.Equal(s[0].region.Data(), s[1].region.Data()))
	})
}

// A life that goes on after a kill is told, too. It has met no session of the member.
func TestMemberIsRestoredBehindAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMirrorHostOf(t, 3, 2)
		h.cfg.Lanes, h.cfg.LegTimeout = 2, time.Second
		d, c := h.run()
		old := bytes.Clone(h.pairs[2].region.Data())
		h.write(c, 0, block)
		require.NoError(t, c.Do(c.Flush()))
		h.network(2).Down()
		h.write(c, 2*stripe, block)
		require.NoError(t, c.Do(c.Flush()))
		require.Equal(t, persist.Members(3), h.record(0).F)
		h.write(c, stripe, block)
		h.kill(d)
		copy(h.pairs[2].region.Data(), old)
		h.change(func(hd *header) { hd.Sessions[2].Mark++ }) // the copy's mark is lower by one, and its epoch the same
		h.up(2)
		release := h.pairs[0].sync.blockData() // the replay of what lane 1 carries, and no record
		defer release()
		time.AfterFunc(time.Minute, release)
		d, c = h.run()
		h.readsAll(c)
		h.comesBack(d)
		require.NoError(t, d.Close())
	})
}

// The copy is of the life before this one, and the member is in sync still: it was away for a moment, or the mirror cannot
// do without it. Its target says that somebody else owns it, and nobody does.
func TestMemberInSyncIsRestoredFromTheLifeBefore(t *testing.T) {
	for name, minCopies := range map[string]uint8{"the mirror does without it": 1, "the mirror needs it": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, 2, minCopies, rdmafake.Config{})
				d, _ := s.dialWritten(t, s.config(t))
				require.NoError(t, d.Close())
				old, was := bytes.Clone(s[0].region.Data()), s[0].region.Superblock()
				d, err := Dial(t.Context(), s.config(t))
				require.NoError(t, err)
				c := backendtest.NewClient(t, d)
				require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
				s.network(0).Down()
				copy(s[0].region.Data(), old)
				require.NoError(t, s[0].region.Update(func(sb *region.Superblock) error { sb.Epoch, sb.Owner = was.Epoch, was.Owner; return nil }))
				synctest.Wait()
				d.legs[0].life++ // the copy's is lower by one
				s.up(0)
				time.Sleep(ages)
				require.NoError(t, d.core.failed())
				r := c.Read(0, block, 0)
				require.NoError(t, c.Do(r))
				require.Equal(t, backendtest.Pattern(block, 2), r.Got)
				if minCopies == 2 {
					d.inVain()
					return
				}
				require.NoError(t, c.Do(c.Write(stripe, backendtest.Pattern(block, 3), 0), c.Flush()))
				require.Equal(t, persist.Members(2), s.record(1).F)
				require.NoError(t, d.Close())
				d = s.dial(t, 1)
				s.inSync(t, d)
				require.NoError(t, d.Close())
				require.True(t, bytes.Equal(s[0].region.Data(), s[1].region.Data()))
			})
		})
	}
}

// No other member has what the mirror had: the device fails, and lets nobody wait.
func TestLastMemberInSyncIsRestoredFromTheLifeBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 2, 1, rdmafake.Config{})
		cfg := s.config(t)
		cfg.LegTimeout = time.Second
		d, _ := s.dialWritten(t, cfg)
		require.NoError(t, d.Close())
		old, was := bytes.Clone(s[0].region.Data()), s[0].region.Superblock()
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		s.letsGo(t, c, 1)
		require.Equal(t, persist.Members(1), s.record(0).F)
		s.network(0).Down()
		copy(s[0].region.Data(), old)
		require.NoError(t, s[0].region.Update(func(sb *region.Superblock) error { sb.Epoch, sb.Owner = was.Epoch, was.Owner; return nil }))
		synctest.Wait()
		d.legs[0].life++ // the copy's is lower by one
		s.up(0)
		r := c.Read(0, block, 0)
		c.Submit(r)
		time.Sleep(ages)
		require.ErrorIs(t, d.core.failed(), mirror.ErrNoneEqual)
		require.True(t, r.Completed())
		require.Error(t, r.Err)
		require.Error(t, d.Close())
	})
}
