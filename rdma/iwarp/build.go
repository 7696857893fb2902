package iwarp

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// A readQueue holds this end's Reads that wait for their responses, at most ORD. The
// sender adds at tail and the receiver removes at head.
type readQueue struct {
	queue.Ring[outRead]
	head, tail atomic.Uint64
}

// An outRead is the only memory into which its Read Response may be placed.
type outRead struct {
	sink *region // nil if len is 0 and the request named no region
	stag uint32
	off  uint64
	len  uint32
}

// buildLocked makes FPDUs of what may go out, about maxBuilt bytes, and reports whether
// there are any.
func (c *conn) buildLocked() bool {
	tx := &c.tx
	if tx.quiet {
		return false
	}
	start := tx.out.Queued()
	for tx.out.Queued()-start < maxBuilt {
		owes := tx.respIn != tx.respOut
		wants := tx.built != tx.posted && (tx.offset > 0 || !c.mustHoldLocked(tx.sq.At(tx.built)))
		// A message once begun is finished first; then the two take turns.
		switch {
		case wants && (tx.offset > 0 || !owes || tx.requestsTurn && tx.respOffset == 0):
			c.buildRequestLocked()
		case owes:
			if !c.buildResponseLocked() {
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

// mustHoldLocked reports whether e is a Read that has to wait: the peer owes as many as
// ORD allows.
func (c *conn) mustHoldLocked(e *request) bool {
	return e.op == rdma.OpRead && c.reads.tail.Load()-c.reads.head.Load() == c.reads.Len()
}

// buildRequestLocked builds the next segment of the oldest request that is not built.
func (c *conn) buildRequestLocked() {
	tx := &c.tx
	e := tx.sq.At(tx.built)
	if e.op == rdma.OpRead {
		c.buildReadRequestLocked(e)
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
		c.buildTaggedLocked(opWrite, last, e.remote.Key, e.remote.Addr+uint64(tx.offset), p)
	default:
		c.buildUntaggedLocked(opSend, last, queueSend, tx.sendMSN, tx.offset, p)
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

// buildReadRequestLocked builds e, which mustHoldLocked has let pass.
func (c *conn) buildReadRequestLocked(e *request) {
	tx := &c.tx
	e.end = c.reads.tail.Load()
	r := c.reads.At(e.end)
	*r = outRead{sink: e.sink, off: e.off, len: e.len}
	if e.sink != nil {
		r.stag = e.sink.key
	}
	c.reads.tail.Store(e.end + 1) // the receiver may use the slot from here on
	req := readRequest{
		SinkSTag: r.stag, SinkTO: regionBase + e.off, Size: e.len,
		SourceSTag: e.remote.Key, SourceTO: e.remote.Addr,
	}
	h := tx.out.Header(fpduLengthLen + untaggedLen + readRequestLen)
	req.append(appendUntagged(h[:fpduLengthLen], opReadRequest, true, queueRead, tx.readMSN, 0))
	tx.readMSN++
	c.buildRestLocked(h, nil)
}

// buildResponseLocked builds the next segment of the oldest Read Response that is owed.
// It reports false when the staging memory is full.
func (c *conn) buildResponseLocked() bool {
	tx := &c.tx
	req := tx.responses.At(tx.respOut)
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
		r, off, bad := c.d.reachLocked(req.SourceSTag, req.SourceTO+uint64(tx.respOffset), uint64(n), rdma.RemoteRead, &readErrors)
		var fault *rdma.FaultError
		if bad == nil {
			fault = r.move(p, r.mem[off:])
		}
		c.d.mu.RUnlock()
		if fault != nil {
			fault.Reading = true
			c.buildTerminateLocked(&badMemory, nil)
			tx.dead, tx.err = true, fault
			c.fail(fmt.Errorf("%s: %w", c.RemoteAddr(), fault)) // at once: the region's owner must hear of it
			c.wake()
			return true
		}
		if bad != nil {
			// The key was good when the request arrived. The region's owner has ended
			// it since, and that ends this connection, too.
			c.buildTerminateLocked(bad, nil)
			tx.dead, tx.err = true, fmt.Errorf("a region was deregistered under a Read of the peer: %w", bad)
			return true
		}
	}
	tx.staged += n
	last := tx.respOffset+uint32(n) == req.Size
	c.buildTaggedLocked(opReadResponse, last, req.SinkSTag, req.SinkTO+uint64(tx.respOffset), p)
	tx.respOffset += uint32(n)
	if last {
		tx.respOffset = 0
		tx.respOut++
		tx.requestsTurn = true
		c.owed.Add(-1)
	}
	return true
}

// buildTerminateLocked builds the last message.
func (c *conn) buildTerminateLocked(v *violation, ulpdu []byte) {
	p := appendTerminate(make([]byte, 0, maxTerminateLen), v, ulpdu)
	c.buildUntaggedLocked(opTerminate, true, queueTerminate, 1, 0, p)
}

func (c *conn) buildTaggedLocked(op opcode, last bool, stag uint32, to uint64, p []byte) {
	h := c.tx.out.Header(fpduLengthLen + taggedLen)
	appendTagged(h[:fpduLengthLen], op, last, stag, to)
	c.buildRestLocked(h, p)
}

func (c *conn) buildUntaggedLocked(op opcode, last bool, qn, msn, mo uint32, p []byte) {
	h := c.tx.out.Header(fpduLengthLen + untaggedLen)
	appendUntagged(h[:fpduLengthLen], op, last, qn, msn, mo)
	c.buildRestLocked(h, p)
}

// buildRestLocked completes an FPDU that begins with h: it adds the length, the payload p,
// the pad and the CRC.
func (c *conn) buildRestLocked(h, p []byte) {
	tx := &c.tx
	n := len(h) + len(p)
	binary.BigEndian.PutUint16(h, uint16(n-fpduLengthLen))
	if len(p) > 0 {
		tx.out.Data(p)
	}
	trailer := tx.out.Header(fpduTrailer(n))
	if c.crc {
		putTrailer(trailer, updateCRC(updateCRC(0, h), p))
	} else {
		clear(trailer)
	}
}
