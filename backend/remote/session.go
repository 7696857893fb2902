package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// errSessionClosed ends a lane whose session was given back.
var errSessionClosed = errors.New("session closed")

const (
	// openTries is how often a start sends OPEN: once to learn the epoch, once with it,
	// and once more if somebody else was faster.
	openTries = 3
	// closeTimeout bounds the wait for CLOSED: everything is durable already, and
	// the lease ends by itself.
	closeTimeout = 5 * time.Second
)

// receiveInto is the receive into message buffer i of mem.
func receiveInto(mem *rdma.MemoryRegion, i uint64) rdma.WorkRequest {
	return rdma.WorkRequest{
		ID: tagRecv | i, Op: rdma.OpRecv,
		Local: rdma.SGE{Region: mem, Off: i * wire.MaxMessage, Len: wire.MaxMessage},
	}
}

// A dialed is a connection that is not a lane yet.
type dialed struct {
	conn         rdma.Conn
	recvs, sends *rdma.MemoryRegion
	credits      uint16       // the target's
	nonce        wire.Nonce   // ours, of the connection
	secret       *wire.Secret // of the session, once there is one
	key          string       // the fingerprint of the key behind secret; empty without one
	durable      wire.Durable // the last barrier of the lane that the target made durable
	bad          *badLeg      // of lane 0: what of the region is bad; or nil
	asked        time.Time    // when the last message was sent that the target has answered
}

// connect makes the connection of a lane, with its receives posted.
//
// If private is not nil, it returns the private data for the lane's channel, which is nil if the
// connection is not encrypted.
func (g *leg) connect(ctx context.Context, lane int, private func(*rdma.Channel) []byte) (c dialed, err error) {
	mem := g.control[lane*controlSize : (lane+1)*controlSize]
	if c.recvs, err = g.domain.Register(mem[:recvSize+sinkSize:recvSize+sinkSize], rdma.LocalWrite); err != nil {
		return c, fmt.Errorf("register control memory: %w", err)
	}
	if c.sends, err = g.domain.Register(mem[recvSize+sinkSize:], 0); err != nil {
		return c, fmt.Errorf("register control memory: %w", err)
	}
	var wrs []rdma.WorkRequest
	for i := range uint64(maxMessages) {
		wrs = append(wrs, receiveInto(c.recvs, i))
	}
	cfg := rdma.ConnConfig{Private: private, MaxRecvWR: maxMessages}
	if private != nil {
		cfg.PrivateData = private(nil)
	}
	c.conn, err = g.domain.Dial(ctx, g.cfg.Addr, cfg, wrs)
	if err != nil {
		if reject := (*rdma.RejectError)(nil); errors.As(err, &reject) {
			return c, err // it serves, and says why not this initiator
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return c, err // it had no time to show whether it does
		}
		return c, fmt.Errorf("%w: is pmnbd-target serving there?", err)
	}
	g.opening.met = true
	switch encrypted := c.conn.Caps().Channel != nil; {
	case encrypted && g.cfg.Key == nil:
		return c, errors.Join(ErrNoKey, c.conn.Close())
	case !encrypted && g.cfg.Encrypted:
		return c, errors.Join(errClear, c.conn.Close())
	}
	if !c.conn.Caps().OrderedPlacement {
		err = fmt.Errorf("the RDMA device does not place overlapping Writes in order: %w yet", rdma.ErrNotSupported)
		return c, errors.Join(err, c.conn.Close())
	}
	return c, nil
}

// tryOpen makes one attempt: OPEN on lane 0, then JOIN on the other lanes.
func (g *leg) tryOpen(ctx context.Context) (o wire.Opened, conns []dialed, err error) {
	defer func() {
		if err != nil {
			for _, c := range conns {
				_ = c.conn.Close() // err says why
			}
		}
	}()
	if err := g.openDomain(ctx); err != nil {
		return o, conns, err
	}
	c, err := g.connect(ctx, 0, nil)
	if err != nil {
		return o, conns, err
	}
	conns = append(conns, c)
	if o, err = g.handshake(ctx, &conns[0]); err != nil {
		return o, conns, err
	}
	if err := check(&o); err != nil {
		return o, conns, err
	}
	if !g.device.hasClaim(o.UUID) {
		return o, conns, fmt.Errorf("the target grants another region than it told the UUID of: %w", wire.ErrMalformed)
	}
	if o.Class == persist.ClassVolatile && !g.cfg.AllowVolatile {
		return o, conns, ErrVolatile
	}
	conns, err = g.joinAll(ctx, conns, &o)
	return o, conns, err
}

// joinAll connects the other lanes of the session that o grants on the first of conns.
func (g *leg) joinAll(ctx context.Context, conns []dialed, o *wire.Opened) ([]dialed, error) {
	if g.cfg.Lanes > int(o.Lanes) {
		return conns, fmt.Errorf("a session has at most so many lanes at the target: %d, and not %d: %w", o.Lanes, g.cfg.Lanes, rdma.ErrNotSupported)
	}
	conns[0].credits, conns[0].durable = o.Credits, o.Durable
	bad, err := g.askBad(ctx, &conns[0], o)
	if err != nil {
		return conns, fmt.Errorf("BAD: %w", err)
	}
	conns[0].bad = bad
	for n := 1; n < g.cfg.Lanes; n++ {
		c, err := g.connect(ctx, n, func(channel *rdma.Channel) []byte {
			hint := wire.JoinHint{Lane: uint16(n), Epoch: o.Epoch, Region: o.UUID}
			secret := conns[0].secret.On(channel.Bound())
			secret.Sign(&hint)
			return hint.Append(nil)
		})
		if err != nil {
			return conns, fmt.Errorf("lane %d: %w", n, err)
		}
		secret := conns[0].secret.On(c.conn.Caps().Channel.Bound())
		c.secret = &secret
		conns = append(conns, c)
		joined, err := g.join(ctx, &c, o, n)
		if err != nil {
			return conns, fmt.Errorf("lane %d: %w", n, err)
		}
		conns[n].credits, conns[n].durable = joined.Credits, joined.Durable
	}
	for _, c := range conns {
		if int(c.credits) <= g.reserved() {
			return conns, fmt.Errorf("the number of messages that the target takes at a time, %d, is too small to send barriers: %w", c.credits, wire.ErrMalformed)
		}
	}
	return conns, nil
}

// join makes c lane n of the session.
func (g *leg) join(ctx context.Context, c *dialed, o *wire.Opened, n int) (joined wire.Joined, err error) {
	msg := wire.Join{Epoch: o.Epoch, Lane: uint16(n)}
	if _, err := rand.Read(msg.Nonce[:]); err != nil {
		return joined, fmt.Errorf("draw a nonce: %w", err)
	}
	request := msg.Append(nil)
	c.secret.SignRequest(request)
	var refused wire.Refused
	t, err := g.ask(ctx, c, request, &joined, &refused)
	if err != nil {
		return joined, fmt.Errorf("JOIN: %w", err)
	}
	if t == wire.TypeRefused {
		err := &RefusedError{Region: g.cfg.Region, said: refused}
		if refused.Code == wire.CodeNotOwner { // lane 0 has been lost, or the target has begun anew
			return joined, fmt.Errorf("%w: JOIN: %s", rdma.ErrLost, err.Error()) // to callers it is no refusal
		}
		return joined, err
	}
	if joined.Epoch != o.Epoch || int(joined.Lane) != n {
		return joined, fmt.Errorf("the target joined lane %d of epoch %d: %w", joined.Lane, joined.Epoch, wire.ErrMalformed)
	}
	return joined, nil
}

// check returns an error if no session can work with what the target granted.
func check(g *wire.Opened) error {
	switch {
	case g.Size == 0 || g.Size > math.MaxInt64 || g.Base > math.MaxUint64-g.Size:
		return fmt.Errorf("the target grants %d bytes at %#x: %w", g.Size, g.Base, wire.ErrMalformed)
	case !g.Class.Known():
		return fmt.Errorf("the target's region is of class %d, which this release does not know: %w", g.Class, wire.ErrMalformed)
	case !g.Methods.Has(persist.MethodGPSPM): // what settles doubt
		return fmt.Errorf("the target offers methods %#x, gpspm not among them: %w", g.Methods, rdma.ErrNotSupported)
	case !g.Methods.Has(g.Method):
		return fmt.Errorf("the target chose method %d, which it does not call sound: %w", g.Method, wire.ErrMalformed)
	case wire.MaxRanges(g.MaxMessage) == 0:
		return fmt.Errorf("the target takes messages of %d bytes, too few to send barriers: %w", g.MaxMessage, wire.ErrMalformed)
	case g.Heartbeat == 0 || g.Lease <= g.Heartbeat:
		return fmt.Errorf("the target wants heartbeats every %d ms and a lease of %d ms: %w", g.Heartbeat, g.Lease, wire.ErrMalformed)
	}
	return nil
}

// drawOwner makes the owner of this run.
func (g *leg) drawOwner() error {
	g.owner.ID = g.cfg.ID
	if _, err := rand.Read(g.owner.Nonce[:]); err != nil {
		return fmt.Errorf("draw a nonce: %w", err)
	}
	return nil
}

// methods are those that this end supports, or the one that Config.Method insists on.
func (g *leg) methods(conn rdma.Conn) (s persist.Methods, err error) {
	for _, m := range persist.BestFirst {
		switch {
		case m == persist.MethodFlush && !conn.Caps().PersistentFlush:
			if g.cfg.Method == m {
				return 0, fmt.Errorf("method %v: the RDMA device of this machine lacks native FLUSH: %w", m, rdma.ErrNotSupported)
			}
		case g.cfg.Method == 0 || g.cfg.Method == m:
			s = s.With(m)
		}
	}
	return s, nil
}

// methodWhy says why the session has its method: what speaks against the better ones.
func (g *leg) methodWhy() string {
	if g.cfg.Method == g.method {
		return "it was asked for"
	}
	var against []string
	for _, m := range persist.BestFirst {
		if m == g.method {
			break
		}
		why := g.granted.WhyNot[m-1]
		if why == persist.ReasonSound { // we have no such device
			against = append(against, fmt.Sprintf("not %v: this machine's RDMA device lacks it", m))
		} else {
			against = append(against, fmt.Sprintf("not %v: %v", m, why))
		}
	}
	if len(against) == 0 {
		return "the best that there is"
	}
	return strings.Join(against, "; ")
}

// request is an OPEN or RESUME of owner, without epoch and methods.
func (g *leg) request(owner persist.Owner) wire.Open {
	m := wire.Open{Owner: owner, Credits: maxMessages, Lanes: uint16(g.cfg.Lanes), Region: g.cfg.Region, Life: g.life}
	if g.cfg.AllowVolatile {
		m.Flags |= wire.OpenAllowVolatile
	}
	if g.cfg.Takeover || g.arbitrated {
		m.Flags |= wire.OpenTakeover
	}
	if g.cfg.Single || g.restored {
		m.Flags |= wire.OpenSingle
	}
	if g.joins {
		m.Flags |= wire.OpenJoin
	}
	return m
}

// takesOver warns if the next OPEN will end somebody's lease: refused told whose.
func (g *leg) takesOver(refused *wire.Refused) {
	if refused.Seconds > 0 {
		g.log.Warn("TAKING THE REGION OVER: what its holder has not flushed is lost to it, and it can never come back",
			slog.String("region", g.cfg.Region), slog.String("holder", uuid.UUID(refused.Holder).String()), slog.Uint64("lease_left_seconds", uint64(refused.Seconds)))
	}
}

// chosen returns an error if the target chose a method that nobody offered.
func chosen(offered persist.Methods, g *wire.Opened) error {
	if !offered.Has(g.Method) {
		return fmt.Errorf("the target chose method %d, which was not offered: %w", g.Method, wire.ErrMalformed)
	}
	return nil
}

// ask sends a message and decodes the answer into granted or refused.
func (g *leg) ask(ctx context.Context, c *dialed, msg []byte, granted interface{ Decode([]byte) error }, refused *wire.Refused) (wire.Type, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() }) // wakes Wait
	t, err := g.exchange(c, msg, granted, refused)
	if !stop() {
		return 0, fmt.Errorf("%w: %w", rdma.ErrTimeout, ctx.Err()) // the connection is closed
	}
	return t, err
}

func (g *leg) exchange(c *dialed, msg []byte, granted interface{ Decode([]byte) error }, refused *wire.Refused) (wire.Type, error) {
	n := copy(c.sends.Mem, msg)
	now := time.Now()
	wr := rdma.WorkRequest{ID: tagControl, Op: rdma.OpSend, Signaled: true, Local: rdma.SGE{Region: c.sends, Len: uint32(n)}}
	if _, err := c.conn.Post([]rdma.WorkRequest{wr}); err != nil {
		return 0, err
	}
	answer, again, err := g.answer(c.conn, c.recvs)
	if err != nil {
		return 0, err
	}
	t, err := wire.TypeOf(answer)
	if err != nil {
		return 0, fmt.Errorf("the target's answer: %w", err)
	}
	switch {
	case t == wire.TypeRefused:
		err = refused.Decode(answer)
	case t == wire.TypeChallenge && g.cfg.Key == nil:
		err = ErrWantsKey
	default:
		err = granted.Decode(answer)
	}
	if err == nil {
		err = c.proven(msg, answer, t, refused)
	}
	if err != nil {
		return 0, err
	}
	c.asked = now
	return t, c.conn.PostRecv([]rdma.WorkRequest{again})
}

// answer waits until the message has left its send slot and the answer is there. It returns the
// answer, and the receive to post again.
func (g *leg) answer(conn rdma.Conn, recvs *rdma.MemoryRegion) (msg []byte, again rdma.WorkRequest, err error) {
	var c [1]rdma.Completion
	for sent := false; !sent || msg == nil; {
		n, err := conn.Poll(c[:])
		switch {
		case err != nil:
			return nil, again, err
		case n == 0:
			if err := conn.Wait(); err != nil {
				return nil, again, err
			}
		case c[0].Op == rdma.OpSend:
			sent = true
		case c[0].Op == rdma.OpRecv:
			i := c[0].ID &^ tagMask
			off := i * wire.MaxMessage
			msg, again = recvs.Mem[off:off+uint64(c[0].Len)], receiveInto(recvs, i)
		}
	}
	return msg, again, nil
}
