package remote

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A disk that hangs at the target, while heartbeats go on, interrupts the session: status
// says so, and --loss-timeout counts. When the disk answers the session goes on.
func TestBarrierHangsAtTheTarget(t *testing.T) {
	p := newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 5 * time.Millisecond, Lease: 100 * time.Millisecond})
	d := p.dialPatient(t, 2)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	for try := uint32(0); ; try++ {
		release := p.sync.block()
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, try), 0), flush)
		<-p.sync.began
		require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
		cause := d.Snapshot().Cause
		require.False(t, flush.Completed())
		release()
		require.NoError(t, c.Wait(flush))
		require.Equal(t, backendtest.Pattern(block, try), p.region.Data()[:block])
		if strings.Contains(cause, "the target is at barrier") {
			break
		}
		require.Contains(t, cause, "has said nothing", "this machine was slower than the lease")
		require.Less(t, try, uint32(10))
	}
	require.NoError(t, d.Close())
}

// What moves is waited for, such as the flush that settles doubt; what does not is found.
func TestStall(t *testing.T) {
	const patience = 10
	d := &Device{lanes: []*lane{{index: 0}, {index: 1}}}
	current := func(seq uint64, remaining int) { d.barriers.current = &barrier{seq: seq, remaining: remaining} }
	for _, tt := range []struct {
		name string
		step func(i uint64)
		says string // what is found; nothing if empty
		lane int
	}{
		{name: "nothing is waited for", step: func(uint64) { d.barriers.current = nil }},
		{name: "barriers come and go", step: func(i uint64) { current(i+1, 1) }},
		{name: "lanes answer", step: func(i uint64) { current(1, int(i)+1) }},
		{name: "doubt is settled", step: func(i uint64) { current(1, 1); d.beatBarrier.Store(1); d.beatDoubt.Store(1000 - i) }},
		{name: "data goes out ahead of it", step: func(i uint64) { current(1, 1); d.lanes[1].moved++ }},
		{name: "the target hangs", step: func(uint64) { current(1, 1); d.beatBarrier.Store(1) }, says: "the target is at barrier 1"},
		{name: "the target never got it", step: func(uint64) { current(2, 1); d.beatBarrier.Store(0) }, says: "knows nothing of it"},
		{name: "it got another only", step: func(uint64) { current(2, 1); d.beatBarrier.Store(1) }, says: "knows nothing of it"},
		{name: "a lane is dead", step: func(uint64) {
			d.lanes[0].moved++
			if d.lanes[1].signaled.empty() {
				d.lanes[1].signaled.push(1)
			}
		}, says: "lane 1 has carried nothing", lane: 1},
		{name: "sessions come and go", step: func(uint64) {
			d.generation.Add(1)
			if d.lanes[1].signaled.empty() {
				d.lanes[1].signaled.push(1)
			}
		}},
		{name: "a lane is slow", step: func(uint64) {
			d.lanes[1].moved++
			if d.lanes[1].signaled.empty() {
				d.lanes[1].signaled.push(1)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.barriers.current = nil
			d.beatBarrier.Store(0)
			d.beatDoubt.Store(0)
			for _, l := range d.lanes {
				l.moved = 0
				l.signaled.clear()
			}
			var s stall
			for i := range uint64(patience + 1) {
				tt.step(i)
				_, err := s.find(d, int64(i), patience)
				require.NoError(t, err)
			}
			tt.step(patience + 1)
			l, err := s.find(d, patience+1, patience)
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, rdma.ErrLost)
			require.ErrorIs(t, err, rdma.ErrTimeout)
			require.ErrorContains(t, err, tt.says)
			require.Equal(t, d.lanes[tt.lane], l)
		})
	}
}
