package nbd

import (
	"crypto/tls"
	"sync"
	"time"

	"pmnbd/internal/latency"
	"pmnbd/internal/sockio"
	"pmnbd/nbd/wire"
)

// Latencies says how long requests took, as clients see it: from the read of a request's header
// until its reply was in the socket. So it includes how long the server waited for the payload, for
// room in the window and for the target, and how long the client took to fetch what came before. It
// does not include how long a request lay in the socket because the reader waited for room.
//
// The clock is read after each read of the socket and after each write, not for each request.
type Latencies = latency.Requests

// note notes in n how long rq took.
func note(n *Latencies, rq *request, d time.Duration) {
	switch {
	case rq.op.FUA:
		n.FUA.Note(d)
	case rq.command == wire.CmdRead:
		n.Read.Note(d)
	case rq.command == wire.CmdWrite:
		n.Write.Note(d)
	case rq.command == wire.CmdFlush:
		n.Flush.Note(d)
	}
}

// now is the time since the connection began.
func (c *conn) now() time.Duration { return time.Since(c.began) }

// handshakes measures TLS handshakes. They are rare, so all connections share it.
type handshakes struct {
	mu   sync.Mutex
	took latency.Histogram
}

// TLSHandshakes says how long the TLS handshakes took, those that failed as well.
func (s *Server) TLSHandshakes() latency.Histogram {
	s.handshakes.mu.Lock()
	defer s.handshakes.mu.Unlock()
	return s.handshakes.took
}

// serve does the server's handshake on c's connection.
func (h *handshakes) serve(c *conn, cfg *tls.Config) (*sockio.Handshaken, error) {
	began := c.now()
	s, err := sockio.HandshakeTLS(c.nc, cfg)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.took.Note(c.now() - began)
	return s, err
}
