package remote

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/rdma/rdmafake"
)

// A resync that is cut off has cleared bits. A copy of the member from before it lacks what those stood for, and the next
// life copies everything to it (mirror §3.6).
func TestMemberIsRestoredFromBeforeAResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 2, 1, rdmafake.Config{})
		cfg := s.config(t)
		cfg.LegTimeout, cfg.ResyncRate = time.Second, 64<<10
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		defer d.inVain()
		c := backendtest.NewClient(t, d)
		old, epoch := s.halfCopies(t, d, c, 0)
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())

		s.putBack(t, 0, old, epoch)
		s.up(0)
		d2 := s.dial(t, 1)
		defer d2.inVain()
		s.inSync(t, d2)
		require.NoError(t, d2.Close())
		require.True(t, bytes.Equal(s[0].region.Data(), s[1].region.Data()))
	})
}

// The next life begins without the member, and by a record that does not name its last session: the arbiter's, or that of
// a member that was half copied before. It takes the name from the members in F (mirror §3.6).
func TestNamedSessionsOutliveALife(t *testing.T) {
	t.Run("with an arbiter", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newArbitrated(t)
			a.cfg.ResyncRate = 64 << 10
			d, c := a.dial(t)
			defer d.inVain()
			old, epoch := a.halfCopies(t, d, c, 0)
			require.Less(t, a.holds().Members[0].Epoch, a.record(1).Members[0].Epoch)
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
			a.putBack(t, 0, old, epoch)
			a.cfg.ResyncRate = 0
			d, c = a.dial(t)
			defer d.inVain()
			require.NoError(t, c.Do(c.Flush()))
			a.up(0)
			a.inSync(t, d)
			require.NoError(t, d.Close())
		})
	})
	t.Run("behind a member that is half copied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := fakesOf(t, 3, 1, rdmafake.Config{})
			cfg := s.config(t)
			cfg.LegTimeout, cfg.ResyncRate = time.Second, 64<<10
			d, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			defer d.inVain()
			c := backendtest.NewClient(t, d)
			s.network(0).Down()
			s.network(1).Down()
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			time.Sleep(5 * time.Second)
			s.up(0) // it is copied to, and has the record of this generation
			time.Sleep(time.Second)
			s.network(0).Down()
			time.Sleep(5 * time.Second)
			old, epoch := s.halfCopies(t, d, c, 1)
			require.Equal(t, s.record(2).Generation, s.record(0).Generation)
			require.Less(t, s.record(0).Members[1].Epoch, s.record(2).Members[1].Epoch)
			require.NoError(t, d.Close())
			s.putBack(t, 1, old, epoch)
			s.up(0)
			d, err = Dial(t.Context(), s.config(t))
			require.NoError(t, err)
			defer d.inVain()
			s.up(1)
			s.inSync(t, d)
			require.NoError(t, d.Close())
		})
	})
}

// halfCopies has member i of a mirror that copies slowly lose its session twice, and be half copied in between. It
// returns what it had at first, and the epoch of that.
func (s pairs) halfCopies(t *testing.T, d *Device, c *backendtest.Client, i int) (old []byte, epoch uint64) {
	last := len(s) - 1
	s.network(i).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(4*stripe, 2), 0), c.Flush()))
	old, epoch = bytes.Clone(s[i].region.Data()), s[i].region.Superblock().Epoch
	lacked := s[last].region.BitsSet(i)
	s.up(i)
	time.Sleep(30 * time.Second) // about half is copied, and settled
	require.NoError(t, c.Do(c.Write(regionSize-block, backendtest.Pattern(block, 3), 0), c.Flush()))
	s.network(i).Down()
	time.Sleep(10 * time.Second)
	require.False(t, s.record(last).F.Has(i))
	require.Less(t, s[last].region.BitsSet(i), lacked)
	return old, epoch
}

// The bits of a member that follows are cleared as it follows, and a copy from before it did so is one, too.
func TestFollowerIsRestoredFromBeforeItFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 1, rdmafake.Config{})
		d := s.dialAsync(t, 1, nil)
		defer d.inVain()
		c := backendtest.NewClient(t, d)
		s.follows(t, d, 1)
		s.network(1).Down()
		old, epoch := bytes.Clone(s[1].region.Data()), s[1].region.Superblock().Epoch
		s.up(1)
		s.follows(t, d, 1)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(4*stripe, 2), 0), c.Flush()))
		s.has(t, d, 1)
		require.Eventually(t, func() bool {
			require.NoError(t, c.Do(c.Write(regionSize-block, backendtest.Pattern(block, 3), 0), c.Flush()))
			return s[0].region.BitsSet(1) <= 1
		}, patience, 10*time.Millisecond, "bits are kept for what it has")
		s.network(1).Down()
		require.NoError(t, d.Close())

		s.putBack(t, 1, old, epoch)
		s.up(1)
		d2 := s.dialAsync(t, 1, nil)
		defer d2.inVain()
		s.follows(t, d2, 1)
		s.has(t, d2, 1)
		require.NoError(t, d2.Close())
	})
}

// putBack puts member i back from a copy that was made in epoch.
func (s pairs) putBack(t *testing.T, i int, data []byte, epoch uint64) {
	copy(s[i].region.Data(), data)
	require.NoError(t, s[i].region.Update(func(sb *region.Superblock) error { sb.Epoch = epoch; return nil }))
}
