package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A RefusedError is the target's refusal of a session.
type RefusedError struct {
	Region string
	wire.Refused
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("the target refuses region %s: %v", e.Region, e.Code)
	if e.Code == wire.CodeBusy && e.Holder != [16]byte{} { // else a grant is under way
		s += fmt.Sprintf(", held by %s for %d more seconds, and longer while that lives: stop it, or take the region from it with --takeover", uuid.UUID(e.Holder), e.Seconds)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// errSessionClosed ends a lane whose session was given back.
var errSessionClosed = errors.New("session closed")

const (
	// openTries is how often OPEN is sent: once to learn the epoch, once knowingly,
	// and once more if somebody else was faster.
	openTries = 3
	// closeTimeout bounds the wait for CLOSED: everything is durable already, and
	// the lease ends by itself.
	closeTimeout = 5 * time.Second
)

// receiveInto is the receive into message buffer i of mem.
func (d *Device) receiveInto(mem *rdma.MemoryRegion, i uint64) rdma.WorkRequest {
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
	durable      wire.Durable // the last barrier of the lane that the target made durable
}

// connect makes the connection of a lane, with its receives posted.
func (d *Device) connect(ctx context.Context, lane int, privateData []byte) (c dialed, err error) {
	mem := d.control[lane*controlSize : (lane+1)*controlSize]
	if c.recvs, err = d.domain.Register(mem[:recvSize+sinkSize:recvSize+sinkSize], rdma.LocalWrite); err != nil {
		return c, fmt.Errorf("register control memory: %w", err)
	}
	if c.sends, err = d.domain.Register(mem[recvSize+sinkSize:], 0); err != nil {
		return c, fmt.Errorf("register control memory: %w", err)
	}
	var wrs []rdma.WorkRequest
	for i := range uint64(maxMessages) {
		wrs = append(wrs, d.receiveInto(c.recvs, i))
	}
	c.conn, err = d.domain.Dial(ctx, d.cfg.Addr, rdma.ConnConfig{PrivateData: privateData, MaxRecvWR: maxMessages}, wrs)
	if err != nil {
		if reject := (*rdma.RejectError)(nil); errors.As(err, &reject) {
			return c, err // it serves, and says why not this initiator
		}
		return c, fmt.Errorf("%w: is pmnbd-target serving there?", err)
	}
	d.met = true
	if !c.conn.Caps().OrderedPlacement {
		err = fmt.Errorf("the RDMA device does not place overlapping Writes in order: %w yet", rdma.ErrNotSupported)
		return c, errors.Join(err, c.conn.Close())
	}
	return c, nil
}

// open obtains the session and makes its lanes.
func (d *Device) open(ctx context.Context) (err error) {
	var g wire.Opened
	var conns []dialed
	err = d.insist(ctx, func(ctx context.Context) (err error) {
		g, conns, err = d.tryOpen(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := d.noteGrant(&g); err != nil {
		for _, c := range conns {
			err = errors.Join(err, c.conn.Close())
		}
		return err
	}
	d.granted, d.method = g, g.Method
	d.mark.Store(g.Mark)
	d.core.commit.inherits = g.Flags&wire.OpenedDoubt != 0
	for i, c := range conns {
		l := newLane(d, d.core.streams[i])
		l.connected(c)
		d.lanes = append(d.lanes, l)
	}
	d.info.Size, d.info.BlockMin, d.info.BlockPreferred, d.info.CanZero = g.Size, 1, 4096, true
	d.info.Description = describe(d.cfg.Region, g.Class)
	if d.unclean {
		d.log.Warn("the region's former session did not close: what it had acknowledged and not flushed is lost", zap.String("region", d.cfg.Region))
	}
	if g.Class == persist.ClassVolatile {
		d.log.Warn("the region is volatile: FLUSH means visible at the target, not durable", zap.String("region", d.cfg.Region))
	}
	d.log.Info("session opened", zap.String("region", d.cfg.Region), zap.String("target", d.cfg.Addr),
		zap.Stringer("class", g.Class), zap.Uint64("size", g.Size), zap.Uint64("epoch", g.Epoch), zap.Int("lanes", len(d.lanes)),
		zap.Stringer("method", d.method), zap.String("why", d.methodWhy()))
	return nil
}

// tryOpen tries once to obtain the session on lane 0, and joins the other lanes.
func (d *Device) tryOpen(ctx context.Context) (g wire.Opened, conns []dialed, err error) {
	defer func() {
		if err != nil {
			for _, c := range conns {
				_ = c.conn.Close() // err says why
			}
		}
	}()
	if err := d.openDomain(ctx); err != nil {
		return g, conns, err
	}
	c, err := d.connect(ctx, 0, nil)
	if err != nil {
		return g, conns, err
	}
	conns = append(conns, c)
	if g, err = d.handshake(ctx, &conns[0]); err != nil {
		return g, conns, err
	}
	if err := check(&g); err != nil {
		return g, conns, err
	}
	if d.claim == nil || d.claim.region != g.UUID {
		return g, conns, fmt.Errorf("the target grants another region than it told the UUID of: %w", wire.ErrMalformed)
	}
	if g.Class == persist.ClassVolatile && !d.cfg.AllowVolatile {
		return g, conns, errors.New("the region is volatile: --allow-volatile permits that")
	}
	conns, err = d.joinAll(ctx, conns, &g)
	return g, conns, err
}

// joinAll connects the other lanes of the session that g grants on the first of conns.
func (d *Device) joinAll(ctx context.Context, conns []dialed, g *wire.Opened) ([]dialed, error) {
	if d.cfg.Lanes > int(g.Lanes) {
		return conns, fmt.Errorf("the target allows %d lanes for a session, not %d: %w", g.Lanes, d.cfg.Lanes, rdma.ErrNotSupported)
	}
	conns[0].credits, conns[0].durable = g.Credits, g.Durable
	for n := 1; n < d.cfg.Lanes; n++ {
		hint := wire.JoinHint{Lane: uint16(n), Epoch: g.Epoch, Region: g.UUID}
		conns[0].secret.Sign(&hint)
		c, err := d.connect(ctx, n, hint.Append(nil))
		if err != nil {
			return conns, fmt.Errorf("lane %d: %w", n, err)
		}
		c.secret = conns[0].secret
		conns = append(conns, c)
		joined, err := d.join(ctx, &c, g, n)
		if err != nil {
			return conns, fmt.Errorf("lane %d: %w", n, err)
		}
		conns[n].credits, conns[n].durable = joined.Credits, joined.Durable
	}
	for _, c := range conns {
		if c.credits <= reservedCredits+zeroCredits {
			return conns, fmt.Errorf("the target takes %d messages at a time, too few to send barriers: %w", c.credits, wire.ErrMalformed)
		}
	}
	return conns, nil
}

// join makes c lane n of the session.
func (d *Device) join(ctx context.Context, c *dialed, g *wire.Opened, n int) (joined wire.Joined, err error) {
	msg := wire.Join{Epoch: g.Epoch, Lane: uint16(n)}
	if _, err := rand.Read(msg.Nonce[:]); err != nil {
		return joined, fmt.Errorf("draw a nonce: %w", err)
	}
	request := msg.Append(nil)
	c.secret.SignRequest(request)
	var refused wire.Refused
	t, err := d.ask(ctx, c, request, &joined, &refused)
	if err != nil {
		return joined, fmt.Errorf("JOIN: %w", err)
	}
	if t == wire.TypeRefused {
		err := &RefusedError{Region: d.cfg.Region, Refused: refused}
		if refused.Code == wire.CodeNotOwner { // lane 0 has been lost, or the target has begun anew
			return joined, fmt.Errorf("%w: JOIN: %s", rdma.ErrLost, err.Error()) // to callers it is no refusal
		}
		return joined, err
	}
	if joined.Epoch != g.Epoch || int(joined.Lane) != n {
		return joined, fmt.Errorf("the target joined lane %d of epoch %d: %w", joined.Lane, joined.Epoch, wire.ErrMalformed)
	}
	return joined, nil
}

// check tells whether a session can be held on what the target granted.
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
func (d *Device) drawOwner() error {
	d.owner.ID = d.cfg.ID
	if _, err := rand.Read(d.owner.Nonce[:]); err != nil {
		return fmt.Errorf("draw a nonce: %w", err)
	}
	return nil
}

// methods are those that this end has, or the one that it insists on.
func (d *Device) methods(conn rdma.Conn) (s persist.Methods, err error) {
	for _, m := range persist.BestFirst {
		switch {
		case m == persist.MethodFlush && !conn.Caps().PersistentFlush:
			if d.cfg.Method == m {
				return 0, fmt.Errorf("method %v: the RDMA device of this machine lacks native FLUSH: %w", m, rdma.ErrNotSupported)
			}
		case d.cfg.Method == 0 || d.cfg.Method == m:
			s = s.With(m)
		}
	}
	return s, nil
}

// methodWhy says why barriers are done as they are: what speaks against the methods
// that would have been better.
func (d *Device) methodWhy() string {
	if d.cfg.Method == d.method {
		return "it was asked for"
	}
	var against []string
	for _, m := range persist.BestFirst {
		if m == d.method {
			break
		}
		why := d.granted.WhyNot[m-1]
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
func (d *Device) request(owner persist.Owner) wire.Open {
	m := wire.Open{Owner: owner, Credits: maxMessages, Lanes: uint16(d.cfg.Lanes), Region: d.cfg.Region}
	if d.cfg.AllowVolatile {
		m.Flags |= wire.OpenAllowVolatile
	}
	if d.cfg.Takeover {
		m.Flags |= wire.OpenTakeover
	}
	return m
}

// takesOver says so, if the next OPEN will end somebody's lease: refused told whose.
func (d *Device) takesOver(refused *wire.Refused) {
	if refused.Seconds > 0 {
		d.log.Warn("TAKING THE REGION OVER: what its holder has not flushed is lost to it, and it can never come back",
			zap.String("region", d.cfg.Region), zap.Stringer("holder", uuid.UUID(refused.Holder)), zap.Uint32("lease_left_seconds", refused.Seconds))
	}
}

// chosen tells whether the target chose a method that it was offered.
func chosen(offered persist.Methods, g *wire.Opened) error {
	if !offered.Has(g.Method) {
		return fmt.Errorf("the target chose method %d, which was not offered: %w", g.Method, wire.ErrMalformed)
	}
	return nil
}

// ask sends a message and decodes what answers it: granted or refused.
func (d *Device) ask(ctx context.Context, c *dialed, msg []byte, granted interface{ Decode([]byte) error }, refused *wire.Refused) (wire.Type, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() }) // wakes Wait
	t, err := d.exchange(c, msg, granted, refused)
	if !stop() {
		return 0, fmt.Errorf("%w: %w", rdma.ErrTimeout, ctx.Err()) // the connection is closed
	}
	return t, err
}

func (d *Device) exchange(c *dialed, msg []byte, granted interface{ Decode([]byte) error }, refused *wire.Refused) (wire.Type, error) {
	n := copy(c.sends.Mem, msg)
	wr := rdma.WorkRequest{ID: tagControl, Op: rdma.OpSend, Signaled: true, Local: rdma.SGE{Region: c.sends, Len: uint32(n)}}
	if _, err := c.conn.Post([]rdma.WorkRequest{wr}); err != nil {
		return 0, err
	}
	answer, again, err := d.answer(c.conn, c.recvs)
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
	case t == wire.TypeChallenge && d.cfg.Key == nil:
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
	return t, c.conn.PostRecv([]rdma.WorkRequest{again})
}

// answer waits until what was sent has left its slot and one message came, and
// returns that with the receive to post again.
func (d *Device) answer(conn rdma.Conn, recvs *rdma.MemoryRegion) (msg []byte, again rdma.WorkRequest, err error) {
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
			msg, again = recvs.Mem[off:off+uint64(c[0].Len)], d.receiveInto(recvs, i)
		}
	}
	return msg, again, nil
}

// serve starts the goroutines of the session, beside the lanes' own; leave ends them.
func (d *Device) serve() {
	g := &d.granted
	d.heard.Store(d.clock())
	go d.heartbeats(time.Duration(g.Heartbeat)*time.Millisecond, time.Duration(g.Lease)*time.Millisecond)
	go d.keep()
}

// beatLeft notes that the heartbeat has left the send queue. The target has a lease to
// answer it from now on.
func (d *Device) beatLeft() {
	d.beatWaits.Store(false)
	d.heard.Store(d.clock())
}

// arrived is how many bytes of answers to Reads have come on all lanes.
func (d *Device) arrived() (n uint64) {
	for _, l := range d.lanes {
		l.mu.Lock()
		n += l.conn.Arrived()
		l.mu.Unlock()
	}
	return n
}

// heartbeats tells the target that we live, and notices that it does not: no
// transport says so in useful time (design §5). A network may be slow, and have much to
// carry before a heartbeat or its ack. So the target is heard, too, by parts of answers to
// Reads, and by the completion of what was posted ahead of a heartbeat that has not left.
func (d *Device) heartbeats(interval, lease time.Duration) {
	defer close(d.beatEnded)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var sent, generation uint64 // the last heartbeat, and on which connection
	var arrived uint64
	var stall stall
	for {
		select {
		case <-d.beat:
			return
		case <-tick.C:
		}
		if d.waits.Load() != nil {
			continue // the keeper is at it
		}
		if now := d.arrived(); now != arrived {
			arrived = now
			d.heard.Store(d.clock())
		}
		if silence := time.Duration(d.clock() - d.heard.Load()); silence > lease {
			d.lanes[0].abort(fmt.Errorf("%w: the target has said nothing for %v: %w", rdma.ErrLost, silence.Round(time.Millisecond), rdma.ErrTimeout))
			continue
		}
		unanswered := sent
		if d.beatAcked.Load() == sent || d.beatWaits.Load() {
			unanswered = 0 // the target does not have it yet
		}
		if l, err := stall.find(d, d.clock(), stallLeases*lease, unanswered); err != nil {
			l.abort(err)
			continue
		}
		if now := d.generation.Load(); d.beatAcked.Load() != sent && generation == now {
			continue // there is one credit for heartbeats
		} else {
			generation = now
		}
		sent++
		m := wire.Heartbeat{Seq: sent}
		d.beatWaits.Store(true)
		d.lanes[0].send(tagBeat, m.Append(nil))
	}
}
