package iwarp

import (
	"fmt"
	"sync"

	"pmnbd/rdma"
	"pmnbd/sockio"
)

// sender is the half of a connection that sends. Requests of this end and Read
// Responses owed to the peer share one stream, message by message in turn; each
// is made into FPDUs only when everything built before has been written, so that
// what is held is bounded whatever is posted and owed.
type sender struct {
	out sockio.Queue

	// sq is the send queue, a ring. posted ≥ built ≥ done count requests.
	sq                  []request
	posted, built, done uint64
	offset              uint32 // bytes of request number built that are built
	inline              []byte // maxInline for each slot of sq
	sendMSN, readMSN    uint32

	// responses is a ring of the Reads that the peer is owed.
	responses      []readRequest
	respIn, resOut uint64
	respOffset     uint32 // bytes of the first that are built
	requestsTurn   bool
	// stage holds copies of what Read Responses carry: the region may change
	// between the CRC and the write, and may be deregistered.
	stage  []byte
	staged int

	// quiet: a responder that has not heard the initiator yet (RFC 5044 §7.1.2).
	quiet bool
	// dead: nothing is built any more; what out holds may still go out.
	dead, closed bool
	err          error // of a write

	// backlog: the socket is full and out belongs to the writer goroutine, which
	// is started when that first happens and waits for work.
	backlog bool
	started bool
	work    *sync.Cond

	stats Counts
}

// A request is an entry of the send queue.
type request struct {
	id       uint64
	op       rdma.Opcode
	signaled bool
	remote   rdma.Remote
	len      uint32
	payload  []byte  // not of a Read
	sink     *region // of a Read
	off      uint64  // of the sink
	end      uint64  // once built: of the stream, or for a Read its number among Reads
}

func (tx *sender) init(cfg rdma.ConnConfig, s *setup, mu *sync.Mutex) {
	tx.sq = make([]request, cfg.MaxSendWR)
	tx.inline = make([]byte, cfg.MaxSendWR*maxInline)
	tx.responses = make([]readRequest, cfg.MaxReadsIn)
	tx.sendMSN, tx.readMSN = 1, 1
	tx.quiet = s.responder
	tx.work = sync.NewCond(mu)
}

func (tx *sender) slot(n uint64) *request { return &tx.sq[n%uint64(len(tx.sq))] }

// Post implements rdma.Conn. A request that is wrong is not taken, nor are those
// behind it, and the connection lives on.
func (c *Conn) Post(wrs []rdma.WorkRequest) (posted int, err error) {
	c.qmu.Lock()
	retired := c.cq.sendRetired
	c.qmu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.failure(); err != nil {
		return 0, err
	}
	tx := &c.tx
	c.d.mu.RLock()
	for posted < len(wrs) && tx.posted-retired < uint64(len(tx.sq)) {
		if err = c.enqueue(&wrs[posted]); err != nil {
			break
		}
		posted++
	}
	c.d.mu.RUnlock()
	c.pump()
	return posted, err
}

// enqueue checks wr and puts it into the free slot behind the queue.
func (c *Conn) enqueue(wr *rdma.WorkRequest) error {
	tx := &c.tx
	e := tx.slot(tx.posted)
	*e = request{id: wr.ID, op: wr.Op, signaled: wr.Signaled, remote: wr.Remote, len: wr.Local.Len}
	switch wr.Op {
	case rdma.OpSend, rdma.OpSendInvalidate, rdma.OpWrite:
		if wr.Inline != nil {
			if len(wr.Inline) > maxInline || wr.Op == rdma.OpWrite {
				return fmt.Errorf("%d bytes inline in operation %d: %w", len(wr.Inline), wr.Op, rdma.ErrLocalAccess)
			}
			at := int(tx.posted%uint64(len(tx.sq))) * maxInline
			e.payload = tx.inline[at : at+copy(tx.inline[at:at+maxInline], wr.Inline)]
			e.len = uint32(len(e.payload))
			break
		}
		r, err := c.d.local(wr.Local, 0)
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
		r, err := c.d.local(wr.Local, rdma.LocalWrite)
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

// pump builds and writes until nothing is left that may go out, or the socket is
// full. The caller holds mu. It reports whether requests completed.
func (c *Conn) pump() (completed bool) {
	tx := &c.tx
	for !tx.backlog && !tx.closed {
		if tx.out.Empty() {
			if tx.dead {
				return completed
			}
			tx.staged = 0
			if !c.build() {
				return completed
			}
		}
		if err := c.sock.Flush(&tx.out); err != nil {
			c.sendFailed(err)
			return completed
		}
		if c.advance() {
			completed = true
		}
		if !tx.out.Empty() {
			c.startWriter()
		} else if tx.dead {
			c.finish()
		}
	}
	return completed
}

// advance completes the requests whose time has come, in order: a Read when its
// response was placed, others when they are in the socket. The caller holds mu.
func (c *Conn) advance() (completed bool) {
	tx := &c.tx
	if tx.done == tx.built {
		return false
	}
	written, read := tx.out.Written(), c.reads.head.Load()
	c.qmu.Lock()
	defer c.qmu.Unlock()
	for tx.done != tx.built {
		e := tx.slot(tx.done)
		if e.op == rdma.OpRead {
			if read <= e.end {
				break
			}
		} else if written < e.end {
			break
		}
		tx.done++
		if e.signaled || e.op == rdma.OpRead {
			c.push(entry{rdma.Completion{ID: e.id, Op: e.op}, tx.done})
			completed = true
		}
	}
	return completed
}

// startWriter hands the rest of out to the writer goroutine.
func (c *Conn) startWriter() {
	tx := &c.tx
	tx.backlog = true
	if !tx.started {
		tx.started = true
		c.writer.Go(c.write)
	}
	tx.work.Signal()
}

// write is the writer goroutine: it carries on whenever a full socket has room
// again. Close ends it.
func (c *Conn) write() {
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
		err := c.sock.WaitWritable()
		c.mu.Lock()
		tx.backlog = false
		if err != nil {
			c.sendFailed(err)
		} else if c.pump() {
			c.wake()
		}
	}
}

// sendFailed ends sending after a write error. The connection fails when its
// reading side has seen the end too: what the peer said before it, a Terminate
// perhaps, is the better reason.
func (c *Conn) sendFailed(err error) {
	tx := &c.tx
	tx.dead, tx.err = true, err
	tx.drop()
	c.finish()
	_ = c.sock.Conn().(halves).CloseRead()
}

// drop forgets what the socket has not taken: it completes no more.
func (tx *sender) drop() {
	tx.out.Reset()
	tx.done = tx.built
}

// abort ends sending for good, with a Terminate for v, if any.
func (c *Conn) abort(v *violation, ulpdu []byte) {
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
		c.buildTerminate(v, ulpdu)
		tx.dead = true
		c.pump()
	}
}

// halves is a socket that can be closed by halves: TCP and unix.
type halves interface {
	CloseRead() error
	CloseWrite() error
}

// finish tells the peer that nothing more will come.
func (c *Conn) finish() {
	_ = c.sock.Conn().(halves).CloseWrite() // not connected any more: so much the better
}

// respond sends on after an arrival: the Reads that it asked for are owed now, and
// Reads of ours may have completed, which lets others out.
func (c *Conn) respond(requests []readRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tx := &c.tx
	tx.quiet = false
	for i := range requests {
		tx.responses[tx.respIn%uint64(len(tx.responses))] = requests[i]
		tx.respIn++
	}
	c.advance()
	c.pump()
}
