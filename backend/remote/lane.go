package remote

import (
	"fmt"
	"slices"
	"sync"

	"pmnbd/backend"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// Work request IDs: what kind of request, and which.
const (
	tagWrite uint64 = iota << 56
	tagRead
	tagBarrier
	tagPlaced
	tagControl
	tagRecv
	tagBeat
	tagMask uint64 = 0xff << 56
)

// A lane is one connection of the session, and the queue before it.
//
//	Submit ──► queue ──build──► batch ──Post──► transport ──► target
//	             ▲ writes, reads, barriers              │
//	             └────── completer: Wait, Poll ◄────────┘
//
// The queue is strictly first in, first out; what is at its head may wait for a
// send slot or a credit, and then all behind it wait. Whoever finds no one else
// posting posts, outside the mutex, everything that is queued; so nobody waits
// for another's system call.
type lane struct {
	d     *Device
	index int
	conn  rdma.Conn
	ring  *backend.Ring
	recvs *rdma.MemoryRegion

	flushed uint64 // what wrote was at the last successful barrier; under barriers.mu

	polling sync.Mutex // before mu: completions are taken and handled under it

	mu      sync.Mutex
	closed  error // new ops are refused with it
	broken  error // why the connection ended
	ended   bool  // what completes from now on does not count
	buried  bool  // for good, and nothing is in the window any more
	queue   fifo[item]
	wrote   uint64     // bytes of pieces ever enqueued
	lazy    int        // bytes of writes queued since the last post
	current uint64     // the barrier that was queued last
	urgent  bool       // something queued does not wait for more
	behind  bool       // not all that the ring holds has been queued: a replay is under way (replay.go)
	queued  uint64     // then: what of the ring has been
	counted uint64     // and what wrote was there
	slice   uint64     // and how many bytes are queued next
	reads   []readPart // by number
	spare   []int      // numbers of reads that are free
	fetched uint64     // reads that have ended, ever
	barrier *gpspm
	placed  placed
	zeroes  zeroes
	ranges  []persist.Range // scratch of collect
	control []byte          // a message to send ahead of the queue
	tag     uint64          // of its work request

	posting  bool
	batch    []rdma.WorkRequest // built, not taken by the transport yet
	taken    int                // of batch
	out      position           // what was ever built
	back     position           // of that, what is complete: its send slots are free again
	asked    uint64             // the bytes of out at the last request that completes
	signaled fifo[position]     // where those are that complete
	moved    uint64             // completions ever, of other than control messages

	poster poller     // of whoever is posting
	idle   *sync.Cond // of mu: nobody posts, or a READ has ended
	done   chan struct{}
}

// A position is one in the stream of a lane's work requests: how many there are up to it,
// and how many bytes the Writes among them have.
type position struct{ requests, bytes uint64 }

// A readPart is the part of a READ that one RDMA Read fetches.
type readPart struct {
	op     *backend.Op
	off    uint64 // in the device
	dst    uint64 // in the read arena
	at     uint64 // in the ring: it is behind the entries before
	len    uint32
	queued bool
}

// A poller is the memory that one goroutine needs to handle completions.
type poller struct {
	cs    [64]rdma.Completion
	recvs []rdma.WorkRequest
	sinks []backend.Sink // whose ops were completed
}

// kick makes the connections write out what poll completed.
func (p *poller) kick() {
	for i, s := range p.sinks {
		s.Kick()
		p.sinks[i] = nil
	}
	p.sinks = p.sinks[:0]
}

func (p *poller) completed(s backend.Sink) {
	if n := len(p.sinks); n == 0 || p.sinks[n-1] != s {
		p.sinks = append(p.sinks, s)
	}
}

// write queues a piece whose payload lies at src of the write arena. l.mu is held.
func (l *lane) write(off, src uint64, n uint32) {
	pos := l.ring.Head()
	l.d.window.Publish(l.index, backend.Entry{Off: off, Src: src, Len: n, Kind: backend.EntryData})
	if !l.behind {
		l.pushWrite(pos)
	}
	l.wrote += uint64(n)
	l.lazy += int(n)
}

// zero queues a piece of zeroes. l.mu is held.
func (l *lane) zero(off uint64, n uint32) {
	pos := l.ring.Head()
	l.d.window.Publish(l.index, backend.Entry{Off: off, Len: n, Kind: backend.EntryZero})
	if !l.behind {
		l.pushWrite(pos)
	}
	l.wrote += uint64(n)
}

// read queues a part of op. l.mu is held.
func (l *lane) read(op *backend.Op, off, dst uint64, n uint32) {
	if len(l.spare) == 0 {
		l.spare = append(l.spare, len(l.reads))
		l.reads = append(l.reads, readPart{})
	}
	i := l.spare[len(l.spare)-1]
	l.spare = l.spare[:len(l.spare)-1]
	l.reads[i] = readPart{op: op, off: off, dst: dst, at: l.ring.Head(), len: n, queued: !l.behind}
	op.Parts.Add(1)
	if l.behind {
		return
	}
	l.queue.push(item{kind: itemRead, from: uint64(i)})
	l.urgent = true
}

// enqueueBarrier queues barrier seq behind the writes [from, to) of the ring,
// which it covers. l.mu is held, and was when to was read: covered means ahead of
// the barrier in this queue.
func (l *lane) enqueueBarrier(seq, from, to uint64, m persist.Method) {
	l.current = seq
	l.queue.push(item{kind: itemBarrier, seq: seq, from: from, to: to, next: from, method: m})
	l.urgent = true
}

// connected gives the lane a connection. What is in the window and not covered, and the READs
// that were not answered, wait for their slice. It is broken still, if it was. l is not in
// use, and barriers.mu held if it ever was.
func (l *lane) connected(c dialed) {
	l.polling.Lock()
	defer l.polling.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.recvs, l.done, l.ended = c.conn, c.recvs, make(chan struct{}), false
	l.barrier = newGPSPM(c.sends, int(min(c.credits, maxMessages))-reservedCredits-zeroCredits, l.d.granted.MaxMessage, tagBarrier)
	l.zeroes, l.placed, l.current = zeroes{}, placed{}, 0
	l.batch, l.taken, l.control = l.batch[:0], 0, nil
	l.out, l.back, l.asked = position{}, position{}, 0
	l.signaled.clear()
	l.queue.clear()
	for i := range l.reads {
		l.reads[i].queued = false
	}
	l.queued, l.counted, l.slice = l.ring.Covered(), l.flushed, firstSlice
	if l.behind = l.queued != l.ring.Head(); !l.behind {
		l.queueReads()
	}
	l.lazy, l.urgent = 0, !l.queue.empty()
}

// complete is the lane's completer: the goroutine that waits for completions,
// handles them, and ends the lane when its connection does.
func (l *lane) complete() {
	defer close(l.done)
	p := &poller{}
	for {
		err := l.conn.Wait()
		if err == nil {
			err = l.poll(p)
		}
		p.kick()
		if err != nil {
			l.end(err)
			return
		}
		l.post() // what waited for a slot or a credit
	}
}

// poll handles the completions that are there. The caller kicks.
func (l *lane) poll(p *poller) error {
	for {
		n, done, err := l.handle(p)
		if done != 0 {
			l.d.laneDone(l.index, done)
		}
		if n == 0 || err != nil {
			return err
		}
	}
}

// handle takes completions and does what they say, in their order, of which two
// pollers must not take turns. It says how many there were, and which barrier, if any,
// is done on this lane now. Receives are posted again before anybody can
// spend the credits that came with them.
func (l *lane) handle(p *poller) (n int, done uint64, err error) {
	l.polling.Lock()
	defer l.polling.Unlock()
	if n, err = l.conn.Poll(p.cs[:]); n == 0 {
		return 0, 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0, 0, rdma.ErrClosed
	}
	p.recvs = p.recvs[:0]
	for _, c := range p.cs[:n] {
		if c.Op == rdma.OpRecv {
			finished, err := l.receive(c)
			if err != nil {
				return n, 0, err
			}
			if finished {
				done = l.current
			}
			p.recvs = append(p.recvs, l.d.receiveInto(l.recvs, c.ID&^tagMask))
			continue
		}
		l.back = l.signaled.pop()
		switch c.ID & tagMask {
		case tagBeat:
			l.d.beatLeft()
		case tagControl:
		default:
			l.moved++
			if l.d.beatWaits.Load() {
				l.d.heard.Store(l.d.clock()) // what is ahead of the heartbeat moves
			}
		}
		finished := false
		switch c.ID & tagMask {
		case tagRead:
			l.endRead(p, int(c.ID&^tagMask))
		case tagBarrier:
			finished = l.barrier.sent(c.ID)
		case tagPlaced:
			finished = l.endPlaced(c.ID)
		}
		if finished {
			done = l.current
		}
	}
	if len(p.recvs) == 0 {
		return n, done, nil
	}
	l.d.heard.Store(l.d.clock())
	return n, done, l.conn.PostRecv(p.recvs)
}

// endRead ends read part i. l.mu is held.
func (l *lane) endRead(p *poller, i int) {
	op := l.reads[i].op
	l.reads[i].op = nil
	l.spare = append(l.spare, i)
	l.fetched++
	l.idle.Broadcast()
	sink := op.Sink
	if l.d.endPart(op) {
		p.completed(sink)
	}
}

// receive handles a message of the target. l.mu is held.
func (l *lane) receive(c rdma.Completion) (barrierDone bool, err error) {
	off := (c.ID &^ tagMask) * wire.MaxMessage
	msg := l.recvs.Mem[off : off+uint64(c.Len)]
	t, err := wire.TypeOf(msg)
	if err != nil {
		return false, fmt.Errorf("%w: the target sent nonsense: %w", rdma.ErrLost, err)
	}
	switch t {
	case wire.TypeBarrierAck:
		var ack wire.BarrierAck
		if err := ack.Decode(msg); err != nil {
			return false, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		return l.barrier.acked(ack)
	case wire.TypeBarrierFail:
		var fail wire.BarrierFail
		if err := fail.Decode(msg); err != nil {
			return false, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		return false, &BarrierError{fail}
	case wire.TypeZeroAck:
		var ack wire.ZeroAck
		if err := ack.Decode(msg); err != nil {
			return false, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		if err := l.zeroes.acked(ack); err != nil {
			return false, err
		}
		return l.placedDone(), nil
	case wire.TypeHeartbeatAck:
		var ack wire.HeartbeatAck
		if err := ack.Decode(msg); err != nil {
			return false, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		l.d.beatAcked.Store(ack.Seq)
		if ack.Barrier != l.d.beatBarrier.Load() {
			l.d.beatSince.Store(l.d.clock())
			l.d.beatBarrier.Store(ack.Barrier)
		}
		l.d.beatDoubt.Store(ack.DoubtLeft)
		l.d.marked(ack.Mark)
		return false, nil
	case wire.TypeClosed:
		var closed wire.Closed
		if err := closed.Decode(msg); err != nil {
			return false, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		l.d.marked(closed.Mark)
		return false, errSessionClosed
	}
	return false, fmt.Errorf("%w: the target sent %v", rdma.ErrLost, t)
}

// send puts a control message ahead of the queue: a stopped queue must not keep
// heartbeats back. One that was not built yet is replaced.
func (l *lane) send(id uint64, msg []byte) {
	l.mu.Lock()
	l.control, l.tag = msg, id
	l.urgent = true
	l.mu.Unlock()
	l.post()
}

// refuse makes the lane answer new ops with err.
func (l *lane) refuse(err error) {
	l.mu.Lock()
	if l.closed == nil {
		l.closed = err
	}
	l.mu.Unlock()
}

// awaitReads waits until no READ is under way. New ones are refused.
func (l *lane) awaitReads() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for slices.ContainsFunc(l.reads, func(r readPart) bool { return r.op != nil }) {
		l.idle.Wait()
	}
}

// abort ends the connection for a reason of ours.
func (l *lane) abort(cause error) {
	l.mu.Lock()
	if l.broken == nil {
		l.broken = cause
	}
	conn := l.conn
	l.mu.Unlock()
	_ = conn.Close() // the completer sees it and reports cause
}

// end is the end of the connection. When it returns no memory is touched by the
// transport.
func (l *lane) end(err error) {
	l.mu.Lock()
	if l.broken == nil {
		l.broken = err
	}
	l.mu.Unlock()
	_ = l.conn.Close() // nothing to add to err
	select {
	case l.d.broke <- struct{}{}:
	default: // the keeper knows already
	}
}

// settle waits until nobody uses the connection, which has ended. What completes from
// then on does not count.
func (l *lane) settle() {
	l.polling.Lock()
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.polling.Unlock()
	l.mu.Lock()
	for l.posting {
		l.idle.Wait()
	}
	l.mu.Unlock()
}

// bury answers what waits on a lane that has ended for good, and frees its part of
// the window.
func (l *lane) bury() {
	p := &poller{}
	l.mu.Lock()
	for i := range l.reads {
		if l.reads[i].op != nil {
			l.endRead(p, i)
		}
	}
	l.queue.clear()
	from, to := l.ring.Covered(), l.ring.Head()
	buried := l.buried
	l.buried = true
	l.mu.Unlock()
	p.kick()
	if !buried {
		l.d.window.Free(l.index, from, to)
	}
}

// A BarrierError tells that the target could not make writes durable. Nobody can say
// any more what is.
type BarrierError struct{ wire.BarrierFail }

func (e *BarrierError) Error() string {
	return fmt.Sprintf("the target could not make barrier %d durable: %v: %s", e.Seq, e.Code, e.Text)
}
