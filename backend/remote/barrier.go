package remote

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"pmnbd/backend"
	"pmnbd/persist"
)

// barriers is the group commit of a device: at most one barrier is in flight, and
// what asks for durability meanwhile waits for the next one, all together. So
// barriers complete in order (design §3.7).
//
//	FLUSH, FUA ──► waiting ──start──► current ──all lanes done──► covered, replied, freed
//
// Start lists the waiting ops first and the dirty lanes after them; every write
// ahead of a listed op was enqueued before the op was added. An op that comes
// while a barrier is in flight and finds nothing dirty behind it joins it.
type barriers struct {
	mu       sync.Mutex // before the lanes' mutexes
	waiting  []*backend.Op
	wanted   bool          // a barrier for the window's sake, without an op
	listed   []*backend.Op // the barrier that covers upTo answers them; those before it are slices of a replay
	upTo     []uint64      // by lane: a position of its ring
	behind   bool          // a lane has a replay under way
	current  *barrier
	cut      *barrier       // the one that was in flight when the connections broke, until another one begins
	away     bool           // the connections are lost: none is started
	retired  fifo[*barrier] // covered, not freed yet, oldest first
	spare    []*barrier
	seq      uint64
	inherits bool          // OPENED carried doubt, and no barrier has succeeded since
	lost     time.Duration // how long the outage had lasted when the session came back; 0 once it is over
	count    uint64        // of those that succeeded
	asked    uint64        // FLUSHes and FUAs that those answered
	answered uint64        // of those that succeeded, how many answered any
}

// A barrier is one that is in flight.
type barrier struct {
	seq       uint64
	ops       []*backend.Op
	sinks     []backend.Sink // scratch of answer
	from, to  []uint64       // by lane: the positions of the index that it covers
	wrote     []uint64       // by lane: lane.wrote when it was enqueued
	epoch     uint64         // the session's that it went out in
	owes      []bool         // by lane: it has not answered
	remaining int            // lanes that have not answered
	asked     bool           // of one that was cut: the listed ops are its
	answered  bool           // its ops have their replies
}

// answer completes the barrier's ops, with err if not nil, and has the replies
// written out.
func (c *barrier) answer(err error) {
	for _, op := range c.ops {
		if n := len(c.sinks); n == 0 || c.sinks[n-1] != op.Sink {
			c.sinks = append(c.sinks, op.Sink)
		}
		op.Err = err
		op.Sink.Complete(op)
	}
	for _, s := range c.sinks {
		s.Kick()
	}
	clear(c.ops)
	clear(c.sinks)
	c.ops, c.sinks = c.ops[:0], c.sinks[:0]
}

// commit asks for a barrier that covers all that is enqueued; op is completed
// when it succeeded. It goes out with the next call of start. The failed state is
// tested before anything else: a device that lost writes never says durable.
func (d *Device) commit(op *backend.Op) {
	b := &d.barriers
	b.mu.Lock()
	err := d.failed()
	if err == nil {
		b.waiting = append(b.waiting, op)
	}
	b.mu.Unlock()
	if err != nil {
		op.Err = err
		op.Sink.Complete(op)
	}
}

// start starts the barrier that is asked for, or that want asks for, unless one
// is in flight. Its work requests are enqueued, not posted.
func (d *Device) start(want bool) {
	b := &d.barriers
	b.mu.Lock()
	b.wanted = b.wanted || want
	durable := d.next()
	b.mu.Unlock()
	if durable != nil {
		durable.answer(nil)
		b.put(durable)
	}
}

// relieve starts a barrier because somebody waits for room in the window.
func (d *Device) relieve() {
	d.start(true)
	d.Post()
}

// next makes a barrier of what is waiting, if none is in flight. It returns it if
// it turns out that it need not be sent. b.mu is held.
func (d *Device) next() (durable *barrier) {
	b := &d.barriers
	if d.failed() != nil || b.away || (len(b.waiting) == 0 && len(b.listed) == 0 && !b.wanted) {
		return nil
	}
	if c := b.current; c != nil {
		if d.nothingBehind(c) {
			c.ops = append(c.ops, b.waiting...)
			b.waiting = b.waiting[:0]
		}
		return nil
	}
	c := b.take(len(d.lanes))
	c.ops, b.waiting = b.waiting, c.ops[:0] // the waiting first, the dirty lanes then
	b.wanted = false
	b.seq++
	c.seq, c.epoch = b.seq, d.granted.Epoch
	if b.cut != nil { // the target tells of this one from now on
		b.spare = append(b.spare, b.cut)
		b.cut = nil
	}
	method := d.method
	if b.inherits { // only the target can say when its doubt is settled (design §3.8)
		method = persist.MethodGPSPM
	}
	b.behind = false
	for i, l := range d.lanes {
		l.mu.Lock()
		if l.behind {
			l.advance()
			b.behind = b.behind || l.behind
		}
		c.from[i] = l.ring.Covered()
		c.to[i], c.wrote[i] = l.extent()
		c.owes[i] = false
		if c.from[i] != c.to[i] || (i == 0 && b.inherits && len(c.ops)+len(b.listed) > 0) {
			l.enqueueBarrier(b.seq, c.from[i], c.to[i], method)
			c.owes[i] = true
			c.remaining++
		}
		l.mu.Unlock()
	}
	if b.behind || len(b.listed) > 0 {
		b.list(c, d.lanes)
	}
	if c.remaining == 0 {
		// Nothing is dirty, no barrier is in flight or being retired (the marks move
		// under b.mu), and no doubt was inherited. If there was an outage it is over.
		b.lost = 0
		return c
	}
	b.current = c
	return nil
}

// nothingBehind reports whether barrier c covers all that was enqueued.
func (d *Device) nothingBehind(c *barrier) bool {
	for i, l := range d.lanes {
		if l.ring.Head() != c.to[i] {
			return false
		}
	}
	return true
}

// laneDone counts lane i's answer to barrier seq. The last one retires it, in this
// order: covered marks of all lanes, replies, spans (design §4.2).
func (d *Device) laneDone(i int, seq uint64) {
	b := &d.barriers
	b.mu.Lock()
	c := b.current
	if d.failed() != nil || c == nil || c.seq != seq {
		b.mu.Unlock()
		return // it failed meanwhile, or was cut off
	}
	c.owes[i] = false
	if c.remaining--; c.remaining > 0 {
		b.mu.Unlock()
		return
	}
	b.current = nil
	d.retire(c)
	d.accused.Store(false)
	b.wanted = b.wanted || b.behind || d.window.HalfFull()
	durable := d.next()
	b.mu.Unlock()

	c.answer(nil)
	if durable != nil {
		durable.answer(nil)
		b.put(durable)
	}
	d.Post()
	d.free(c)
	if d.window.HalfFull() {
		d.relieve()
	}
}

// retire moves the covered marks over what barrier c covers. Its ops and spans are the
// caller's to answer and free, in this order. b.mu is held.
func (d *Device) retire(c *barrier) {
	b := &d.barriers
	for i, l := range d.lanes {
		l.ring.Cover(c.to[i])
		l.flushed = c.wrote[i]
	}
	b.retired.push(c)
	b.inherits = false
	if !b.behind {
		b.lost = 0
	}
	b.count++
	if len(c.ops) > 0 {
		b.asked += uint64(len(c.ops))
		b.answered++
	}
}

// free gives back what barrier c covered, now that its ops are answered. It goes
// in the order of the index, and waits for barriers before c: a place in a ring
// must not be given out again before whoever covered it has read it.
func (d *Device) free(c *barrier) {
	b := &d.barriers
	b.mu.Lock()
	c.answered = true
	for !b.retired.empty() && (*b.retired.front()).answered {
		c := b.retired.pop()
		for i := range d.lanes {
			d.window.Free(i, c.from[i], c.to[i])
		}
		c.answered = false
		b.spare = append(b.spare, c)
	}
	b.mu.Unlock()
}

// take returns an empty barrier. b.mu is held.
func (b *barriers) take(lanes int) *barrier {
	if n := len(b.spare); n > 0 {
		c := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return c
	}
	return &barrier{from: make([]uint64, lanes), to: make([]uint64, lanes), wrote: make([]uint64, lanes), owes: make([]bool, lanes)}
}

// put takes back a barrier that was answered.
func (b *barriers) put(c *barrier) {
	b.mu.Lock()
	c.remaining = 0
	b.spare = append(b.spare, c)
	b.mu.Unlock()
}

// fail makes the device's failure final and answers all that waits for a barrier.
// The first cause stays.
func (d *Device) fail(cause error) {
	b := &d.barriers
	b.mu.Lock()
	if d.failed() != nil {
		b.mu.Unlock()
		return
	}
	err := fmt.Errorf("%w: %w", backend.ErrFailed, cause)
	if d.closing.Load() {
		err = fmt.Errorf("%w: %w", backend.ErrClosed, cause)
	}
	for _, l := range d.lanes {
		l.refuse(err) // before anybody hears of the failure
	}
	d.failure.Store(&err)
	if d.file != nil && !d.adopted && !d.closing.Load() {
		d.file.fail(cause)
	}
	c := b.take(len(d.lanes))
	c.ops, b.waiting = b.waiting, c.ops[:0]
	if b.current != nil {
		c.ops = append(c.ops, b.current.ops...)
		b.current = nil
	}
	c.ops = append(c.ops, b.listed...)
	b.clearListed()
	b.mu.Unlock()

	if !d.closing.Load() && !d.adopted { // the window that was adopted is there still
		d.log.Error("the device failed for good: writes that it acknowledged may be lost",
			zap.Error(cause), zap.Uint64("unflushed_bytes", d.Unflushed()))
	}
	c.answer(err)
}

// bury ends what the lanes still hold, after the device failed or was closed. Their
// connections have ended.
func (d *Device) bury() {
	for _, l := range d.lanes {
		l.bury()
	}
}

// failed is the error to answer ops with since the device failed or was closed;
// nil before.
func (d *Device) failed() error {
	if err := d.failure.Load(); err != nil {
		return *err
	}
	return nil
}
