package target

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"go.uber.org/zap"

	"pmnbd/rdma"
)

// A standing is how much a connection without a session has shown of itself.
type standing int

const (
	// silent: it has sent nothing that a session could begin with.
	silent standing = iota
	// spoken: it has sent a request, of which nothing is proven.
	spoken
	// proven: it has a key. Without Config.Keys there is none.
	proven
	standings
)

// maxStrangers is how many connections without a session there may be of each standing,
// and how many of those that were ended may still be going.
const maxStrangers = 64

// errCrowded ends a connection whose place another one got.
var errCrowded = errors.New("too many connections without a session: a newer one got its place")

// strangers are the connections that have no session. A newcomer always gets a place:
// a full standing ends one of its own, the oldest of the address that has the most
// there. So nobody is kept out by connections that stay, and nobody by those of another
// address, however many come. Each standing has places of its own, so that an owner
// behind the same address as an attacker is ended by what is as cheap to send as what
// it has sent itself, and by nothing once it has proven its key.
//
// A lane whose connection request is proven is no stranger, nor is a connection whose
// OPEN is being served.
type strangers struct {
	mu      sync.Mutex
	fewer   sync.Cond // leaving went down
	places  [standings][]*conn
	leaving int // that were ended for want of a place, and are still going
}

// wait returns when those that lost their places have gone, but for a few: what each
// holds is bounded, so their number must be.
func (s *strangers) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.leaving >= maxStrangers {
		s.fewer.Wait()
	}
}

// enter gives c, which has no place, one among those of its standing. It returns the
// connection that loses its own, which the caller interrupts; nil if there was room.
func (s *strangers) enter(c *conn, at standing) (away *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.evicted {
		return nil
	}
	if places := &s.places[at]; len(*places) >= maxStrangers {
		i := rdma.Crowded(*places, func(c *conn) netip.Prefix { return c.source })
		away = (*places)[i]
		*places = slices.Delete(*places, i, i+1)
		away.evicted = true
		s.leaving++
	}
	s.places[at] = append(s.places[at], c)
	return away
}

// leave takes c's place, if it has one, and reports false if c lost it to another.
func (s *strangers) leave(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.places {
		if i := slices.Index(s.places[at], c); i >= 0 {
			s.places[at] = slices.Delete(s.places[at], i, i+1)
		}
	}
	return !c.evicted
}

// gone is told of every connection that has ended, and reports whether it lost its
// place.
func (s *strangers) gone(c *conn) (evicted bool) {
	if s.leave(c) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving--
	s.fewer.Broadcast()
	return true
}

// stranger gives c a place, and ends the connection that loses its own for it.
func (s *Server) stranger(c *conn, at standing) {
	if away := s.strangers.enter(c, at); away != nil {
		s.running.Go(func() { _ = away.interrupt() }) // its goroutine says why it ended
	}
}

// Stranger logs a connection from addr, HOST:PORT, that a listener dropped before it
// became a request.
func (s *Server) Stranger(addr string, err error) {
	s.breaches.Warn("connection refused", zap.String("peer", addr), zap.Error(err))
}
