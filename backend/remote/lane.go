package remote

import (
	"fmt"
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
	tagCall
	tagFetch
	tagStore
	tagMask uint64 = 0xff << 56
)

// A lane is a stream's connection to one target, and the queue before that.
//
//	Submit ──► queue ──build──► batch ──Post──► transport ──► target
//	             ▲ writes, reads, barriers              │
//	             └────── completer: Wait, Poll ◄────────┘
//
// The queue is strictly first in, first out. What is at its head may wait for a
// send slot or a credit, and all behind it waits, too. One goroutine at a time posts, outside the
// mutex, whatever is queued; the others only queue. So nobody waits for another's system call.
type lane struct {
	*stream      // set once; its mutex is the lane's
	leg     *leg // set once

	polling sync.Mutex // before mu: completions are taken and handled under it

	// The rest is guarded by the stream's mutex. connect sets conn and recvs while nobody uses
	// the lane, so the goroutines that poll and post use them without.
	conn      rdma.Conn
	recvs     *rdma.MemoryRegion
	connected bool  // from connect to leaveLocked: barriers come on it
	readable  bool  // READs may come on it
	serves    bool  // they may, once it is connected
	broken    error // why the connection ended
	ended     bool  // completions no longer count
	queue     fifo[item]
	lazy      int    // bytes of writes queued since the last post
	urgent    bool   // something queued does not wait for more
	behind    bool   // not all that the ring holds has been queued: a replay is under way (replay.go)
	queued    uint64 // then: what of the ring has been
	counted   uint64 // and what wrote was there
	slice     uint64 // and how many bytes are queued next
	follows   bool   // it gets intervals (follow.go): it is behind, and comes into no barrier of the others
	barrier   *gpspm
	placed    fifo[placed]
	zeroes    zeroes
	digests   digests
	copying   *resync         // to this lane; nil: none
	ranges    []persist.Range // scratch of collect
	control   []byte          // a message to send ahead of the queue
	tag       uint64          // of its work request

	divert   bool  // a READ went to another lane, which has to post it
	mends    bool  // bad blocks were made good in this session
	stuck    error // why what is at the head of the queue can never go out
	posting  bool
	batch    []rdma.WorkRequest // built, not taken by the transport yet
	taken    int                // of batch
	out      position           // what was ever built
	back     position           // of that, what is complete: its send slots are free again
	asked    uint64             // the bytes of out at the last request that completes
	signaled fifo[position]     // where those are that complete
	moved    uint64             // completions ever, of other than control messages

	poster poller     // of the goroutine that posts
	idle   *sync.Cond // of mu: nobody posts
	done   chan struct{}
}

// A position is one in the stream of a lane's work requests: how many there are up to it,
// and how many bytes the Writes among them have.
type position struct{ requests, bytes uint64 }

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

// newLane makes the lane of s, not connected.
func newLane(g *leg, s *stream) *lane {
	l := &lane{stream: s, leg: g, batch: make([]rdma.WorkRequest, 0, batchMax)}
	l.idle = sync.NewCond(&s.mu)
	s.lanes = append(s.lanes, l)
	return l
}

// connect gives the lane a connection. Uncovered writes of the window, and READs that have no
// answer, wait for their slice. A lane that was broken stays so. Nobody uses l, and the caller holds
// commit.mu.
func (l *lane) connect(c dialed, readable bool) {
	l.polling.Lock()
	defer l.polling.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.recvs, l.done, l.ended = c.conn, c.recvs, make(chan struct{}), false
	l.barrier = newGPSPM(c.sends, int(min(c.credits, maxMessages))-l.leg.reserved(), l.leg.granted.MaxMessage, tagBarrier)
	l.zeroes, l.digests = zeroes{}, digests{}
	l.mends, l.stuck, l.divert = false, nil, false
	l.placed.clear()
	l.batch, l.taken, l.control = l.batch[:0], 0, nil
	l.out, l.back, l.asked = position{}, position{}, 0
	l.signaled.clear()
	l.queue.clear()
	l.queued, l.counted, l.slice = l.ring.Covered(), l.flushed, firstSlice
	l.behind = l.queued != l.ring.Head()
	if f := &l.leg.follow; f.on {
		l.behind, l.queued = true, f.pos[l.index]
	}
	l.follows = l.leg.follow.on
	l.connected, l.readable, l.serves = true, readable, readable
	l.chooseReaderLocked()
	l.lazy, l.urgent = 0, !l.queue.empty()
}

// leaveLocked takes the lane out of its stream, because its connection is lost: neither barriers nor
// READs come on it from now on. The caller holds commit.mu, and not the stream's mutex.
func (l *lane) leaveLocked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connected, l.readable = false, false
	l.chooseReaderLocked()
}

// disconnect gives back what the lane, whose connection has ended, still had: its READs wait for
// another lane, or for its next connection.
func (l *lane) disconnect() {
	l.mu.Lock()
	if l == l.leg.lanes[0] {
		l.leg.calls.lostLocked()
	}
	for i := range l.reads {
		if l.reads[i].lane == l {
			l.reads[i].lane = nil
		}
	}
	l.loseCopiesLocked()
	l.chooseReaderLocked()
	reader := l.reader
	l.mu.Unlock()
	if reader != nil {
		reader.post()
	}
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
			l.core.done(l, done)
		}
		if n == 0 || err != nil {
			return err
		}
	}
}

// handle takes completions and does what they say, in their order: two pollers must not take
// turns. It returns how many there were, and the newest barrier that is now done on this lane, or 0.
// It posts receives again before anybody can spend the credits that came with them.
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
	read := false
	for _, c := range p.cs[:n] {
		if c.Op == rdma.OpRecv {
			seq, err := l.receiveLocked(c)
			if err != nil {
				return n, 0, err
			}
			done = max(done, seq)
			p.recvs = append(p.recvs, receiveInto(l.recvs, c.ID&^tagMask))
			continue
		}
		l.back = l.signaled.pop()
		switch c.ID & tagMask {
		case tagBeat:
			l.leg.pulse.left()
		case tagCall:
			l.leg.calls.leftLocked()
		case tagControl:
		default:
			l.moved++
			l.leg.pulse.moved()
		}
		switch c.ID & tagMask {
		case tagRead:
			if !read && l.core.copies.over() {
				return n, 0, errFenced
			}
			read = true
			l.endReadLocked(p, int(c.ID&^tagMask))
		case tagBarrier:
			done = max(done, l.barrier.sent(c.ID))
		case tagPlaced:
			done = max(done, l.endPlacedLocked(c.ID))
		case tagFetch, tagStore:
			l.endCopyLocked(c.ID)
		}
	}
	if len(p.recvs) == 0 {
		return n, done, nil
	}
	l.leg.pulse.hear()
	return n, done, l.conn.PostRecv(p.recvs)
}

// receiveLocked handles a message of the target. It returns the barrier that is done with it, or 0.
func (l *lane) receiveLocked(c rdma.Completion) (done uint64, err error) {
	off := (c.ID &^ tagMask) * wire.MaxMessage
	msg := l.recvs.Mem[off : off+uint64(c.Len)]
	t, err := wire.TypeOf(msg)
	if err != nil {
		return 0, fmt.Errorf("%w: the target sent nonsense: %w", rdma.ErrLost, err)
	}
	switch t {
	case wire.TypeBarrierAck:
		var ack wire.BarrierAck
		if err := ack.Decode(msg); err != nil {
			return 0, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		return l.barrier.acked(ack)
	case wire.TypeBarrierFail:
		var fail wire.BarrierFail
		if err := fail.Decode(msg); err != nil {
			return 0, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		return 0, &BarrierError{said: fail}
	case wire.TypeZeroAck:
		var ack wire.ZeroAck
		if err := ack.Decode(msg); err != nil {
			return 0, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		oldest := l.zeroes.out[l.zeroes.head]
		if err := l.zeroes.acked(ack); err != nil {
			return 0, err
		}
		l.mendedLocked(oldest)
		return l.placedDoneLocked(), nil
	case wire.TypeDigested:
		var m wire.Digested
		if err := m.Decode(msg); err != nil {
			return 0, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		return 0, l.digestedLocked(&m)
	case wire.TypeHeartbeatAck:
		var ack wire.HeartbeatAck
		if err := ack.Decode(msg); err != nil {
			return 0, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		l.leg.pulse.took(&ack)
		l.leg.marked(ack.Mark)
		return 0, nil
	case wire.TypeRecorded, wire.TypeBitmap:
		if l.index == 0 {
			return 0, l.leg.calls.answeredLocked(msg)
		}
	case wire.TypeClosed:
		var closed wire.Closed
		if err := closed.Decode(msg); err != nil {
			return 0, fmt.Errorf("%w: %w", rdma.ErrLost, err)
		}
		l.leg.marked(closed.Mark)
		return 0, errSessionClosed
	}
	return 0, fmt.Errorf("%w: the target sent %v", rdma.ErrLost, t)
}

// send puts a control message ahead of the queue: a stopped queue must not keep
// heartbeats back. It replaces a message that was not built yet.
func (l *lane) send(id uint64, msg []byte) {
	l.mu.Lock()
	l.control, l.tag = msg, id
	l.urgent = true
	l.mu.Unlock()
	l.post()
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

// end ends the connection. When it returns the transport touches no memory any more.
func (l *lane) end(err error) {
	l.mu.Lock()
	if l.broken == nil {
		l.broken = err
	}
	l.mu.Unlock()
	_ = l.conn.Close() // nothing to add to err
	select {
	case l.leg.broke <- struct{}{}:
	default: // the keeper knows already
	}
}

// settle waits until nobody uses the connection, which has ended. Completions no longer count
// then.
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
