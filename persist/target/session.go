package target

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// maxLanes is how many lanes a session may have.
const maxLanes = 16

// A session is an initiator's hold on a region.
type session struct {
	export *export
	conn   *conn // lane 0
	epoch  uint64
	secret wire.Secret        // proves further lanes
	key    string             // the fingerprint of the key that has proven the session
	cipher string             // what encrypts it
	mem    *rdma.MemoryRegion // the region's data extent, with the session's key
	facts  Facts              // decided which methods are sound
	method persist.Method
	heard  atomic.Int64 // when the initiator last sent something, by clock
	fills  fills
	tells  bool        // OPENED said that there are bad places
	asked  atomic.Bool // and the initiator asked which

	mu    sync.Mutex
	ended bool             // no lane may be added any more
	lanes map[uint16]*conn // lane 0, and the others that may touch the region
	taken [maxLanes]bool   // the lane numbers that were ever used

	looks   *time.Timer // calls look
	arrived uint64      // the sum at the last look
}

// newSession returns a session on e in the epoch of sb, with c as lane 0. The caller sets
// its key and method.
func newSession(c *conn, e *export, sb *region.Superblock) *session {
	s := &session{export: e, conn: c, epoch: sb.Epoch, lanes: map[uint16]*conn{0: c}}
	s.taken[0] = true
	if c.secret != nil {
		s.secret, s.key = *c.secret, c.key
	} else {
		_, _ = rand.Read(s.secret[:]) // never fails (crypto/rand)
	}
	if channel := c.Caps().Channel; channel != nil {
		s.cipher = channel.Cipher
	}
	s.heard.Store(clock())
	return s
}

// look notes that the initiator lives if bytes of it have arrived since the last look. On
// a slow network a heartbeat comes behind much data. look repeats after every, until the
// session or all its connections end.
func (s *session) look(every time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var arrived uint64
	alive := false
	for _, c := range s.lanes {
		arrived += c.arrived()
		select {
		case <-c.done:
		default:
			alive = true
		}
	}
	if arrived != s.arrived {
		s.arrived = arrived
		s.heard.Store(clock())
	}
	if s.ended || !alive {
		return
	}
	if s.looks == nil {
		s.looks = time.AfterFunc(every, func() { s.look(every) })
	} else {
		s.looks.Reset(every)
	}
}

// A sharedDomain is the protection domain of a session's lanes. The last of them closes
// it, and the region's key ends with it.
type sharedDomain struct {
	rdma.Domain
	lanes atomic.Int32
}

func openDomain(req rdma.Request) (*sharedDomain, error) {
	d, err := req.OpenDomain()
	if err != nil {
		return nil, fmt.Errorf("open a protection domain: %w", err)
	}
	shared := &sharedDomain{Domain: d}
	shared.lanes.Store(1)
	return shared, nil
}

func (d *sharedDomain) release() error {
	if d.lanes.Add(-1) > 0 {
		return nil
	}
	return d.Close()
}

// errNoSession: a connection names a session that does not exist.
var errNoSession = errors.New("no such session")

// takeIn puts c into the domain of the session that its connection request names. From
// then on a grant destroys c with that session. But c can do nothing in the session until
// it has sent JOIN.
func (s *Server) takeIn(c *conn, hint *wire.JoinHint) error {
	for _, e := range s.served() {
		if e.r.UUID() != hint.Region {
			continue
		}
		e.mu.Lock()
		session := e.session
		e.mu.Unlock()
		if session == nil || session.epoch != hint.Epoch {
			return errNoSession
		}
		if (c.req.Channel() == nil) != (session.conn.req.Channel() == nil) {
			return fmt.Errorf("%w: not all lanes of the session are encrypted", errStranger)
		}
		// The proof holds for the channel of this connection. Otherwise somebody in between could
		// use the lane's request for a connection of its own.
		secret := session.secret.On(c.req.Channel().Bound())
		if !secret.Signed(hint) {
			return errNoSession
		}
		return session.add(c, hint.Lane)
	}
	return errNoSession
}

// add makes c lane n of the session if there was never such a lane. Otherwise somebody
// could play back a connection request after the lane is gone, and get at the session's
// key. An initiator that lost a lane sends RESUME.
func (s *session) add(c *conn, n uint16) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errNoSession
	}
	if n == 0 || n >= maxLanes || s.taken[n] {
		return fmt.Errorf("%w: lane %d already existed, or is above the limit", errStranger, n)
	}
	s.lanes[n], s.taken[n] = c, true
	c.hint, c.lane, c.domain = s, n, s.conn.domain
	c.domain.lanes.Add(1)
	return nil
}

// remove removes a lane that has ended.
func (s *session) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes[c.lane] == c {
		delete(s.lanes, c.lane)
	}
}

// interrupt destroys the queue pairs of all lanes. It does not wait.
func (s *session) interrupt() {
	s.mu.Lock()
	lanes := slices.Collect(maps.Values(s.lanes))
	s.mu.Unlock()
	for _, c := range lanes {
		_ = c.interrupt() // c.alive gets the error
	}
}

// end destroys the queue pairs of all lanes but keep, wakes the lanes' goroutines, and
// waits until none of them touches the region any more. After an error a queue pair may
// still exist, and Writes of the old owner could still land.
func (s *session) end(keep *conn) (err error) {
	s.mu.Lock()
	s.ended = true
	if s.looks != nil {
		s.looks.Stop()
	}
	var lanes []*conn
	for _, c := range s.lanes {
		if c != keep {
			lanes = append(lanes, c)
		}
	}
	s.mu.Unlock()
	for _, c := range lanes {
		_ = c.interrupt() // c.alive gets the error
	}
	for _, c := range lanes {
		<-c.done
		err = errors.Join(err, c.alive)
	}
	return err
}

// join lets barriers come on c, which takeIn took in, if m, decoded from msg, has a valid
// proof.
func (c *conn) join(m *wire.Join, msg []byte) (*wire.Joined, *wire.Refused) {
	c.secret = nil // what proved an OPEN of this connection must not sign the answer
	s := c.hint
	var secret wire.Secret
	if s != nil {
		secret = s.secret.On(c.Caps().Channel.Bound())
	}
	if s == nil || m.Epoch != s.epoch || m.Lane != c.lane || !secret.SignedRequest(msg) {
		return nil, &wire.Refused{Code: wire.CodeNotOwner, Text: "no session of that epoch, lane and proof"}
	}
	c.secret = &secret
	if r := c.disorders(); r != nil {
		return nil, r
	}
	c.session = s
	return &wire.Joined{Epoch: s.epoch, Lane: c.lane, Credits: credits, Durable: s.export.lastDurable(c.lane)}, nil
}
