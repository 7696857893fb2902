package remote

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

const block = 4096

// scatter submits n writes of 512 bytes that touch no other's bytes, 512 of them
// from a chunk, and waits until all are acknowledged.
func scatter(t *testing.T, c *backendtest.Client, d *Device, n int) {
	room := backend.NewAdmission(d.Arenas())
	for done := 0; done < n; {
		batch := min(n-done, backend.ChunkSize/512)
		chunks, err := room.Reserve(nil, nil, 1, t.Context().Done())
		require.NoError(t, err)
		ops := make([]*backend.Op, batch)
		for i := range ops {
			span := backend.Span{Chunk: chunks[0], Off: uint32(i * 512), Len: 512}
			copy(span.Bytes(), backendtest.Pattern(512, uint32(done+i)))
			ops[i] = &backend.Op{Cmd: backend.Write, Off: uint64(done+i) * 1024, Len: 512, Data: []backend.Span{span}, Sink: ignore{}}
			require.NoError(t, room.Admit(ops[i], t.Context().Done()))
		}
		d.Submit(ops)
		d.Post()
		chunks[0].Release()
		room.Unpin()
		done += batch
	}
}

// ignore is the sink of ops that complete inside Submit.
type ignore struct{}

func (ignore) Complete(*backend.Op) {}
func (ignore) Kick()                {}
func (ignore) Gone() bool           { return false }

// A WRITE + FLUSH is one barrier at the target, a FLUSH with nothing dirty none.
func TestEachFlushIsOneBarrier(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	for i := range 20 {
		require.NoError(t, c.Do(c.Write(uint64(i)*block, backendtest.Pattern(block, 1), 0)))
		require.NoError(t, c.Do(c.Flush()))
		require.EqualValues(t, i+1, p.targetBarriers())
		require.NoError(t, c.Do(c.Flush()), "nothing is dirty")
		require.EqualValues(t, i+1, p.targetBarriers())
	}
	require.NoError(t, d.Close())
	require.EqualValues(t, 20, p.targetBarriers(), "nothing was left for Close to flush")
	require.EqualValues(t, 20, d.Barriers())
}

// Those who ask while a barrier is in flight share the next one.
func TestGroupCommit(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	release := p.sync.block()
	defer release()
	first := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), first)
	<-p.sync.began

	var waiting []*backendtest.Request
	for i := range 16 {
		w, f := c.Write(uint64(i+1)*block, backendtest.Pattern(block, 2), 0), c.Flush()
		if i%2 == 1 {
			w.FUA = true
			waiting = append(waiting, w)
		}
		c.Submit(w, f)
		waiting = append(waiting, f)
	}
	for _, r := range append(waiting, first) {
		require.False(t, r.Completed(), "%v before its barrier", r.Cmd)
	}
	release()
	require.NoError(t, c.Wait(append(waiting, first)...))
	require.EqualValues(t, 2, p.targetBarriers())
	require.NoError(t, d.Close())
}

// A FLUSH that finds nothing dirty behind the barrier in flight joins it, and is
// not answered before it.
func TestFlushJoinsTheBarrierInFlight(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c, other := backendtest.NewClient(t, d), backendtest.NewClient(t, d)
	release := p.sync.block()
	defer release()
	first := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), first)
	<-p.sync.began
	second := other.Flush()
	other.Submit(second)
	require.False(t, second.Completed())
	release()
	require.NoError(t, c.Wait(first))
	require.NoError(t, other.Wait(second))
	require.EqualValues(t, 1, p.targetBarriers())
	require.NoError(t, d.Close())
}

// A FLUSH covers what any connection was told is written.
func TestFlushCoversOtherConnections(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	a, b := backendtest.NewClient(t, d), backendtest.NewClient(t, d)
	require.NoError(t, a.Do(a.Write(block, backendtest.Pattern(block, 7), 0)))
	require.NotZero(t, d.Unflushed())
	require.NoError(t, b.Do(b.Flush()))
	require.Zero(t, d.Unflushed())
	require.Equal(t, backendtest.Pattern(block, 7), p.region.Data()[block:2*block])
	require.EqualValues(t, 1, p.targetBarriers())
	require.NoError(t, d.Close())
}

// A barrier of more ranges than there are credits goes in parts, which wait for
// credits; it counts once and covers all.
func TestBarrierInParts(t *testing.T) {
	p := fake(t, rdmafake.Config{MaxSendWR: 8})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	n := (maxMessages-reservedCredits-zeroCredits)*d.legs[0].lanes[0].barrier.perPart + 300
	require.LessOrEqual(t, n*1024, regionSize)
	p.provider.(*rdmafake.Provider).Pause() // so that one barrier covers all
	scatter(t, c, d, n)
	flush := c.Flush()
	c.Submit(flush)
	require.False(t, flush.Completed())
	p.provider.(*rdmafake.Provider).Resume()
	require.NoError(t, c.Wait(flush))
	require.LessOrEqual(t, p.targetBarriers(), uint64(2), "one, or one more that the window asked for")
	require.Zero(t, d.Unflushed())
	for i := range n {
		require.Equal(t, backendtest.Pattern(512, uint32(i)), p.region.Data()[i*1024:i*1024+512], "write %d", i)
	}
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A window that fills up empties itself: whoever waits for room has a barrier
// that gives it.
func TestFullWindowStartsABarrier(t *testing.T) {
	for name, fill := range map[string]func(t *testing.T, c *backendtest.Client, d *Device){
		"chunks": func(t *testing.T, c *backendtest.Client, d *Device) {
			for i := range 3 * d.Arenas().Write.Budget().Total() {
				require.NoError(t, c.Do(c.Write(uint64(i%512)*block, backendtest.Pattern(block, uint32(i)), 0)))
			}
		},
		"entries": func(t *testing.T, c *backendtest.Client, d *Device) {
			for range 5 {
				scatter(t, c, d, 8000)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := fake(t, rdmafake.Config{})
			d := p.dial(t)
			c := backendtest.NewClient(t, d)
			fill(t, c, d)
			require.NotZero(t, p.targetBarriers())
			require.NoError(t, c.Do(c.Flush()))
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
		})
	}
}

// While doubt is inherited a FLUSH needs a barrier even with nothing dirty: the
// session may have read what is not durable (design §3.7, model F3).
func TestFlushUnderInheritedDoubt(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	d.core.commit.mu.Lock()
	d.core.commit.doubts = 1
	d.core.commit.mu.Unlock()
	require.NoError(t, c.Do(c.Flush()))
	require.EqualValues(t, 1, p.targetBarriers())
	require.NoError(t, c.Do(c.Flush()), "a barrier has succeeded")
	require.EqualValues(t, 1, p.targetBarriers())
	require.NoError(t, d.Close())
}

// When a FLUSH is answered the covered marks have moved already: a replay from
// marks that had not would put older writes over flushed newer ones (model R1).
// The spans are free only after the reply.
func TestRetireOrder(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	held := d.Arenas().Write.Budget().Free()
	s := &retireSink{d: d, done: make(chan struct{})}
	op := &backend.Op{Cmd: backend.Flush, Sink: s}
	d.Submit([]*backend.Op{op})
	d.Post()
	<-s.done
	require.NoError(t, s.err)
	require.False(t, s.dirty, "FLUSH answered before the covered mark moved")
	require.Equal(t, held, s.free, "a span was free before the reply")
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

type retireSink struct {
	ignore
	d     *Device
	done  chan struct{}
	err   error
	dirty bool
	free  int
}

func (s *retireSink) Complete(op *backend.Op) {
	s.err = op.Err
	s.dirty = dirty(s.d.core.window.Ring(0))
	s.free = s.d.Arenas().Write.Budget().Free()
	close(s.done)
}

// A barrier goes out behind the writes that it covers, in the same post.
func TestBarrierIsBehindItsWrites(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	l := d.legs[0].lanes[0]
	l.mu.Lock()
	l.posting = true // nobody else does
	l.mu.Unlock()
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), c.Write(8*block, backendtest.Pattern(3*block, 1), 10), flush)
	l.mu.Lock()
	l.buildLocked()
	var ops []rdma.Opcode
	for _, wr := range l.batch {
		ops = append(ops, wr.Op)
	}
	l.posting, l.urgent = false, true // what was built is to be posted
	l.mu.Unlock()
	require.Equal(t, []rdma.Opcode{rdma.OpWrite, rdma.OpWrite, rdma.OpWrite, rdma.OpSend}, ops)
	d.Post()
	require.NoError(t, c.Wait(flush))
	require.NoError(t, d.Close())
}

// What is behind a barrier is not covered by it, and stays in the window.
func TestBarrierCoversNothingBehindIt(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	release := p.sync.block()
	defer release()
	first := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), first)
	<-p.sync.began
	require.NoError(t, c.Do(c.Write(block, backendtest.Pattern(block, 2), 0)))
	release()
	require.NoError(t, c.Wait(first))
	require.EqualValues(t, block, d.Unflushed())
	require.EqualValues(t, block, d.legs[0].lanes[0].ring.At(d.legs[0].lanes[0].ring.Covered()).Off)
	before := p.targetBarriers()
	require.NoError(t, c.Do(c.Flush()))
	require.EqualValues(t, before+1, p.targetBarriers())
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// What overlaps a zero that is not acknowledged stops the queue, and the barrier behind
// it, or that would cover what the target does not have.
func TestStoppedQueueHoldsItsBarrier(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	l := d.legs[0].lanes[0]
	l.mu.Lock()
	l.posting = true // nobody else does
	l.mu.Unlock()
	read, flush := c.Read(8*block, block, 0), c.Flush()
	c.Submit(c.Zero(0, 2*block), c.Write(block, backendtest.Pattern(block, 1), 0), read, flush)
	l.mu.Lock()
	l.buildLocked()
	built := l.out.requests
	l.posting, l.urgent = false, true // what was built is to be posted
	l.mu.Unlock()
	require.EqualValues(t, 1, built, "the zero, and nothing behind it")
	d.Post()
	require.NoError(t, c.Wait(read, flush))
	require.Equal(t, append(make([]byte, block), backendtest.Pattern(block, 1)...), p.region.Data()[:2*block])
	require.NoError(t, d.Close())
}

// The ranges that a barrier names, in however many parts, hold every byte that
// was written or zeroed ahead of it.
func TestRangesCoverEveryWrite(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	p.provider.(*rdmafake.Provider).Pause()
	var written []persist.Range
	for i, n := range []int{1, 512, 4096, 4096, 100_000, 7, 4096, 300_000, 1, 1} {
		off := uint64(i*7919_77) % (regionSize - 300_000)
		if i%3 == 2 {
			c.Submit(c.Zero(off, uint64(n)))
		} else {
			c.Submit(c.Write(off, backendtest.Pattern(n, uint32(i)), min(n, 100)*(i%2)))
		}
		written = append(written, persist.Range{Off: off, Len: uint64(n)})
	}
	l := d.legs[0].lanes[0]
	for _, limit := range []int{1, 2, 3, 254} {
		var named []persist.Range
		for next, to := l.ring.Covered(), l.ring.Head(); next < to; {
			next = l.collectLocked(next, to, limit)
			require.LessOrEqual(t, len(l.ranges), limit)
			named = append(named, l.ranges...)
		}
		for _, w := range written {
			for b := w.Off; b < w.Off+w.Len; b++ {
				require.True(t, slices.ContainsFunc(named, func(r persist.Range) bool { return r.Off <= b && b < r.Off+r.Len }),
					"byte %d of %v is in no range", b, w)
			}
		}
	}
	p.provider.(*rdmafake.Provider).Resume()
	require.NoError(t, d.Close())
}

// Two barriers may be retired at the same time, by the completer and by whoever
// posts. What they covered comes back in order: a place of the index that the
// older one has not read yet must not be written again.
func TestSpansComeBackInOrder(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	total := d.Arenas().Entries.Free()
	const n = 100
	slow := &slowSink{kicked: make(chan struct{}), proceed: make(chan struct{})}
	release := p.sync.block()
	scatter(t, c, d, n)
	d.Submit([]*backend.Op{{Cmd: backend.Flush, Sink: slow}})
	d.Post()
	<-p.sync.began
	release()
	<-slow.kicked // the completer retires the first barrier, and has not come to its spans

	p.provider.(*rdmafake.Provider).SetAnswersFirst(true) // so that who posts retires the second
	scatter(t, c, d, n)
	require.NoError(t, c.Do(c.Flush()), "the reply does not wait")
	require.Equal(t, total-2*n, d.Arenas().Entries.Free(), "the second barrier's places were free before the first's")
	close(slow.proceed)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A slowSink stays in its first Kick until it may proceed.
type slowSink struct {
	ignore
	once            sync.Once
	kicked, proceed chan struct{}
}

func (s *slowSink) Kick() {
	s.once.Do(func() { close(s.kicked) })
	<-s.proceed
}
