package iwarp

import (
	"fmt"
	"sync"

	"pmnbd/internal/sockio"
	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// A sender is the half of a connection that sends. This end's requests and the Read
// Responses that it owes the peer take turns on one stream, a message at a time. The
// sender builds FPDUs only once the socket has taken all earlier ones, so that its
// memory is bounded whatever is posted and owed.
type sender struct {
	out sockio.Queue

	// sq is the send queue. posted ≥ built ≥ done count its requests.
	sq                  queue.Ring[request]
	posted, built, done uint64
	offset              uint32 // bytes of request number built that are built
	inline              []byte // maxInline for each slot of sq
	sendMSN, readMSN    uint32

	// responses holds the Reads that the peer is owed.
	responses       queue.Ring[readRequest]
	respIn, respOut uint64
	respOffset      uint32 // bytes of the first response that are built
	requestsTurn    bool
	// stage holds copies of what Read Responses carry: the region may change, or be
	// deregistered, between the CRC and the write.
	stage  []byte
	staged int

	// quiet is set on a responder until it hears the initiator (RFC 5044 §7.1.2).
	quiet bool
	// dead means that nothing more is built. What out holds may still go out.
	dead, closed bool
	err          error // of a write

	// backlog means that the socket is full, and that the writer goroutine owns out.
	// That goroutine starts with the first backlog and then waits on work.
	backlog bool
	started bool
	work    *sync.Cond
}

// A request is an entry of the send queue.
type request struct {
	id       uint64
	op       rdma.Opcode
	signaled bool
	remote   rdma.Remote
	len      uint32
	payload  []byte  // nil for a Read
	sink     *region // for a Read
	off      uint64  // into sink
	end      uint64  // once built: its end in the stream, or a Read's number among Reads
}

func (tx *sender) init(cfg rdma.ConnConfig, s *setup, mu *sync.Mutex) {
	tx.sq = queue.NewRing[request](cfg.MaxSendWR)
	tx.inline = make([]byte, cfg.MaxSendWR*maxInline)
	tx.responses = queue.NewRing[readRequest](cfg.MaxReadsIn)
	tx.sendMSN, tx.readMSN = 1, 1
	tx.quiet = s.responder
	tx.work = sync.NewCond(mu)
}

// Post implements rdma.Conn. It stops at the first request that is wrong and returns
// that one's error. The connection lives on.
func (c *conn) Post(wrs []rdma.WorkRequest) (posted int, err error) {
	c.qmu.Lock()
	retired := c.cq.Sends()
	c.qmu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.cq.Err(); err != nil {
		return 0, err
	}
	tx := &c.tx
	c.d.mu.RLock()
	for posted < len(wrs) && tx.posted-retired < tx.sq.Len() {
		if err = c.enqueueLocked(&wrs[posted]); err != nil {
			break
		}
		posted++
	}
	c.d.mu.RUnlock()
	c.pumpLocked()
	return posted, err
}

// enqueueLocked checks wr and adds it to the send queue, which has room.
func (c *conn) enqueueLocked(wr *rdma.WorkRequest) error {
	tx := &c.tx
	e := tx.sq.At(tx.posted)
	*e = request{id: wr.ID, op: wr.Op, signaled: wr.Signaled, remote: wr.Remote, len: wr.Local.Len}
	switch wr.Op {
	case rdma.OpSend, rdma.OpWrite:
		if wr.Inline != nil {
			if len(wr.Inline) > maxInline || wr.Op == rdma.OpWrite {
				return fmt.Errorf("%d bytes inline in operation %d: %w", len(wr.Inline), wr.Op, rdma.ErrLocalAccess)
			}
			at := int(tx.posted%tx.sq.Len()) * maxInline
			e.payload = tx.inline[at : at+copy(tx.inline[at:at+maxInline], wr.Inline)]
			e.len = uint32(len(e.payload))
			break
		}
		r, err := c.d.localLocked(wr.Local, 0)
		if err != nil {
			return fmt.Errorf("post operation %d: %w", wr.Op, err)
		}
		if r != nil {
			e.payload = r.mem[wr.Local.Off : wr.Local.Off+uint64(wr.Local.Len)]
		}
	case rdma.OpRead:
		if c.caps.MaxReads == 0 {
			return fmt.Errorf("the peer answers no Reads: %w", rdma.ErrNotSupported)
		}
		r, err := c.d.localLocked(wr.Local, rdma.LocalWrite)
		if err != nil {
			return fmt.Errorf("post a Read: %w", err)
		}
		e.sink, e.off = r, wr.Local.Off
	default:
		return fmt.Errorf("post operation %d: %w", wr.Op, rdma.ErrNotSupported)
	}
	tx.posted++
	return nil
}

// pumpLocked builds and writes until nothing is left that may go out, or the socket is
// full. It reports whether requests completed.
func (c *conn) pumpLocked() (completed bool) {
	tx := &c.tx
	for !tx.backlog && !tx.closed {
		if tx.out.Empty() {
			if tx.dead {
				return completed
			}
			tx.staged = 0
			if !c.buildLocked() {
				return completed
			}
		}
		if err := c.stream.Flush(&tx.out); err != nil {
			c.sendFailedLocked(err)
			return completed
		}
		if c.advanceLocked() {
			completed = true
		}
		if !tx.out.Empty() {
			c.startWriterLocked()
		} else if tx.dead {
			c.finish()
		}
	}
	return completed
}

// advanceLocked completes, in order, the requests that are done: a Read once its
// response is placed, any other once the socket has all of it. It reports whether
// there were any.
func (c *conn) advanceLocked() (completed bool) {
	tx := &c.tx
	if tx.done == tx.built {
		return false
	}
	written, read := tx.out.Written(), c.reads.head.Load()
	c.qmu.Lock()
	defer c.qmu.Unlock()
	for tx.done != tx.built {
		e := tx.sq.At(tx.done)
		if e.op == rdma.OpRead {
			if read <= e.end {
				break
			}
		} else if written < e.end {
			break
		}
		tx.done++
		if e.signaled || e.op == rdma.OpRead {
			c.cq.Push(rdma.Completion{ID: e.id, Op: e.op}, tx.done)
			completed = true
		}
	}
	return completed
}

// startWriterLocked hands the rest of out to the writer goroutine.
func (c *conn) startWriterLocked() {
	tx := &c.tx
	tx.backlog = true
	if !tx.started {
		tx.started = true
		c.writer.Go(c.write)
	}
	tx.work.Signal()
}

// write is the writer goroutine. It goes on sending whenever a full socket has room
// again, until Close.
func (c *conn) write() {
	tx := &c.tx
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for !tx.backlog && !tx.closed {
			tx.work.Wait()
		}
		if tx.closed {
			return
		}
		c.mu.Unlock()
		err := c.stream.WaitWritable()
		c.mu.Lock()
		tx.backlog = false
		if err != nil {
			c.sendFailedLocked(err)
		} else if c.pumpLocked() {
			c.wake()
		}
	}
}

// sendFailedLocked ends sending after a write error. The connection fails only when
// its reading side has seen the end too: the peer may have sent a Terminate before it
// closed, which is the better reason.
func (c *conn) sendFailedLocked(err error) {
	tx := &c.tx
	tx.dead, tx.err = true, err
	tx.drop()
	c.finish()
	_ = c.sock.CloseRead()
}

// drop forgets what the socket has not taken. Its requests will not complete.
func (tx *sender) drop() {
	tx.out.Reset()
	tx.done = tx.built
}

// abort ends sending for good. If v is not nil it sends the peer a Terminate first.
func (c *conn) abort(v *violation, ulpdu []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tx := &c.tx
	switch {
	case tx.dead:
	case v == nil:
		tx.dead = true
		tx.drop()
		c.finish()
	default:
		c.buildTerminateLocked(v, ulpdu)
		tx.dead = true
		c.pumpLocked()
	}
}

// finish tells the peer that nothing more will come.
func (c *conn) finish() {
	_ = c.sock.CloseWrite() // it fails if the peer is gone, who need not be told
}

// respond sends what an arrival makes possible: answers to the peer's new Reads, and
// Reads of this end that waited for an earlier one to complete.
func (c *conn) respond(requests []readRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tx := &c.tx
	tx.quiet = false
	for i := range requests {
		*tx.responses.At(tx.respIn) = requests[i]
		tx.respIn++
	}
	c.advanceLocked()
	c.pumpLocked()
}
