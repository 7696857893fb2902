package nbd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// Complete implements backend.Sink. It queues the reply to op.
func (c *conn) Complete(op *backend.Op) {
	rq := &c.table[op.Tag]
	c.mu.Lock()
	defer c.mu.Unlock()
	if rq.headed && c.terms.replies == simple && op.Err != nil && c.broken == nil {
		c.failLocked(fmt.Errorf("read the rest of a reply that has begun: %w", op.Err))
	}
	if rq.partial.Load() {
		if op.Cmd != backend.Read || op.Err != nil || c.broken != nil {
			c.freeRequestLocked(op.Tag, 0)
			return
		}
		c.replyLocked(rq)
		rq.headed = true
		c.unsent.push(reply{end: c.q.Queued(), tag: op.Tag})
		return
	}
	c.counts.of(rq.command).Note(rq.length, rq.op.FUA, rq.op.Err)
	if op.Cmd == backend.Write {
		// So the reader can reuse the chunk before the reply is written.
		release(op)
	}
	if c.broken != nil {
		c.freeRequestLocked(op.Tag, c.now())
		return
	}
	c.replyLocked(rq)
	c.unsent.push(reply{end: c.q.Queued(), tag: op.Tag})
}

// replyLocked queues the reply to rq in the form that the client has negotiated, or the next chunk
// of it if op has a part of a READ. Where the protocol allows it, a reply without data is a simple one.
func (c *conn) replyLocked(rq *request) {
	form, err := c.terms.replies, rq.op.Err
	switch {
	case form == simple && rq.headed: // an earlier part has queued the header
	case form == simple, form == structured && err == nil && rq.command != wire.CmdRead && rq.command != wire.CmdBlockStatus:
		wire.PutSimpleReply(c.q.Header(wire.SimpleReplySize), wire.SimpleReply{
			Errno: uint32(backend.ErrnoOf(err)), Cookie: rq.cookie,
		})
	case err != nil:
		text := err.Error()
		text = strings.ToValidUTF8(text[:min(len(text), maxText)], "") // it may be cut inside a character
		wire.PutError(c.chunkHeaderLocked(rq, wire.ChunkError, wire.ErrorSize, len(text)), uint32(backend.ErrnoOf(err)), len(text))
		c.q.Data([]byte(text))
	case rq.command == wire.CmdRead:
		wire.PutOffset(c.chunkHeaderLocked(rq, wire.ChunkOffsetData, wire.OffsetSize, int(rq.op.Len)), rq.op.Off)
	case rq.command == wire.CmdBlockStatus && form == structured:
		// The device has no map of what is allocated, so everything is data: status 0.
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

// maxText bounds the text of an error that is sent to a client, in bytes.
const maxText = 256

// chunkHeaderLocked queues the header of the last chunk of the reply to rq, or of one before the last
// if more of rq follows: that may fail, and then the last chunk says so. The payload has n+rest bytes;
// chunkHeaderLocked returns room for the first n.
func (c *conn) chunkHeaderLocked(rq *request, t wire.ChunkType, n, rest int) []byte {
	h := wire.Chunk{Flags: wire.ReplyFlagDone, Type: t, Cookie: rq.cookie, Off: rq.off, Len: uint64(n + rest)}
	if rq.partial.Load() {
		h.Flags = 0
	}
	if c.terms.replies == extended {
		b := c.q.Header(wire.ExtendedReplySize + n)
		wire.PutExtendedReply(b, h)
		return b[wire.ExtendedReplySize:]
	}
	b := c.q.Header(wire.StructuredReplySize + n)
	wire.PutStructuredReply(b, h)
	return b[wire.StructuredReplySize:]
}

// release drops the references to the spans of op.
func release(op *backend.Op) {
	for _, s := range op.Data {
		s.Chunk.Release()
	}
	op.Data = op.Data[:0]
}

// Kick implements backend.Sink. It writes as much of the queued replies as the socket takes
// at once, and leaves the rest to spill.
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

// flushLocked writes what the socket takes, and frees the requests whose replies are
// written.
func (c *conn) flushLocked() {
	if err := c.sock.Flush(&c.q); err != nil {
		c.failLocked(err)
	}
	now := c.now()
	for c.unsent.n > 0 && c.unsent.first().end <= c.q.Written() {
		c.freeRequestLocked(c.unsent.pop().tag, now)
	}
}

// failLocked drops all replies that are queued or will be, and cuts the connection. No reply comes any more, so
// a reader that waits for room in the window gives up, too: that room may take a whole outage.
func (c *conn) failLocked(err error) {
	if c.broken == nil {
		c.broken = err
	}
	c.q.Reset()
	c.kill()
}

// freeRequestLocked gives a request that is over now, or a part of one, back to the reader.
func (c *conn) freeRequestLocked(tag uint32, now time.Duration) {
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
		note(&c.took, rq, now-rq.came)
		c.freed = append(c.freed, tag)
	}
	c.wakeReaderLocked()
}

// wakeReaderLocked lets a reader in awaitFreed look again.
func (c *conn) wakeReaderLocked() {
	if c.waiting {
		c.waiting = false
		c.wake <- struct{}{}
	}
}

// writeBacklog writes what the socket did not take at once, until nothing is left. It cuts
// a client off that fetches too little, if the client has common chunks of the read arena
// and others go short of them meanwhile. Another user of the device, such as a block device of
// package ublk, never does without: it waits in the arena, and clients behind it wait, too.
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
		case p.tooSlow(c.q.Written()) && c.common > 0 && (short.Load() != before || c.exp.arenas.Read.Waiting()):
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

// writePeriodLocked begins a period of p, and sets the deadline of writes to its end.
func (c *conn) writePeriodLocked(p *pace) {
	p.begin(c.q.Written(), c.srv.cfg.stall)
	_ = c.nc.SetWriteDeadline(p.end) // fails only on a closed socket, where waits fail as well
}

// Gone implements backend.Sink. It reports whether the client has hung up without a DISC.
// The device calls it under the lock that orders the ops of all connections.
//
// It prevents this: a client hangs up while the server has not read one of its writes, sends
// the write again on another connection, together with newer ones, and the old write lands
// last. One poll(2) for each batch is enough to know (design §6.5).
//
// The poll is not needed if the device had no other connection when this one entered, and no
// other has entered since, by any export. If turns is still our turn here, under the lock, then
// another connection enters later. It enqueues its first op later still, under the same lock, so
// that op comes after ours. Connections that were there before us had left, with nothing
// outstanding, when we entered alone. The count never goes back, so a connection that is
// alone again polls.
func (c *conn) Gone() bool {
	if c.disc.Load() || c.alone && c.exp.turns.Load() == c.turn {
		return false
	}
	return c.sock.HungUp()
}

// A reply says where in the stream of replies the one to a request ends.
type reply struct {
	end uint64 // in bytes, as sockio.Queue.Queued counts them
	tag uint32
}

// A replyRing has the replies that are not written, in their order: at most one for each
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
