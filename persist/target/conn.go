package target

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A conn is a lane as the target sees it: one connection, its protection domain, and the
// goroutine that does all its work, including the placement of what arrives.
type conn struct {
	rdma.Conn
	s      *Server
	req    rdma.Request // the request that it accepts
	log    *slog.Logger
	peer   string       // HOST:PORT
	source netip.Prefix // the part of peer by which strangers are counted
	domain *sharedDomain
	mem    []byte             // buffers for receives, and behind them for sends
	msgs   *rdma.MemoryRegion // mem, registered
	sent   atomic.Uint32      // how many messages were too long to go inline

	hint      *session        // the session in whose domain the connection was made, and which it may JOIN
	lane      uint16          // its number in that session
	session   *session        // set by a grant or a JOIN
	deadline  *time.Timer     // ends the connection if it gets no session in time
	opens     int             // how many requests for a session it has sent
	challenge *wire.Challenge // set once sent
	secret    *wire.Secret    // proved the last request; nil if nothing did
	key       string          // the fingerprint of the key behind secret
	probed    bool            // the connection has asked for the epoch, as initiators do before they OPEN
	known     bool            // the connection has had a session
	barrier   wire.Barrier
	midway    bool          // the last part of a barrier has yet to come
	losses    uint64        // what Region.Losses said when its first part came
	failed    atomic.Uint64 // one more than the number of the last barrier of which a part had BARRIER_FAIL
	asked     asked
	settling  int         // how many ranges settlings have of it; guarded by their mutex
	behind    bool        // the syncer may still have a part of a barrier
	leaves    atomic.Bool // what the syncer still has is to be dropped
	dropped   bool        // the syncer has dropped some of it before the sync; the syncer's, but in its forget
	out       outbox
	again     []rdma.WorkRequest // receives to post again
	done      chan struct{}      // closed when nothing of the lane touches a region any more, unless alive is set
	alive     error              // set before done is closed if the queue pair may still exist: its region must not be granted again

	evicted bool // guarded by Server.strangers: another connection got this one's place

	life sync.Mutex  // guards Conn while the connection is being made
	dead atomic.Bool // the connection was interrupted; set with life held
}

// An outbox is the memory with which one goroutine sends without allocating.
type outbox struct {
	buf [wire.DigestedSize]byte // the longest message that is sent in it
	wr  [1]rdma.WorkRequest
}

// send sends a message and copies it. A long one goes to a buffer of its own. That buffer
// is free when its turn comes again, because no more answers are due than there are
// credits.
func (o *outbox) send(c *conn, msg []byte) error {
	o.wr[0] = rdma.WorkRequest{Op: rdma.OpSend, Signaled: true, Inline: msg} // signalled, so that its slot comes back
	if len(msg) > c.Caps().MaxInline {
		off := uint64(receives+c.sent.Add(1)%credits) * wire.MaxMessage
		copy(c.mem[off:], msg)
		o.wr[0].Inline, o.wr[0].Local = nil, rdma.SGE{Region: c.msgs, Off: off, Len: uint32(len(msg))}
	}
	n, err := c.Post(o.wr[:])
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: the peer has used more credits than it has", errStranger)
	}
	return err
}

var (
	// errStranger: the peer broke the protocol.
	errStranger = errors.New("protocol violation")
	// errEnded: the connection was interrupted.
	errEnded = errors.New("the target ended the connection")
)

// serve accepts the connection and is the lane's goroutine until the connection ends.
func (c *conn) serve() {
	s := c.s
	defer s.running.Done()
	err := c.accept()
	if err != nil {
		c.release()
		if s.strangers.gone(c) {
			err = errCrowded
		}
		s.breaches.Warn("connection not accepted", slog.String("peer", c.peer), slog.Any("error", err))
		return
	}
	limit := s.cfg.ProofTimeout
	if c.hint != nil {
		limit = s.cfg.OpenTimeout // its connection request had a proof
	}
	c.deadline = time.AfterFunc(limit, func() { _ = c.interrupt() }) // the interruption wakes Wait
	defer c.deadline.Stop()
	var cs [credits]rdma.Completion
	for {
		if err = c.Wait(); err != nil {
			break
		}
		if err = c.poll(cs[:]); err != nil {
			break
		}
	}
	c.broken(err)
	c.release()
	if s.strangers.gone(c) {
		err = errCrowded
	}
	c.ended(err)
}

// ended logs why the connection ended.
func (c *conn) ended(err error) {
	switch {
	case c.probed && !c.known && (errors.Is(err, rdma.ErrLost) || errors.Is(err, rdma.ErrClosed)):
		c.log.Debug("connection ended after it had asked for the epoch", slog.Any("error", err))
	case !c.known:
		c.s.breaches.Warn("connection ended", slog.String("peer", c.peer), slog.Bool("without_key", c.challenge != nil && c.secret == nil), slog.Any("error", err))
	case c.session == nil && errors.Is(err, rdma.ErrLost):
		c.log.Debug("connection ended after its session was closed", slog.Any("error", err))
	default:
		c.log.Info("connection ended", slog.Bool("session", c.session != nil), slog.Any("error", err))
	}
}

// broken notes what a fault on the region's memory means that ended the lane. A READ has found a bad place: the
// initiator hears of it when it comes back. Anything else fails the region. A one-sided Write has
// no answer that could carry the error. The next barrier of any lane does, and the next
// OPEN (design §6.2).
func (c *conn) broken(err error) {
	s := c.session
	if s == nil {
		s = c.hint
	}
	var fault *rdma.FaultError
	if s == nil || !errors.As(err, &fault) || fault.Region != s.mem {
		return
	}
	if fault.Reading { // nothing that was to be durable is concerned
		g, err := s.export.r.Lose(fault.Addr)
		if err == nil {
			c.log.Error("the medium has lost a place of the region: whoever reads there gets an I/O error", slog.String("region", s.export.r.Name()), slog.Uint64("offset", g.Off), slog.Uint64("bytes", g.Len))
			return
		}
		c.log.Error("region failed", slog.String("region", s.export.r.Name()), slog.Any("error", err))
		return
	}
	c.log.Error("region failed", slog.String("region", s.export.r.Name()), slog.Any("error", s.export.r.Fail(fault)))
}

// accept accepts the connection request. A stranger gets its own protection domain. If
// accept fails, the caller releases what it has created.
func (c *conn) accept() (err error) {
	accepted := false
	defer func() {
		if err != nil && !accepted {
			_ = c.req.Reject(nil) // the log has err
		}
	}()
	if c.hint == nil {
		if c.domain, err = openDomain(c.req); err != nil {
			return err
		}
	}
	const size = (receives + credits) * wire.MaxMessage
	if c.mem, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return fmt.Errorf("map %d bytes for messages: %w", size, err)
	}
	if c.msgs, err = c.domain.Register(c.mem, rdma.LocalWrite); err != nil {
		return fmt.Errorf("register memory for messages: %w", err)
	}
	for i := range uint64(receives) {
		c.again = append(c.again, c.receive(i))
	}
	accepted = true
	made, err := c.req.Accept(c.domain.Domain, rdma.ConnConfig{MaxSendWR: 2 * credits, MaxRecvWR: receives}, c.again)
	if err != nil {
		return err
	}
	c.life.Lock()
	c.Conn = made
	dead := c.dead.Load()
	c.life.Unlock()
	if dead {
		return errEnded
	}
	return nil
}

// receive returns the receive into message buffer i.
func (c *conn) receive(i uint64) rdma.WorkRequest {
	return rdma.WorkRequest{
		ID: i, Op: rdma.OpRecv,
		Local: rdma.SGE{Region: c.msgs, Off: i * wire.MaxMessage, Len: wire.MaxMessage},
	}
}

// release ends the lane: first its queue pair, so that nothing more is placed, then its
// keys.
func (c *conn) release() {
	if c.Conn != nil {
		if c.alive = c.Close(); c.alive != nil {
			c.log.Error("queue pair not destroyed: if it belongs to a session, its region cannot be granted again until pmnbd-target restarts", slog.Any("error", c.alive))
		}
	}
	if c.session != nil {
		c.session.export.syncer.forget(c) // the syncer answers from c.mem
		c.session.export.settlings.forget(c)
	}
	if c.msgs != nil {
		if err := c.domain.Deregister(c.msgs); err != nil {
			c.log.Error("memory not deregistered", slog.Any("error", err))
		}
	}
	if c.domain != nil {
		if err := c.domain.release(); err != nil {
			c.log.Error("protection domain not closed", slog.Any("error", err))
			c.alive = errors.Join(c.alive, err) // the domain may have a queue pair that Accept never returned
		}
	}
	if c.mem != nil {
		_ = unix.Munmap(c.mem) // fails only for addresses that are not mapped
	}
	c.s.mu.Lock()
	delete(c.s.conns, c)
	c.s.mu.Unlock()
	if s := c.hint; s != nil && c.alive == nil {
		s.remove(c)
	}
	close(c.done)
}

// interrupt destroys the connection from any goroutine, also while it is being made.
func (c *conn) interrupt() error {
	c.life.Lock()
	c.dead.Store(true)
	made := c.Conn
	c.life.Unlock()
	if made == nil {
		c.req.Abandon()
		return nil
	}
	return made.Close()
}

// arrived returns how many bytes of Writes have arrived on c, which may still be being
// made.
func (c *conn) arrived() uint64 {
	c.life.Lock()
	defer c.life.Unlock()
	if c.Conn == nil {
		return 0
	}
	return c.Arrived()
}

// poll handles all completions.
func (c *conn) poll(cs []rdma.Completion) error {
	for {
		n, err := c.Poll(cs)
		if n == 0 {
			return err
		}
		c.again, c.asked = c.again[:0], asked{}
		for _, done := range cs[:n] {
			if done.Op != rdma.OpRecv {
				continue
			}
			off := done.ID * wire.MaxMessage
			if err := c.handle(c.mem[off : off+uint64(done.Len)]); err != nil {
				return err
			}
			c.again = append(c.again, c.receive(done.ID))
		}
		if len(c.again) == 0 {
			continue
		}
		if err := c.PostRecv(c.again); err != nil {
			return err
		}
	}
}

// handle handles one message. An error ends the connection.
func (c *conn) handle(msg []byte) error {
	t, err := wire.TypeOf(msg)
	if err != nil {
		var version *wire.VersionError
		if errors.As(err, &version) {
			return errors.Join(err, c.refuse(&wire.Refused{Code: wire.CodeVersion, Text: err.Error()}, nil))
		}
		return err
	}
	if c.session == nil {
		return c.handshake(t, msg)
	}
	c.session.heard.Store(clock())
	switch t {
	case wire.TypeBarrier:
		if err := c.barrier.Decode(msg); err != nil {
			return err
		}
		return c.flush(&c.barrier)
	case wire.TypeZero:
		var m wire.Zero
		if err := m.Decode(msg); err != nil {
			return err
		}
		return c.zero(m)
	case wire.TypeRecord, wire.TypeBits, wire.TypeDigest:
		return c.mirror(t, msg)
	case wire.TypeBad:
		var m wire.Bad
		if err := m.Decode(msg); err != nil {
			return err
		}
		return c.bad(m)
	case wire.TypeHeartbeat:
		var m wire.Heartbeat
		if err := m.Decode(msg); err != nil {
			return err
		}
		e := c.session.export
		y := e.syncer
		y.beat(c.session)
		ack := wire.HeartbeatAck{
			Seq: m.Seq, Barrier: y.oldest(c.session), Doubt: y.doubt.Load(), DoubtLeft: y.left.Load(),
			Mark: e.r.Superblock().Mark, // what is durable
		}
		return c.out.send(c, ack.Append(nil))
	case wire.TypeClose:
		if c.lane != 0 {
			break
		}
		var m wire.Close
		if err := m.Decode(msg); err != nil {
			return err
		}
		return c.session.close(m.Epoch)
	}
	return fmt.Errorf("%w: %v in a session", errStranger, t)
}
