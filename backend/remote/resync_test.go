package remote

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// inSync waits until all members have everything, and compares them.
func (s pairs) inSync(t testing.TB, d *Device) {
	t.Helper()
	all := persist.Members(1<<len(s) - 1)
	require.Eventually(t, func() bool {
		c := &d.core.commit
		c.mu.Lock()
		defer c.mu.Unlock()
		return d.core.copies.view.Flushes() && d.core.copies.view.Active == all && d.core.copies.view.Equal == all
	}, patience, tick)
	require.NoError(t, d.Sync(t.Context()))
	for i, p := range s {
		require.Equal(t, all, s.record(i).F)
		require.False(t, s.record(i).Torn)
		require.True(t, bytes.Equal(s[0].region.Data(), p.region.Data()), "member %d differs", i)
		for j := range s {
			require.Zero(t, p.region.BitsSet(j), "bits of %d at %d", j, i)
		}
	}
}

// A leg that was let go gets what it lacks when it comes back, and is in F again (mirror §5).
func TestResync(t *testing.T) {
	for _, lost := range []int{0, 1} {
		t.Run(persist.Member(lost).String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testResync(t, lost) })
		})
	}
}

func testResync(t *testing.T, lost int) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 2)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.network(lost).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Write(2*stripe+100, backendtest.Pattern(3*block, 3), 0), c.Write(5*stripe, backendtest.Pattern(block, 4), 0), c.Flush()))
	require.NoError(t, c.Do(c.Zero(5*stripe, block/2), c.Flush()))
	require.EqualValues(t, 3, s[1-lost].region.BitsSet(lost))
	s.network(lost).Up()
	s.inSync(t, d)
	require.NoError(t, c.Do(c.Write(stripe, backendtest.Pattern(block, 5), 0), c.Flush()))
	s.network(1 - lost).Down()
	read := c.Read(2*stripe+100, block, 0)
	require.NoError(t, c.Do(read), "it comes from the leg that was resynchronized")
	require.Equal(t, backendtest.Pattern(3*block, 3)[:block], read.Got)
	s.network(1 - lost).Up()
	time.Sleep(time.Minute)
	s.inSync(t, d)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}
