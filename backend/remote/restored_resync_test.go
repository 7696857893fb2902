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
		s.network(0).Down()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(4*stripe, 2), 0), c.Flush()))
		old, epoch := bytes.Clone(s[0].region.Data()), s[0].region.Superblock().Epoch
		lacked := s[1].region.BitsSet(0)
		s.up(0)
		time.Sleep(30 * time.Second) // about half is copied, and settled
		require.NoError(t, c.Do(c.Write(regionSize-block, backendtest.Pattern(block, 3), 0), c.Flush()))
		s.network(0).Down()
		time.Sleep(10 * time.Second)
		require.False(t, s.record(1).F.Has(0))
		require.Less(t, s[1].region.BitsSet(0), lacked)
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
