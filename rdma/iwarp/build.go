package iwarp

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"

	"pmnbd/rdma"
)

// A readQueue holds the Reads that wait for their responses, at most ORD, oldest
// first. The sender adds, the receiver takes away.
type readQueue struct {
	slots      []outRead
	head, tail atomic.Uint64
}

// An outRead is where a Read Response may be placed, and nowhere else.
type outRead struct {
	sink *region // nil: of length 0
	stag uint32
	off  uint64
	len  uint32
}

func (q *readQueue) slot(n uint64) *outRead { return &q.slots[n%uint64(len(q.slots))] }

// build makes FPDUs of what may go out, up to maxBuilt bytes, and reports
// whether there are any. The caller holds mu.
func (c *Conn) build() bool {
	tx := &c.tx
	if tx.quiet {
		return false
	}
	start := tx.out.Queued()
	for tx.out.Queued()-start < maxBuilt {
		owes := tx.respIn != tx.resOut
		wants := tx.built != tx.posted && (tx.offset > 0 || !c.mustHold(tx.slot(tx.built)))
		// A message once begun is ended first, then they take turns.
		switch {
		case wants && (tx.offset > 0 || !owes || tx.requestsTurn && tx.respOffset == 0):
			c.buildRequest()
		case owes:
			if !c.buildResponse() {
				return tx.out.Queued() != start
			}
		default:
			return tx.out.Queued() != start
		}
		if tx.dead {
			return true
		}
	}
	return true
}

// mustHold reports whether e is a Read too many.
func (c *Conn) mustHold(e *request) bool {
	return e.op == rdma.OpRead && c.reads.tail.Load()-c.reads.head.Load() == uint64(len(c.reads.slots))
}

// buildRequest builds the next segment of the send queue's first request.
func (c *Conn) buildRequest() {
	tx := &c.tx
	e := tx.slot(tx.built)
	if e.op == rdma.OpRead {
		c.buildReadRequest(e)
		tx.built++
		tx.requestsTurn = false
		return
	}
	room := c.mulpdu - taggedLen
	if e.op != rdma.OpWrite {
		room = c.mulpdu - untaggedLen
	}
	n := min(len(e.payload)-int(tx.offset), room)
	p := e.payload[tx.offset : int(tx.offset)+n]
	last := int(tx.offset)+n == len(e.payload)
	switch e.op {
	case rdma.OpWrite:
		c.buildTagged(opWrite, last, e.remote.Key, e.remote.Addr+uint64(tx.offset), p)
	case rdma.OpSendInvalidate:
		c.buildUntagged(opSendInvalidate, last, e.remote.Key, queueSend, tx.sendMSN, tx.offset, p)
	default:
		c.buildUntagged(opSend, last, 0, queueSend, tx.sendMSN, tx.offset, p)
	}
	tx.offset += uint32(n)
	if !last {
		return
	}
	if e.op != rdma.OpWrite {
		tx.sendMSN++
	}
	e.end = tx.out.Queued()
	tx.offset = 0
	tx.built++
	tx.requestsTurn = false
}

// buildReadRequest builds e, which mustHold has let pass.
func (c *Conn) buildReadRequest(e *request) {
	tx := &c.tx
	e.end = c.reads.tail.Load()
	r := c.reads.slot(e.end)
	*r = outRead{sink: e.sink, off: e.off, len: e.len}
	if e.sink != nil {
		r.stag = e.sink.key
	}
	c.reads.tail.Store(e.end + 1) // the receiver may see it from here on
	req := readRequest{
		SinkSTag: r.stag, SinkTO: regionBase + e.off, Size: e.len,
		SourceSTag: e.remote.Key, SourceTO: e.remote.Addr,
	}
	h := tx.out.Header(fpduLengthLen + untaggedLen + readRequestLen)
	req.append(appendUntagged(h[:fpduLengthLen], opReadRequest, true, 0, queueRead, tx.readMSN, 0))
	tx.readMSN++
	c.buildRest(opReadRequest, true, h, nil)
}

// buildResponse builds the next segment of the first Read Response owed. It
// reports false when the staging memory is full.
func (c *Conn) buildResponse() bool {
	tx := &c.tx
	req := &tx.responses[tx.resOut%uint64(len(tx.responses))]
	n := min(int(req.Size-tx.respOffset), c.mulpdu-taggedLen)
	if tx.stage == nil {
		tx.stage = make([]byte, maxBuilt)
	}
	if n > len(tx.stage)-tx.staged {
		return false
	}
	p := tx.stage[tx.staged : tx.staged+n]
	if n > 0 {
		c.d.mu.RLock()
		r, off, bad := c.d.reach(req.SourceSTag, req.SourceTO+uint64(tx.respOffset), uint64(n), rdma.RemoteRead, &readErrors)
		var fault *rdma.FaultError
		if bad == nil {
			fault = r.move(p, r.mem[off:])
		}
		c.d.mu.RUnlock()
		if fault != nil {
			c.buildTerminate(&badMemory, nil)
			tx.dead, tx.err = true, fault
			c.fail(fmt.Errorf("%s: %w", c.RemoteAddr(), fault)) // now: the region's owner must hear of it
			c.wake()
			return true
		}
		if bad != nil {
			// It was there when the request arrived: the region's owner ended it,
			// and with it this connection.
			c.buildTerminate(bad, nil)
			tx.dead, tx.err = true, fmt.Errorf("a region was deregistered under a Read of the peer: %w", bad)
			return true
		}
	}
	tx.staged += n
	last := tx.respOffset+uint32(n) == req.Size
	c.buildTagged(opReadResponse, last, req.SinkSTag, req.SinkTO+uint64(tx.respOffset), p)
	tx.respOffset += uint32(n)
	if last {
		tx.respOffset = 0
		tx.resOut++
		tx.requestsTurn = true
		c.owed.Add(-1)
	}
	return true
}

// buildTerminate builds the last message.
func (c *Conn) buildTerminate(v *violation, ulpdu []byte) {
	p := appendTerminate(make([]byte, 0, maxTerminateLen), v, ulpdu)
	c.buildUntagged(opTerminate, true, 0, queueTerminate, 1, 0, p)
}

func (c *Conn) buildTagged(op opcode, last bool, stag uint32, to uint64, p []byte) {
	h := c.tx.out.Header(fpduLengthLen + taggedLen)
	appendTagged(h[:fpduLengthLen], op, last, stag, to)
	c.buildRest(op, last, h, p)
}

func (c *Conn) buildUntagged(op opcode, last bool, invalidate, qn, msn, mo uint32, p []byte) {
	h := c.tx.out.Header(fpduLengthLen + untaggedLen)
	appendUntagged(h[:fpduLengthLen], op, last, invalidate, qn, msn, mo)
	c.buildRest(op, last, h, p)
}

// buildRest completes an FPDU that begins with h: its length, payload p, pad and
// CRC.
func (c *Conn) buildRest(op opcode, last bool, h, p []byte) {
	tx := &c.tx
	n := len(h) + len(p)
	binary.BigEndian.PutUint16(h, uint16(n-fpduLengthLen))
	if len(p) > 0 {
		tx.out.Data(p)
	}
	trailer := tx.out.Header(fpduTrailer(n))
	if c.crc {
		putTrailer(trailer, crc32.Update(crc32.Update(0, castagnoli, h), castagnoli, p))
	} else {
		clear(trailer)
	}
	tx.stats.count(op, last, n+len(trailer))
}
