package remote

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A barrier runs on exactly the lanes that carried a write since their last one
// (design §3.2): the target counts one for each.
func TestBarrierOnTheDirtyLanes(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialLanes(t, 4)
	c := backendtest.NewClient(t, d)
	on := func(lane int) *backendtest.Request {
		return c.Write(uint64(lane)*stripe, backendtest.Pattern(block, uint32(lane)), 0)
	}
	for _, tt := range []struct {
		name  string
		lanes []int
	}{
		{"one", []int{2}}, {"two", []int{0, 3}}, {"all", []int{0, 1, 2, 3}}, {"one again", []int{1}}, {"none", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, device := p.targetBarriers(), d.Barriers()
			for _, lane := range tt.lanes {
				require.NoError(t, c.Do(on(lane)))
			}
			require.NoError(t, c.Do(c.Flush()))
			require.EqualValues(t, len(tt.lanes), p.targetBarriers()-before)
			require.EqualValues(t, min(1, len(tt.lanes)), d.Barriers()-device, "it is one barrier all the same")
			for _, lane := range tt.lanes {
				require.Equal(t, backendtest.Pattern(block, uint32(lane)), p.region.Data()[lane*stripe:lane*stripe+block])
			}
		})
	}
	// A write across a stripe's end is on two lanes, and FUA waits for both.
	before := p.targetBarriers()
	fua := c.Write(stripe-100, backendtest.Pattern(200, 9), 0)
	fua.FUA = true
	require.NoError(t, c.Do(fua))
	require.EqualValues(t, 2, p.targetBarriers()-before)
	require.NoError(t, d.Close())
}

// A byte of the device always travels on the same lane.
func TestLaneOfAStripe(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialLanes(t, 3)
	c := backendtest.NewClient(t, d)
	for i := range regionSize / stripe {
		require.NoError(t, c.Do(c.Write(uint64(i)*stripe, backendtest.Pattern(1, 1), 0), c.Write(uint64(i+1)*stripe-1, backendtest.Pattern(1, 1), 0)))
		for lane, l := range d.legs[0].lanes {
			want := 2 * ((i+1)/3 + min(1, max(0, (i+1)%3-lane)))
			require.EqualValues(t, want, l.ring.Head(), "stripe %d, lane %d", i, lane)
		}
	}
	require.NoError(t, d.Close())
}

// A barrier completes when all its lanes have: one that is held back keeps the
// FLUSH, also when the others have answered.
func TestBarrierWaitsForAllLanes(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialLanes(t, 2)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Write(stripe, backendtest.Pattern(block, 2), 0)))
	held := d.legs[0].lanes[1]
	held.mu.Lock()
	held.posting = true // nobody else posts on it
	held.mu.Unlock()
	flush := c.Flush()
	c.Submit(flush)
	require.Eventually(t, func() bool {
		d.core.commit.mu.Lock()
		defer d.core.commit.mu.Unlock()
		b := d.core.commit.current
		return b == nil || b.shares[0].owes == 0
	}, patience, tick, "lane 0 has answered")
	require.False(t, flush.Completed())
	require.True(t, dirty(d.legs[0].lanes[0].ring), "no mark moves before all lanes have answered")
	held.mu.Lock()
	held.posting = false
	held.mu.Unlock()
	held.post()
	require.NoError(t, c.Wait(flush))
	require.NoError(t, d.Close())
}

// One lane that is lost is a session that is lost.
func TestOneLaneLost(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialLanes(t, 3)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	d.legs[0].lanes[2].abort(rdma.ErrLost)
	// Until the keeper hears of it, a FLUSH of what is on lane 0 may still succeed.
	require.Eventually(t, func() bool { return d.Snapshot().State == StateFailed }, patience, tick)
	requireFailed(t, c)
	require.Error(t, d.Close())
}

// A grant to a new run ends all lanes of the old one.
func TestGrantEndsAllLanes(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	old := p.dialLanes(t, 4)
	cfg := p.config(t)
	cfg.StateDir = t.TempDir()
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	for _, l := range old.legs[0].lanes {
		<-l.done
	}
	require.Error(t, old.Close())
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, d.Close())
	require.True(t, p.region.Superblock().Clean)
}

func TestTooManyLanes(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	cfg := p.config(t)
	cfg.Lanes = MaxLanes + 1
	_, err := Dial(context.Background(), cfg)
	require.ErrorContains(t, err, "17 lanes")
}
