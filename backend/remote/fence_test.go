package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// Of three members two can begin another life. While two are silent, READs wait that the third could
// answer: it would show what the other life has replaced (mirror §4.7).
func TestReadsAreFenced(t *testing.T) { synctest.Test(t, testReadsAreFenced) }

func testReadsAreFenced(t *testing.T) {
	var s pairs
	for range 3 {
		s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second}))
	}
	s.join(t, 2)
	d, err := Dial(context.Background(), s.config(t))
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	for range 3 { // heartbeats keep READs going
		time.Sleep(time.Minute)
		require.NoError(t, c.Do(c.Read(0, block, 0)))
	}
	s.network(1).Down()
	time.Sleep(time.Minute)
	require.NoError(t, c.Do(c.Read(0, block, 0)), "two of three are there")
	s.network(2).Freeze()
	time.Sleep(7 * time.Second) // less than the lease
	read := c.Read(0, block, 0)
	c.Submit(read)
	synctest.Wait()
	require.False(t, read.Completed())
	s.network(2).Thaw()
	require.NoError(t, c.Wait(read))
	s.network(1).Up()
	require.NoError(t, c.Do(c.Flush()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// Data that come when the fence has closed are no answer, also if nobody has looked at the clock since:
// the process may have been stopped. The session is taken up anew, and its target would say if it were
// somebody else's.
func TestReadIsFencedWhenItsDataCome(t *testing.T) { synctest.Test(t, testReadIsFencedWhenItsDataCome) }

func testReadIsFencedWhenItsDataCome(t *testing.T) {
	a := newArbitrated(t)
	d, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	recoveries := d.Snapshot().Recoveries
	d.core.copies.fence.until.Store(0)
	read := c.Read(0, block, 0)
	require.NoError(t, c.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	time.Sleep(time.Second)
	require.Greater(t, d.Snapshot().Recoveries, recoveries)
	require.NoError(t, d.Close())
}
