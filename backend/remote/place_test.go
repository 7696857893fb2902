package remote

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A lane's mutex fixes the place of an op. What is decided about it is decided there: the
// tests below hold the mutex, have another stand before it, and change what it must not
// have looked at yet.

// before holds l's mutex, has do come to it inside a function of that name, then calls
// change, and waits until do is through.
func (l *lane) before(t *testing.T, function string, do, change func()) {
	t.Helper()
	through := make(chan struct{})
	l.mu.Lock()
	go func() {
		defer close(through)
		do()
	}()
	require.Eventually(t, func() bool { return locking(function) }, patience, tick)
	change()
	l.mu.Unlock()
	<-through
}

// locking reports whether a goroutine waits for a mutex in a function.
func locking(function string) bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, s := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(s, "[sync.Mutex.Lock") && strings.Contains(s, function+"(") {
			return true
		}
	}
	return false
}

// other enqueues a write that another connection's goroutine would. l.mu is held.
func (l *lane) other(c *backendtest.Client, off uint64) {
	w := c.Write(off, backendtest.Pattern(block, 9), 0)
	l.write(off, w.Data[0].ArenaOff(), block)
	w.Data[0].Chunk.Release() // the window has its own
}

// The numbers of a lane ascend in its order, or a window could not be adopted.
func TestNumberIsDrawnUnderTheMutex(t *testing.T) {
	d := fake(t, rdmafake.Config{}).dial(t)
	c := backendtest.NewClient(t, d)
	l := d.lanes[0]
	w := c.Write(0, backendtest.Pattern(block, 1), 0)
	l.before(t, "(*submission).run", func() { c.Submit(w) }, func() { l.other(c, 0) })
	require.NoError(t, c.Wait(w))
	require.EqualValues(t, 2, l.ring.Head())
	require.Less(t, l.ring.At(0).Number, l.ring.At(1).Number)
	require.NoError(t, d.Close())
}

// What a barrier covers it names, also what came while it waited for the mutex.
func TestRangesAreCollectedUnderTheMutex(t *testing.T) {
	var lines log
	var r *region.Region
	p := newPairOn(t, rdmafake.New(rdmafake.Config{}), "", inMemory(t), target.Config{}, region.OpenOptions{
		PMem:  region.DomainMemory,
		Lines: func(b []byte) { lines.note(uint64(cap(r.Data())-cap(b)), uint32(len(b))) },
	})
	r = p.region
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	l := d.lanes[0]
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	flush := c.Flush()
	l.before(t, "(*Device).next", func() { c.Submit(flush) }, func() { l.other(c, 4*block) })
	require.NoError(t, c.Wait(flush))
	named := lines.take()
	require.Contains(t, named, persist.Range{Len: block})
	if !dirty(l.ring) {
		require.Contains(t, named, persist.Range{Off: 4 * block, Len: block}, "it counts as covered")
	}
	require.NoError(t, d.Close())
}

// A client that hung up before its op's place was fixed may have sent it again elsewhere,
// where it was ahead: on every lane it is asked anew.
func TestHangUpIsAskedUnderTheMutex(t *testing.T) {
	for name, off := range map[string]uint64{"the only lane of an op": stripe, "the second": stripe - block/2} {
		t.Run(name, func(t *testing.T) {
			p := fake(t, rdmafake.Config{})
			d := p.dialLanes(t, 2)
			c := backendtest.NewClient(t, d)
			l := d.lanes[1]
			w := c.Write(off, backendtest.Pattern(block, 1), 0)
			l.before(t, "(*submission).run", func() { c.Submit(w) }, c.HangUp)
			require.ErrorIs(t, c.Wait(w), backend.ErrGone)
			require.Zero(t, l.ring.Head())
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
	l := d.newLane(0)
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
