package remote

import (
	"slices"
	"sync"
	"time"

	"pmnbd/backend"
	"pmnbd/persist"
)

// A groupCommit has at most one barrier in flight. Requests for durability that arrive
// meanwhile wait for the next barrier, all together. So barriers complete in order
// (design §3.7).
//
//	FLUSH, FUA ──► waiting ──start──► current ──all lanes done──► covered, replied, freed
//
// Start lists the waiting ops first and the dirty streams after them: every write
// ahead of a listed op was enqueued before the op was added. An op that arrives
// while a barrier is in flight and finds nothing dirty behind it joins that barrier.
type groupCommit struct {
	env environment // set once

	mu       sync.Mutex // guards all below; locked before the streams' mutexes
	waiting  []*backend.Op
	wanted   bool          // a barrier is due for the window's sake, without an op
	listed   []*backend.Op // the barrier that covers upTo answers them; those before it are slices of a replay
	upTo     []uint64      // by stream: a position of its ring
	behind   bool          // a stream has a replay under way
	current  *barrier
	broken   *barrier       // the barrier that was in flight when the connections broke, until another one begins
	retired  fifo[*barrier] // covered, not freed yet, oldest first
	spare    []*barrier
	seq      uint64
	doubts   persist.Members            // legs whose target's doubt was inherited, and no barrier has succeeded since
	lost     time.Duration              // how long the outage had lasted when the session came back; 0 once it is over
	count    uint64                     // barriers that succeeded
	asked    uint64                     // FLUSHes and FUA writes that those answered
	answered uint64                     // how many of the barriers that succeeded answered any
	answers  [persist.MaxMembers]uint64 // by leg: what its target has acknowledged on any lane, barriers and RECORDs
	took     roundTrips
}

// An environment is what a group commit needs of its device: the life, the window, and the
// streams by number. The commit's mutex is held during all calls but post; enqueue takes the
// stream's mutex.
type environment interface {
	// failed is the error for ops of a device that failed or was closed, nil before.
	failed() error
	// up says that the sessions are there: barriers can start.
	up() bool
	// answers says that a barrier that succeeds answers ops. If not, barriers still make room in the
	// window, and the mirror sees to it that ops get their answers (mirror §3.2).
	answers() bool
	// bits says that the targets note what others lack: only their CPUs can end a barrier
	// (mirror §3.4).
	bits() bool
	// legCount is how many copies the device has.
	legCount() int
	// streamCount is how many streams there are.
	streamCount() int
	// head is the position behind the newest entry of stream i.
	head(i int) uint64
	// enqueue queues barrier seq behind what stream i holds and no barrier covers, on each of its
	// lanes. A clean stream gets one only if force is set. cpu: only the target's CPU can say when
	// it is done. behind: the stream has more to replay than this share.
	enqueue(i int, seq uint64, force, cpu bool) (s share, behind bool)
	// cover moves the covered mark of stream i over s.
	cover(i int, s *share)
	// retired says that b has succeeded, and its marks have moved.
	retired(b *barrier)
	// needed says that somebody still needs what b covered, although it has succeeded.
	needed(b *barrier) bool
	// free gives back the places and payloads of what s covers, after cover and the replies.
	free(i int, s *share)
	// halfFull says that the window needs a barrier.
	halfFull() bool
	// post hands the enqueued work to the transport.
	post()
}

// A share is one stream's part of a barrier.
type share struct {
	from, to uint64          // the positions of the ring that it covers
	wrote    uint64          // the stream's bytes up to there
	bytes    uint64          // and of the share; set by cover
	owes     persist.Members // legs whose lane has not answered
}

// A barrier is one that is in flight.
type barrier struct {
	seq       uint64
	ops       []*backend.Op
	sinks     []backend.Sink // scratch of answer
	shares    []share        // by stream
	remaining int            // answers that are due
	began     time.Time      // when it was queued
	epoch     uint64         // of a broken one: the session in which it was sent
	asked     bool           // of a broken one: the listed ops are its
	answered  bool           // its ops have their replies
	at        time.Time      // when it succeeded; only set for followers, as bytes
	bytes     uint64         // that it covered
}

// owed is how many answers a leg owes.
func (b *barrier) owed(leg int) (n int) {
	for i := range b.shares {
		if b.shares[i].owes.Has(leg) {
			n++
		}
	}
	return n
}

// answer completes the barrier's ops, with err if not nil, and has the replies
// written out.
func (b *barrier) answer(err error) {
	for _, op := range b.ops {
		if n := len(b.sinks); n == 0 || b.sinks[n-1] != op.Sink {
			b.sinks = append(b.sinks, op.Sink)
		}
		op.Err = err
		op.Sink.Complete(op)
	}
	for _, s := range b.sinks {
		s.Kick()
	}
	clear(b.ops)
	clear(b.sinks)
	b.ops, b.sinks = b.ops[:0], b.sinks[:0]
}

// add asks for a barrier that covers all that is enqueued. That barrier completes op. It
// goes out with the next call of start. The failed state is tested before anything else: a
// device that lost writes never says durable.
func (c *groupCommit) add(op *backend.Op) {
	c.mu.Lock()
	err := c.env.failed()
	if err == nil {
		c.waiting = append(c.waiting, op)
	}
	c.mu.Unlock()
	if err != nil {
		op.Err = err
		op.Sink.Complete(op)
	}
}

// start starts the barrier that ops wait for, or that want asks for, unless one
// is in flight. Its work requests are enqueued, not posted.
func (c *groupCommit) start(want bool) {
	c.mu.Lock()
	c.wanted = c.wanted || want
	durable := c.nextLocked()
	c.mu.Unlock()
	if durable != nil {
		durable.answer(nil)
		c.put(durable)
	}
}

// relieve starts a barrier because somebody waits for room in the window.
func (c *groupCommit) relieve() {
	c.start(true)
	c.env.post()
}

// nextLocked makes a barrier of what is waiting, if none is in flight. It returns the barrier
// if that need not be sent.
func (c *groupCommit) nextLocked() (durable *barrier) {
	if !c.env.up() {
		return nil
	}
	asked := len(c.waiting)+len(c.listed) > 0 && c.env.answers()
	if !asked && !c.wanted {
		return nil
	}
	if b := c.current; b != nil {
		if asked && c.nothingBehindLocked(b) {
			b.ops = append(b.ops, c.waiting...)
			c.waiting = c.waiting[:0]
		}
		return nil
	}
	b := c.takeLocked()
	if asked {
		b.ops, c.waiting = c.waiting, b.ops[:0] // the waiting first, the dirty streams then
	}
	c.wanted = false
	c.seq++
	b.seq = c.seq
	if c.broken != nil { // from now on the target tells of this barrier
		c.spare = append(c.spare, c.broken)
		c.broken = nil
	}
	c.behind = false
	for i := range b.shares {
		doubt := c.doubts != 0
		s, behind := c.env.enqueue(i, b.seq, i == 0 && doubt && asked, doubt || c.env.bits())
		b.shares[i] = s
		c.behind = c.behind || behind
		b.remaining += s.owes.Count()
	}
	if asked && (c.behind || len(c.listed) > 0) {
		c.listLocked(b)
	}
	if b.remaining == 0 {
		// Nothing is dirty, no barrier is in flight or being retired (the marks move
		// under c.mu), and no doubt was inherited. If there was an outage it is over.
		c.lost = 0
		return b
	}
	b.began = time.Now()
	c.current = b
	return nil
}

// nothingBehindLocked reports whether barrier b covers all that was enqueued.
func (c *groupCommit) nothingBehindLocked(b *barrier) bool {
	for i := range b.shares {
		if c.env.head(i) != b.shares[i].to {
			return false
		}
	}
	return true
}

// done counts the answer of a leg's lane of stream i to barrier seq. The last one retires the
// barrier, in this order: covered marks of all streams, replies, spans (design §4.2).
func (c *groupCommit) done(i, leg int, seq uint64) {
	c.mu.Lock()
	c.answers[leg]++
	b := c.current
	if c.env.failed() != nil || b == nil || b.seq != seq {
		c.mu.Unlock()
		return // it failed meanwhile, or a leg's connections broke
	}
	b.shares[i].owes &^= persist.Member(leg)
	c.took.noteLocked(b, leg)
	if b.remaining--; b.remaining > 0 {
		c.mu.Unlock()
		return
	}
	c.current = nil
	c.retireLocked(b)
	c.wanted = c.wanted || c.behind || c.env.halfFull()
	durable := c.nextLocked()
	c.mu.Unlock()

	b.answer(nil)
	if durable != nil {
		durable.answer(nil)
		c.put(durable)
	}
	c.env.post()
	c.free(b)
	if c.env.halfFull() {
		c.relieve()
	}
}

// retireLocked moves the covered marks over what barrier b covers. The caller then answers its
// ops and frees its spans, in this order.
func (c *groupCommit) retireLocked(b *barrier) {
	for i := range b.shares {
		c.env.cover(i, &b.shares[i])
	}
	c.retired.push(b)
	c.env.retired(b)
	c.doubts = 0
	if !c.behind {
		c.lost = 0
	}
	c.count++
	if len(b.ops) > 0 {
		c.asked += uint64(len(b.ops))
		c.answered++
	}
}

// free gives back what barrier b covered, now that its ops are answered. It goes
// in the order of the index, and waits for barriers before b: a place in a ring
// must not be given out again before the barrier that covered it has read it.
func (c *groupCommit) free(b *barrier) {
	c.mu.Lock()
	b.answered = true
	c.freeLocked()
	c.mu.Unlock()
}

// freeLocked gives back what the oldest barriers covered, as far as nobody needs it.
func (c *groupCommit) freeLocked() {
	for !c.retired.empty() && (*c.retired.front()).answered && !c.env.needed(*c.retired.front()) {
		b := c.retired.pop()
		for i := range b.shares {
			c.env.free(i, &b.shares[i])
		}
		b.answered = false
		c.spare = append(c.spare, b)
	}
}

// takeLocked returns an empty barrier.
func (c *groupCommit) takeLocked() *barrier {
	if n := len(c.spare); n > 0 {
		b := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return b
	}
	return &barrier{shares: make([]share, c.env.streamCount())}
}

// put takes back a barrier that was answered.
func (c *groupCommit) put(b *barrier) {
	c.mu.Lock()
	b.remaining = 0
	c.spare = append(c.spare, b)
	c.mu.Unlock()
}

// interruptLocked notes that the session of a leg is lost, which was of this epoch, and the
// environment no longer up. The barrier in flight counts as failed on all legs (mirror §3.2): its ops
// wait for the next, and what it was to cover stays dirty, unless the target says otherwise
// (resumeLocked).
func (c *groupCommit) interruptLocked(epoch uint64) {
	b := c.current
	if b == nil {
		return
	}
	if b.asked = len(b.ops) > 0; b.asked {
		c.waiting = slices.Concat(c.listed, c.waiting) // those came later
		c.listed, c.upTo = append(c.listed[:0], b.ops...), c.upTo[:0]
		for i := range b.shares {
			c.upTo = append(c.upTo, b.shares[i].to)
		}
	}
	b.ops, b.remaining, b.epoch = nil, 0, epoch
	c.current, c.broken = nil, b
}

// abandonLocked returns a barrier with all ops that wait. The device has just failed, and the
// caller answers them.
func (c *groupCommit) abandonLocked() *barrier {
	b := c.takeLocked()
	b.ops, c.waiting = c.waiting, b.ops[:0]
	if c.current != nil {
		b.ops = append(b.ops, c.current.ops...)
		c.current = nil
	}
	b.ops = append(b.ops, c.listed...)
	c.clearListedLocked()
	return b
}

// succeeded is how many barriers have succeeded.
func (c *groupCommit) succeeded() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}
