package iwarp

// Counts are what went one way.
type Counts struct {
	FPDUs uint64
	// Bytes of FPDUs, all headers and trailers included.
	Bytes uint64
	// Calls: writev(2) calls, or reads of the socket.
	Calls uint64
	// Messages, by opcode; Sends of every kind together.
	Writes, ReadRequests, ReadResponses, Sends, Terminates uint64
}

// A Snapshot is a Conn's counts at one time.
type Snapshot struct {
	Sent, Received Counts
}

// Stats counts what the connection has sent and received. What a completion
// that was polled tells of is in it.
func (c *Conn) Stats() Snapshot {
	var s Snapshot
	c.mu.Lock()
	s.Sent = c.tx.stats
	s.Sent.Calls = c.tx.out.Calls()
	c.mu.Unlock()
	c.qmu.Lock()
	s.Received = c.cq.stats
	c.qmu.Unlock()
	return s
}

// count adds an FPDU of n bytes.
func (s *Counts) count(op opcode, last bool, n int) {
	s.FPDUs++
	s.Bytes += uint64(n)
	if !last {
		return
	}
	switch op {
	case opWrite:
		s.Writes++
	case opReadRequest:
		s.ReadRequests++
	case opReadResponse:
		s.ReadResponses++
	case opTerminate:
		s.Terminates++
	default:
		s.Sends++
	}
}
