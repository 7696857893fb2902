package ublk

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/internal/latency"
)

// depth is how many requests a queue has at most. The kernel's NBD client has as many.
const depth = 128

// A slot is the request with one tag, from its arrival until its commit.
type slot struct {
	op    backend.Op
	tag   uint16
	place place
	// refused says that the kernel has an answer, and the device still has op.
	refused bool
	came    time.Duration
}

// place says who has a slot.
type place uint8

const (
	kernels place = iota // the kernel, which may deliver a request
	ours                 // we owe an answer
	nobodys              // nobody: the kernel has taken the tag back, or the next server answers
)

// A queue serves the requests of one hardware queue:
//
//	kernel ──completion──► thread: parse ─► memory ─► copy in ─► Submit ─► Device
//	   ▲                                                              │ Complete, by the thread
//	   └──enter── commit ◄── copy out ◄── done (mu) ◄─────────────────┘ or a completer
//
// The thread is the goroutine in Device.run, locked to its thread. It owns all fields that are not marked
// otherwise, and waits in the kernel alone. mu comes after the locks of the device, as the reply
// lock of package nbd.
type queue struct {
	port   port
	dev    backend.Device
	arenas *backend.Arenas
	rules  rules
	began  time.Time

	slots [depth]slot
	batch []*backend.Op // parsed and not submitted
	reads intake
	// writes is for WRITE and WRITE_ZEROES. pinned is set while the batch has pins of it.
	writes intake
	pinned bool

	owed    int  // slots that are ours
	taken   int  // slots that are nobody's
	unsent  bool // there are commits that no enter has sent
	helpers sync.WaitGroup

	fetched  chan error  // gets the result of fetch, or why there was none
	starting atomic.Bool // START_DEV waits for what the kernel reads: see Device.start
	refusing atomic.Bool // see refuse
	stopping atomic.Bool
	stop     chan struct{} // closed when stopping becomes true
	more     chan struct{} // see alone

	mu     sync.Mutex
	done   []uint16 // tags of requests that the device has completed
	spare  []uint16 // the other slice for done
	asleep bool     // the thread waits in the kernel, or is about to
	open   bool     // port is there, and not closed
	tid    int      // of the thread
	alone  bool     // the thread commits nothing any more; more has a token when done has a tag
	counts Commands
	took   latency.Requests
}

func newQueue(dev backend.Device, r rules) *queue {
	q := &queue{
		dev: dev, arenas: dev.Arenas(), rules: r, began: time.Now(), stop: make(chan struct{}), more: make(chan struct{}, 1),
		batch: make([]*backend.Op, 0, depth), done: make([]uint16, 0, depth), spare: make([]uint16, 0, depth),
	}
	most := chunksFor(int(r.maxIO)) + 1
	for _, in := range []*intake{&q.reads, &q.writes} {
		in.q, in.room = q, backend.NewAdmission(q.arenas)
		in.got = make([]*backend.Chunk, 0, most)
	}
	for i := range q.slots {
		s := &q.slots[i]
		s.tag, s.op.Sink, s.op.Tag = uint16(i), q, uint32(i)
		s.op.Data = make([]backend.Span, 0, most)
	}
	return q
}

// own gives the queue its port. The queue's thread calls it.
func (q *queue) own(p port) {
	q.mu.Lock()
	q.port, q.open, q.tid = p, true, unix.Gettid()
	q.mu.Unlock()
}

// fetch offers all slots to the kernel. The device can start once all queues have done that.
func (q *queue) fetch() error {
	for tag := range uint16(depth) {
		q.port.fetch(tag)
	}
	if err := q.port.enter(false); err != nil {
		return err
	}
	return q.arrivals() // those that the kernel refuses; it delivers none before the start
}

// serve serves until stop, until the device is removed, or until the kernel breaks the protocol.
func (q *queue) serve() error {
	for {
		if err := q.arrivals(); err != nil {
			return err
		}
		if err := q.submit(); err != nil {
			return err
		}
		q.answer()
		if q.refusing.Load() {
			q.refuseReads()
		}
		if q.owed == 0 {
			switch {
			case q.stopping.Load():
				return q.flush()
			case q.taken == depth:
				return ErrRemoved
			}
		}
		if err := q.sleep(); err != nil {
			return err
		}
	}
}

// flush sends the commits that are left. What follows them is not served.
func (q *queue) flush() error {
	if !q.unsent {
		return nil
	}
	q.unsent = false
	return q.port.enter(false)
}

// sleep sends the commits, and waits until there is something to do.
func (q *queue) sleep() error {
	q.mu.Lock()
	q.asleep = len(q.done) == 0 && (!q.stopping.Load() || q.owed > 0)
	wait := q.asleep
	q.mu.Unlock()
	err := q.port.enter(wait)
	q.unsent = false
	q.mu.Lock()
	q.asleep = false
	q.mu.Unlock()
	return err
}

// arrivals takes the requests that the kernel has delivered.
func (q *queue) arrivals() error {
	var now time.Duration
	for {
		c, ok := q.port.next()
		if !ok {
			return nil
		}
		if c.tag >= depth || q.slots[c.tag].place != kernels {
			return fmt.Errorf("the kernel completes tag %d, which it does not have", c.tag)
		}
		s := &q.slots[c.tag]
		switch {
		case c.result == -int32(unix.ENODEV):
			s.place = nobodys
			q.taken++
			continue
		case c.result != 0:
			return fmt.Errorf("the kernel refuses to deliver requests: result %d", c.result)
		case q.refusing.Load():
			q.port.commit(s.tag, -int32(backend.EIO))
			q.unsent = true
			continue
		case q.stopping.Load():
			s.place = nobodys // the next server gets it
			q.taken++
			continue
		}
		if now == 0 {
			now = time.Since(q.began)
		}
		s.place, s.came = ours, now
		q.owed++
		if err := q.begin(s); err != nil {
			return err
		}
	}
}

// begin parses a request, gives it memory and adds it to the batch.
func (q *queue) begin(s *slot) error {
	op := &s.op
	q.rules.parse(q.port.descriptor(s.tag), op)
	if op.Err != nil {
		q.Complete(op)
		return nil
	}
	in := &q.writes
	switch op.Cmd {
	case backend.Flush, backend.Trim:
		q.batch = append(q.batch, op)
		return nil
	case backend.Read:
		in = &q.reads
	}
	if in.late.Load() {
		in.later(s)
		return nil
	}
	q.pinned = q.pinned || in == &q.writes
	if !in.try(op) {
		err := q.submit() // drops the pins
		in.later(s)
		return err
	}
	if q.receive(s) {
		q.batch = append(q.batch, op)
	}
	return nil
}

// receive copies the payload of a WRITE, which is admitted, into its place. If it reports false it
// has completed the request with an error. Whoever owns the memory of s calls it.
func (q *queue) receive(s *slot) bool {
	op := &s.op
	if op.Cmd != backend.Write {
		return true
	}
	off := 0
	for _, span := range op.Data {
		if err := q.port.receive(s.tag, off, span.Bytes()); err != nil {
			if q.arenas.Entries != nil {
				q.arenas.Entries.GiveRest(op, 0)
			}
			op.Err = fmt.Errorf("copy a payload from the kernel: %w", err)
			q.Complete(op)
			return false
		}
		off += int(span.Len)
	}
	return true
}

// submit hands the batch to the device, answers what the device completed at once, and then lets
// the device post: the kernel's clients work on their next requests meanwhile (design §4.3).
func (q *queue) submit() error {
	if !q.hand() {
		return nil
	}
	q.answer()
	err := q.flush()
	q.dev.Post()
	return err
}

// hand hands the batch to the device. It reports whether there was one.
func (q *queue) hand() bool {
	some := len(q.batch) > 0
	if some {
		q.dev.Submit(q.batch)
		q.batch = q.batch[:0]
	}
	if q.pinned {
		q.writes.room.Unpin()
		q.pinned = false
	}
	return some
}

// answer commits the requests that the device has completed.
func (q *queue) answer() {
	q.mu.Lock()
	done := q.done
	q.done, q.spare = q.spare[:0], done
	if len(done) > 0 {
		now := time.Since(q.began)
		for _, tag := range done {
			s := &q.slots[tag]
			q.noteLocked(&s.op, now-s.came)
		}
	}
	q.mu.Unlock()
	for _, tag := range done {
		s := &q.slots[tag]
		if s.op.Cmd == backend.Read {
			if !s.refused {
				q.send(s)
			}
			release(&s.op)
		}
		q.owed--
		if s.refused {
			s.refused = false
			continue
		}
		code := result(&s.op)
		if left(&s.op) {
			if !q.starting.Load() {
				s.place = nobodys
				q.taken++
				q.halt() // the device is closed, so the next server has the rest
				continue
			}
			code = -int32(backend.EIO)
		}
		s.place = kernels
		q.port.commit(tag, code)
		q.unsent = true
	}
}

// send copies what a READ has read to the kernel.
func (q *queue) send(s *slot) {
	off := 0
	for _, span := range s.op.Data {
		if s.op.Err != nil {
			return
		}
		if err := q.port.send(s.tag, off, span.Bytes()); err != nil {
			s.op.Err = fmt.Errorf("copy what was read to the kernel: %w", err)
		}
		off += int(span.Len)
	}
}

// Complete implements backend.Sink.
func (q *queue) Complete(op *backend.Op) {
	if op.Cmd == backend.Write {
		release(op) // so the chunk can be used again before the commit
	}
	q.mu.Lock()
	q.done = append(q.done, uint16(op.Tag))
	alone := q.alone
	q.mu.Unlock()
	if alone {
		select {
		case q.more <- struct{}{}:
		default: // it has a token
		}
	}
}

// Kick implements backend.Sink. It wakes the thread if that waits: the kernel takes commits from no
// other.
func (q *queue) Kick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.asleep && len(q.done) > 0 {
		q.wakeLocked()
	}
}

// wakeLocked wakes the thread. The lock keeps the port open meanwhile.
func (q *queue) wakeLocked() {
	q.asleep = false
	if q.open {
		q.port.wake()
	}
}

// Gone implements backend.Sink. A request is never here and with another server: the kernel gives
// it to the next one only when this queue's thread has ended, and that waits for the device
// (docs/rules.md).
func (q *queue) Gone() bool { return false }
