package remote

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A lane's mutex fixes the place of an op, and what is decided about the op is decided under
// it. Submit asks the client whether it has hung up as soon as it has the mutex. The tests
// below take this question as their seam: whatever they change there, another goroutine could
// have changed just before Submit came to the mutex.

// An asked client is one whose answer the test gives.
type asked struct {
	*backendtest.Client
	gone func() bool
}

func (a asked) Gone() bool { return a.gone() }

// held reports whether anybody holds a mutex.
func held(mu *sync.Mutex) bool {
	if mu.TryLock() {
		mu.Unlock()
		return false
	}
	return true
}

// otherLocked enqueues a write as another connection's goroutine would.
func (l *lane) otherLocked(c *backendtest.Client, off uint64) {
	w := c.Write(off, backendtest.Pattern(block, 9), 0)
	l.writeLocked(off, w.Data[0].ArenaOff(), block)
	w.Unpin() // the window has its own pin and reference
	w.Data[0].Chunk.Release()
}

// The numbers of a lane ascend in its order, or a window could not be adopted.
func TestNumberIsDrawnUnderTheMutex(t *testing.T) {
	d := fake(t, rdmafake.Config{}).dial(t)
	c := backendtest.NewClient(t, d)
	l := d.legs[0].lanes[0]
	w := c.Write(0, backendtest.Pattern(block, 1), 0)
	w.Sink = asked{c, func() bool {
		require.True(t, held(&l.mu))
		l.otherLocked(c, 0)
		return false
	}}
	require.NoError(t, c.Do(w))
	require.EqualValues(t, 2, l.ring.Head())
	require.Less(t, l.ring.At(0).Number, l.ring.At(1).Number)
	require.NoError(t, d.Close())
}

// A barrier names all that it covers, also what arrived while it waited for the mutex. The test
// holds the lane's mutex, and enqueues another write once the group commit has taken its own,
// which it does just before it comes to the lane's. Several rounds make sure that it was there
// in one of them.
func TestRangesAreCollectedUnderTheMutex(t *testing.T) {
	var lines log
	p := newPairOn(t, rdmafake.New(rdmafake.Config{}), "", inMemory(t), target.Config{}, regiontest.Medium{PMem: region.DomainMemory, Data: lines.written})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	l := d.legs[0].lanes[0]
	for round := range uint64(4) {
		ahead, late := 8*round*block, (8*round+4)*block
		require.NoError(t, c.Do(c.Write(ahead, backendtest.Pattern(block, 1), 0)))
		flush := c.Flush()
		through := make(chan struct{})
		l.mu.Lock()
		go func() {
			defer close(through)
			c.Submit(flush)
		}()
		require.Eventually(t, func() bool { return held(&d.core.commit.mu) }, patience, tick)
		l.otherLocked(c, late)
		l.mu.Unlock()
		<-through
		require.NoError(t, c.Wait(flush))
		named := lines.take()
		require.Contains(t, named, persist.Range{Off: ahead, Len: block})
		if !dirty(l.ring) {
			require.Contains(t, named, persist.Range{Off: late, Len: block}, "it counts as covered")
		}
		require.NoError(t, c.Do(c.Flush()))
		lines.take()
	}
	require.NoError(t, d.Close())
}

// A client that hung up before its op's place was fixed may have sent the op again elsewhere,
// where it was ahead. So Submit asks anew on every lane.
func TestHangUpIsAskedUnderTheMutex(t *testing.T) {
	for name, tt := range map[string]struct {
		off   uint64
		lanes []int // on which the client is asked; on the last it has hung up
	}{
		"the only lane of an op": {stripe, []int{1}},
		"the second":             {stripe - block/2, []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := fake(t, rdmafake.Config{})
			d := p.dialLanes(t, 2)
			c := backendtest.NewClient(t, d)
			w := c.Write(tt.off, backendtest.Pattern(block, 1), 0)
			questions := 0
			w.Sink = asked{c, func() bool {
				require.Less(t, questions, len(tt.lanes))
				require.True(t, held(&d.legs[0].lanes[tt.lanes[questions]].mu))
				questions++
				return questions == len(tt.lanes)
			}}
			require.ErrorIs(t, c.Do(w), backend.ErrGone)
			require.Zero(t, d.legs[0].lanes[1].ring.Head())
			require.NoError(t, d.Close())
			require.Equal(t, make([]byte, block/2), p.region.Data()[stripe:][:block/2])
		})
	}
}

// What a connection completes after it was settled does not count: by then the next
// one may have been asked again for the same.
func TestNothingCountsAfterTheEnd(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	op := &backend.Op{Cmd: backend.Read, Sink: ignore{}}
	op.Parts.Store(1)
	l := newLane(d.legs[0], newStream(d.core, 0))
	l.conn, l.reads = lateConn{}, []readPart{{op: op}}
	l.signaled.push(position{requests: 1})
	l.settle()
	_, _, err := l.handle(&poller{})
	require.ErrorIs(t, err, rdma.ErrClosed)
	require.NotNil(t, l.reads[0].op, "it waits for the next connection")
	require.NoError(t, d.Close())
}

// A lateConn has ended, and has a completion even so: of READ part 0.
type lateConn struct{ rdma.Conn }

func (lateConn) Poll(cs []rdma.Completion) (int, error) {
	cs[0] = rdma.Completion{ID: tagRead, Op: rdma.OpRead}
	return 1, nil
}

// A failure is known to all before it frees anything: it waits for the op that holds a stream's mutex,
// which may not have seen it.
func TestEndWaitsForOpsThatAreEnqueued(t *testing.T) {
	d := fake(t, rdmafake.Config{}).dial(t)
	c := backendtest.NewClient(t, d)
	noted := make(chan struct{})
	w := c.Write(0, backendtest.Pattern(block, 1), 0)
	w.Sink = asked{c, func() bool {
		go d.core.end(errors.New("a failure"), func(transition) { close(noted) })
		require.Eventually(t, func() bool { return d.core.failed() != nil }, patience, tick)
		for range 1000 {
			runtime.Gosched()
			require.True(t, held(&d.core.commit.mu), "it waits")
		}
		select {
		case <-noted:
			require.Fail(t, "somebody heard of it")
		default:
		}
		return false
	}}
	require.ErrorIs(t, c.Do(w), backend.ErrFailed)
	<-noted
	require.Error(t, d.Close())
}
