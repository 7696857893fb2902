package iwarp

import (
	"pmnbd/rdma"
)

// A receiver is the half of a connection that receives. All of it runs on the goroutine
// in Wait, which blocks only to read.
type receiver struct {
	// buf[start:end] has been read and is not parsed yet.
	buf        []byte
	start, end int
	skipped    int
	seg        segment

	// heard means that the peer has sent an FPDU.
	heard    bool
	emptyRTR bool

	// The message that is arriving on the Send queue.
	inSend           bool
	recv             receive
	sendMO           uint32
	sendMSN, readMSN uint32

	// What one call of parse leaves for the sender.
	requests []readRequest
	ird      int
	arrived  bool // a Read of this end is complete

	readOff uint32 // bytes of the oldest Read that are placed
	tagged  uint64 // bytes that Writes and Read Responses have carried

	fault *rdma.FaultError // the cause of badMemory
}

func (rx *receiver) init(ird int, s *setup) {
	rx.ird = ird
	rx.requests = make([]readRequest, 0, ird)
	rx.emptyRTR = s.emptyRTR
	rx.sendMSN, rx.readMSN = 1, 1
}

// receive places what is in the buffer, then lets the sender answer.
func (c *conn) receive() {
	rx := &c.rx
	rx.requests, rx.arrived = rx.requests[:0], false
	silent := !rx.heard
	bad, at, err := c.parse()
	c.arrived.Store(rx.tagged)
	if len(rx.requests) > 0 || rx.arrived || silent && rx.heard {
		c.respond(rx.requests)
	}
	switch {
	case bad != nil:
		c.violated(bad, at)
	case err != nil: // the peer has terminated
		c.fail(err)
		c.abort(nil, nil)
	}
}

// parse carries out every whole FPDU in the buffer and makes room for the next read.
// If the peer broke the protocol, bad says how and at is the ULPDU; if the peer sent a
// Terminate, err is its meaning.
func (c *conn) parse() (bad *violation, at []byte, err error) {
	rx := &c.rx
	// Held for a whole arrival. Deregister waits for it, so that nothing is placed by
	// its key once it has returned.
	c.d.mu.RLock()
	defer c.d.mu.RUnlock()
	for err == nil {
		ulpdu, n, bad := nextFPDU(rx.buf[rx.start:rx.end], c.crc)
		if bad != nil {
			return bad, nil, nil
		}
		if n == 0 {
			break
		}
		rx.start += n
		if len(ulpdu) == 0 && rx.emptyRTR && !rx.heard {
			rx.heard = true
			continue
		}
		rx.heard = true
		if bad := decodeSegment(ulpdu, &rx.seg); bad != nil {
			return bad, ulpdu, nil
		}
		if bad, err = c.takeLocked(&rx.seg); bad != nil {
			return bad, ulpdu, nil
		}
	}
	if rx.start == rx.end {
		rx.start, rx.end = 0, 0
	} else if len(rx.buf)-rx.end < 2*maxFPDU { // less than one FPDU is left
		rx.end = copy(rx.buf, rx.buf[rx.start:rx.end])
		rx.start = 0
	}
	return nil, nil, err
}

// takeLocked carries out one segment. The error is the meaning of a Terminate.
func (c *conn) takeLocked(s *segment) (*violation, error) {
	switch s.Op {
	case opWrite:
		return c.takeWriteLocked(s), nil
	case opReadResponse:
		return c.takeReadResponseLocked(s), nil
	case opReadRequest:
		return c.takeReadRequestLocked(s), nil
	case opTerminate:
		return nil, terminated(s.Payload)
	}
	return c.takeSendLocked(s), nil
}

func (c *conn) takeWriteLocked(s *segment) *violation {
	if len(s.Payload) == 0 {
		return nil // it names no memory (RFC 5041 §5.2)
	}
	r, off, bad := c.d.reachLocked(s.STag, s.TO, uint64(len(s.Payload)), rdma.RemoteWrite, &writeErrors)
	if bad != nil {
		return bad
	}
	c.rx.tagged += uint64(len(s.Payload))
	return c.placeLocked(r, off, s.Payload)
}

// takeReadResponseLocked places s where this end's oldest Read wants its next bytes.
// Responses come in the order of their requests (RFC 5040 §5.2.1).
func (c *conn) takeReadResponseLocked(s *segment) *violation {
	rx := &c.rx
	head := c.reads.head.Load()
	if head == c.reads.tail.Load() {
		return &badOpcode
	}
	want := c.reads.At(head)
	left := want.len - rx.readOff
	switch {
	case s.STag != want.stag || want.sink != nil && want.sink.gone:
		return &badSTag
	case s.TO != regionBase+want.off+uint64(rx.readOff),
		uint64(len(s.Payload)) > uint64(left),
		s.Last != (uint64(len(s.Payload)) == uint64(left)):
		return &badBounds
	}
	if want.sink != nil {
		if bad := c.placeLocked(want.sink, want.off+uint64(rx.readOff), s.Payload); bad != nil {
			return bad
		}
	}
	rx.readOff += uint32(len(s.Payload))
	rx.tagged += uint64(len(s.Payload))
	if s.Last {
		*want = outRead{}
		rx.readOff = 0
		rx.arrived = true
		c.reads.head.Store(head + 1) // from here on the slot is the sender's again
	}
	return nil
}

func (c *conn) takeReadRequestLocked(s *segment) *violation {
	rx := &c.rx
	switch {
	case s.MSN != rx.readMSN:
		return &badMSN
	case s.MO != 0:
		return &badMO
	case len(s.Payload) > readRequestLen:
		return &tooLong
	case len(s.Payload) < readRequestLen || !s.Last:
		return &badReadRequest
	case c.owed.Load() >= int64(rx.ird):
		return &noBuffer // the peer exceeds the IRD that it was granted
	}
	req := decodeReadRequest(s.Payload)
	if req.Size > 0 {
		// The sender checks again when it builds the response: the key may end before.
		if _, _, bad := c.d.reachLocked(req.SourceSTag, req.SourceTO, uint64(req.Size), rdma.RemoteRead, &readErrors); bad != nil {
			return bad
		}
	}
	rx.readMSN++
	c.owed.Add(1)
	rx.requests = append(rx.requests, req)
	return nil
}

func (c *conn) takeSendLocked(s *segment) *violation {
	rx := &c.rx
	if s.MSN != rx.sendMSN {
		return &badMSN
	}
	if !rx.inSend {
		if s.MO != 0 {
			return &badMO
		}
		if !c.takeReceive(&rx.recv) {
			return &noBuffer
		}
		rx.inSend, rx.sendMO = true, 0
	}
	switch {
	case s.MO != rx.sendMO:
		return &badMO
	case uint64(len(s.Payload)) > uint64(rx.recv.len-rx.sendMO):
		return &tooLong
	}
	if len(s.Payload) > 0 {
		if rx.recv.r.gone {
			return &noBuffer // this end's fault, but the peer has to hear of it
		}
		if bad := c.placeLocked(rx.recv.r, rx.recv.off+uint64(rx.sendMO), s.Payload); bad != nil {
			return bad
		}
		rx.sendMO += uint32(len(s.Payload))
	}
	if !s.Last {
		return nil
	}
	if s.Op == opSendInvalidate || s.Op == opSendSEInvalidate {
		if bad := c.takeInvalidateLocked(s.Invalidate); bad != nil {
			return bad
		}
	}
	rx.inSend = false
	rx.sendMSN++
	c.received(&rx.recv, rx.sendMO)
	return nil
}

// takeInvalidateLocked ends key, as the peer asks. It lets go of parse's hold on the domain
// meanwhile, which is safe because nothing is being placed.
func (c *conn) takeInvalidateLocked(key uint32) *violation {
	c.d.mu.RUnlock()
	defer c.d.mu.RLock()
	return c.d.invalidate(key)
}
