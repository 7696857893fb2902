package target

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"

	"pmnbd/internal/source"
)

// A standing says how much a connection without a session has shown of itself.
type standing int

const (
	// silent: it has sent nothing that could begin a session.
	silent standing = iota
	// spoken: it has sent a request that proves nothing.
	spoken
	// proven: it has proven that it has a key. Without Config.Keys nobody can.
	proven
	standings
)

// maxStrangers is how many connections without a session there may be of each standing.
// It is also how many that lost their places may still be ending.
const maxStrangers = 64

// errCrowded ends a connection that lost its place to another one.
var errCrowded = errors.New("too many connections without a session: a newer one got its place")

// strangers are the connections without a session. A newcomer always gets a place. If its
// standing is full, the oldest connection of the address that has most places there loses
// its own. So neither connections that stay nor any number of connections from another
// address can keep a newcomer out. Each standing has separate places. An owner may share
// its address with an attacker: then only connections that have shown as much as the
// owner can push it out, and none can once the owner has proven its key.
//
// A lane whose connection request is proven is no stranger, nor is a connection whose
// OPEN is being handled.
type strangers struct {
	mu      sync.Mutex
	fewer   sync.Cond // leaving went down
	places  [standings][]*conn
	leaving int // connections that lost their places and are still ending
}

// wait waits until fewer than maxStrangers connections that lost their places are still
// ending. This bounds the memory that they hold.
func (s *strangers) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.leaving >= maxStrangers {
		s.fewer.Wait()
	}
}

// enter gives c, which has no place, a place of its standing. It returns the connection
// that loses its place, which the caller must interrupt, or nil if there was room.
func (s *strangers) enter(c *conn, at standing) (away *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.evicted {
		return nil
	}
	if places := &s.places[at]; len(*places) >= maxStrangers {
		i := source.Crowded(*places, func(c *conn) netip.Prefix { return c.source })
		away = (*places)[i]
		*places = slices.Delete(*places, i, i+1)
		away.evicted = true
		s.leaving++
	}
	s.places[at] = append(s.places[at], c)
	return away
}

// leave gives up c's place, if it has one. It returns false if c has lost it to another
// connection.
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

// gone must be called for every connection that has ended. It reports whether the
// connection had lost its place.
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

// stranger gives c a place and ends the connection that loses its own.
func (s *Server) stranger(c *conn, at standing) {
	if away := s.strangers.enter(c, at); away != nil {
		s.running.Go(func() { _ = away.interrupt() }) // its goroutine logs why it ended
	}
}

// Stranger logs a connection from addr, HOST:PORT, that a listener dropped before it
// became a request.
func (s *Server) Stranger(addr string, err error) {
	s.breaches.Warn("connection refused", slog.String("peer", addr), slog.Any("error", err))
}
