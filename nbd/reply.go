package nbd

import (
	"errors"
	"fmt"
	"os"

	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// Complete queues the reply to op. It is backend.Sink's.
func (c *conn) Complete(op *backend.Op) {
	rq := &c.table[op.Tag]
	c.mu.Lock()
	defer c.mu.Unlock()
	if rq.headed && op.Err != nil && c.broken == nil {
		c.failLocked(fmt.Errorf("read what a reply has promised: %w", op.Err))
	}
	if rq.partial.Load() {
		if op.Cmd != backend.Read || op.Err != nil || c.broken != nil {
			c.freeRequestLocked(op.Tag)
			return
		}
		c.answerLocked(rq)
		rq.headed = true
		c.unsent.push(reply{end: c.q.Queued(), tag: op.Tag})
		return
	}
	c.counts.of(rq.command).answered(rq)
	if op.Cmd == backend.Write {
		// The payload's chunk may be rewound before the reply is written.
		release(op)
	}
	if c.broken != nil {
		c.freeRequestLocked(op.Tag)
		return
	}
	c.answerLocked(rq)
	c.unsent.push(reply{end: c.q.Queued(), tag: op.Tag})
}

// answerLocked queues the reply to rq in the form that was agreed on. What needs no data is
// answered simply where that is allowed. mu is held.
func (c *conn) answerLocked(rq *request) {
	form, err := c.terms.replies, rq.op.Err
	switch {
	case rq.headed: // by the part before
	case form == simple, form == structured && err == nil && rq.command != wire.CmdRead && rq.command != wire.CmdBlockStatus:
		wire.PutSimpleReply(c.q.Header(wire.SimpleReplySize), wire.SimpleReply{
			Errno: uint32(backend.ErrnoOf(err)), Cookie: rq.cookie,
		})
	case err != nil:
		text := err.Error()
		text = text[:min(len(text), maxText)]
		wire.PutError(c.chunkHeaderLocked(rq, wire.ChunkError, wire.ErrorSize, len(text)), uint32(backend.ErrnoOf(err)), len(text))
		c.q.Data([]byte(text))
	case rq.command == wire.CmdRead:
		wire.PutOffset(c.chunkHeaderLocked(rq, wire.ChunkOffsetData, wire.OffsetSize, int(rq.length)), rq.off)
	case rq.command == wire.CmdBlockStatus && form == structured:
		// Without a map of what is allocated, all of it is data: status 0.
		wire.PutBlockStatus(c.chunkHeaderLocked(rq, wire.ChunkBlockStatus, wire.BlockStatusSize, 0), contextID, wire.Extent{Len: rq.length})
	case rq.command == wire.CmdBlockStatus:
		wire.PutBlockStatusExt(c.chunkHeaderLocked(rq, wire.ChunkBlockStatusExt, wire.BlockStatusExtSize, 0), contextID, wire.Extent{Len: rq.length})
	default:
		c.chunkHeaderLocked(rq, wire.ChunkNone, 0, 0)
	}
	if rq.command == wire.CmdRead && err == nil {
		for _, s := range rq.op.Data {
			c.q.Data(s.Bytes())
		}
	}
}

// maxText bounds what a client is told of an error, in bytes.
const maxText = 256

// chunkHeaderLocked queues the header of the only chunk of the reply to rq, and returns
// room for the first n bytes of its payload, which has rest bytes more. mu is held.
func (c *conn) chunkHeaderLocked(rq *request, t wire.ChunkType, n, rest int) []byte {
	h := wire.Chunk{Flags: wire.ReplyFlagDone, Type: t, Cookie: rq.cookie, Off: rq.off, Len: uint64(n + rest)}
	if c.terms.replies == extended {
		b := c.q.Header(wire.ExtendedReplySize + n)
		wire.PutExtendedReply(b, h)
		return b[wire.ExtendedReplySize:]
	}
	b := c.q.Header(wire.StructuredReplySize + n)
	wire.PutStructuredReply(b, h)
	return b[wire.StructuredReplySize:]
}

// release drops the references of op to its spans.
func release(op *backend.Op) {
	for _, s := range op.Data {
		s.Chunk.Release()
	}
	op.Data = op.Data[:0]
}

// Kick writes the queued replies, as far as the socket takes them at once. It is
// backend.Sink's.
func (c *conn) Kick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spilling || c.q.Empty() {
		return
	}
	c.flushLocked()
	if !c.q.Empty() {
		c.spilling = true
		c.wg.Add(1)
		go c.spill()
	}
}

// flushLocked writes what it can and frees the requests whose replies are written. mu is
// held.
func (c *conn) flushLocked() {
	if err := c.sock.Flush(&c.q); err != nil {
		c.failLocked(err)
	}
	for c.unsent.n > 0 && c.unsent.first().end <= c.q.Written() {
		c.freeRequestLocked(c.unsent.pop().tag)
	}
}

// failLocked drops all replies, now and later, and stops the reader. mu is held.
func (c *conn) failLocked(err error) {
	if c.broken == nil {
		c.broken = err
	}
	c.q.Reset()
	c.interrupt()
}

// freeRequestLocked makes a request, or a part of one, the reader's again. mu is held.
func (c *conn) freeRequestLocked(tag uint32) {
	rq := &c.table[tag]
	if op := &rq.op; op.Cmd == backend.Read {
		for _, s := range op.Data {
			c.releaseSinkLocked(s.Chunk)
		}
		op.Data = op.Data[:0]
		c.freeParkedLocked()
	}
	if rq.partial.Load() {
		rq.partial.Store(false)
	} else {
		c.freed = append(c.freed, tag)
	}
	c.wakeReaderLocked()
}

// wakeReaderLocked lets a reader that waits look again. mu is held.
func (c *conn) wakeReaderLocked() {
	if c.waiting {
		c.waiting = false
		c.wake <- struct{}{}
	}
}

// writeBacklog writes what the socket did not take at once, until nothing is left. A
// client that fetches too little of it, and has common chunks of the read arena of which
// others go short meanwhile, is cut off.
func (c *conn) writeBacklog() {
	defer c.wg.Done()
	var p pace
	short := &c.exp.short
	before := short.Load()
	c.mu.Lock()
	c.writePeriodLocked(&p)
	c.mu.Unlock()
	for {
		err := c.sock.WaitWritable()
		c.mu.Lock()
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.failLocked(err)
		case p.tooSlow(c.q.Written()) && c.common > 0 && short.Load() != before:
			c.failLocked(errStalled)
		default:
			before = short.Load()
			c.writePeriodLocked(&p)
		}
		c.flushLocked()
		if c.q.Empty() {
			c.spilling = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// writePeriodLocked begins a period of p, at whose end a wait to write ends. mu is held.
func (c *conn) writePeriodLocked(p *pace) {
	p.begin(c.q.Written(), c.srv.cfg.stall)
	_ = c.nc.SetWriteDeadline(p.end) // fails on a closed socket, as waiting does
}

// Gone reports whether the client hung up without a DISC behind the requests. It is
// backend.Sink's, and is called under the lock that fixes the place of this
// connection's ops among those of others.
//
// What it prevents: a client hangs up with a write unread, sends it again on another
// connection together with newer ones, and the old one lands last. One poll(2) per
// batch tells. It can be skipped while no other connection has entered since this
// one entered alone: if entered still is our number here, under the lock, then
// another's entry comes later, its first op is enqueued later still, and needs the
// same lock: behind ours. Those that were there before had left, with nothing
// outstanding, when we entered alone. The count never goes back: a connection that
// is alone again polls (design §6.5).
func (c *conn) Gone() bool {
	if c.disc.Load() || c.alone && c.exp.entered.Load() == c.number {
		return false
	}
	return c.sock.HungUp()
}

// A reply is where, in the stream of replies, that to a request ends.
type reply struct {
	end uint64 // of sockio.Queue.Queued
	tag uint32
}

// A replyRing holds the replies that are not written, in order: at most one per
// request.
type replyRing struct {
	ring  [maxInFlight]reply
	start int
	n     int
}

func (q *replyRing) push(r reply) {
	q.ring[(q.start+q.n)%maxInFlight] = r
	q.n++
}

func (q *replyRing) first() *reply { return &q.ring[q.start] }

func (q *replyRing) pop() reply {
	r := q.ring[q.start]
	q.start = (q.start + 1) % maxInFlight
	q.n--
	return r
}
