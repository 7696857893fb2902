package target

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// maxOpens is how many requests for a session a connection may send: one to learn the
// epoch, and some in case it loses races.
const maxOpens = 8

// handshake handles a message of a connection that has no session.
func (c *conn) handshake(t wire.Type, msg []byte) error {
	if c.opens++; c.opens > maxOpens {
		return fmt.Errorf("%w: OPEN sent %d times", errStranger, c.opens)
	}
	switch t {
	case wire.TypeOpen:
		var m wire.Open
		if err := m.Decode(msg); err != nil {
			return err
		}
		return c.grant(&m, msg, false)
	case wire.TypeResume:
		var m wire.Resume
		if err := m.Decode(msg); err != nil {
			return err
		}
		return c.grant((*wire.Open)(&m), msg, true)
	case wire.TypeJoin:
		var m wire.Join
		if err := m.Decode(msg); err != nil {
			return err
		}
		joined, refused := c.join(&m, msg)
		if refused != nil {
			return c.refuse(refused, msg)
		}
		c.known = true
		c.deadline.Stop()
		return c.out.send(c, c.sign(joined.Append(nil), msg))
	}
	return fmt.Errorf("%w: %v without a session", errStranger, t)
}

// grant answers an OPEN or RESUME: m, decoded from msg.
func (c *conn) grant(m *wire.Open, msg []byte, resume bool) error {
	if !c.s.strangers.leave(c) {
		return errCrowded
	}
	offer := c.s.offer.Load()
	challenge, refused := c.authenticate(offer.Keys, m, msg)
	if challenge != nil {
		c.s.stranger(c, spoken)
		c.deadline.Reset(c.s.cfg.ProofTimeout) // time for another round trip
		return c.out.send(c, challenge.Append(nil))
	}
	if refused != nil {
		c.s.stranger(c, spoken)
		return c.refuse(refused, msg)
	}
	c.deadline.Stop() // the grant itself has no deadline
	opened, refused := c.open(offer, m, resume)
	if refused != nil {
		err := c.refuse(refused, msg)
		c.standBy()
		return err
	}
	c.known = true
	return c.out.send(c, c.sign(opened.Append(nil), msg))
}

// standBy makes c a stranger again. A stranger that has sent its request may stay for
// OpenTimeout.
func (c *conn) standBy() {
	c.deadline.Reset(c.s.cfg.OpenTimeout)
	at := spoken
	if c.secret != nil {
		at = proven
	}
	c.s.stranger(c, at)
}

// refuse answers request with r. If the request had no proof, the answer has none.
func (c *conn) refuse(r *wire.Refused, request []byte) error {
	if r.Code == wire.CodeEpoch {
		c.probed = true
	} else {
		c.s.refusals.Warn("session refused", slog.String("peer", c.peer), slog.String("code", r.Code.String()), slog.String("text", r.Text), slog.Uint64("epoch", r.Epoch))
	}
	answer := r.Append(nil)
	if request != nil {
		answer = c.sign(answer, request)
	}
	return c.out.send(c, answer)
}

// open grants a session, in the order of design §5, or returns the refusal. RESUME grants
// a new session to the same owner. Nobody else had the region in between, so no new doubt
// arises. offer is what the server offered when c proved its key.
func (c *conn) open(offer *offered, m *wire.Open, resume bool) (*wire.Opened, *wire.Refused) {
	e, refused := c.exportFor(offer, m)
	if refused != nil {
		return nil, refused
	}
	if r := e.check(m, resume); r != nil {
		return nil, r // nothing was destroyed
	}
	if r := e.withheld(m, resume); r != nil {
		return nil, r
	}
	if r := c.disorders(); r != nil {
		return nil, r
	}
	facts := e.facts(c)
	if _, ok := choose(m.Methods, facts); !ok {
		return nil, noMethod(m.Methods, facts)
	}
	if !e.granting.TryLock() {
		return nil, &wire.Refused{Code: wire.CodeBusy, Seconds: 1, Text: "the target is handling another request for the region, try again"}
	}
	defer e.granting.Unlock()
	if e.withdrawn {
		return nil, unknown(m.Region)
	}
	if c.s.offer.Load() != offer { // c may have the region no more, or its key may not count
		return nil, &wire.Refused{Code: wire.CodeBusy, Seconds: 1, Text: "what the target serves, and to whom, has just changed: try again"}
	}
	if r := e.check(m, resume); r != nil {
		return nil, r
	}
	e.begins.Store(true) // before the look at the others, whose grants look at this one
	defer e.begins.Store(false)
	if r := e.withheld(m, resume); r != nil {
		return nil, r // a save may have begun
	}
	sb, unclean, refused := e.succeedLocked(c, m, resume)
	if refused != nil {
		return nil, refused
	}
	mem, method, refused := e.register(c, m.Methods, &facts)
	if refused != nil {
		// The owner has the region although it gets no session. Its next start has to know.
		said := e.refusal(&sb)
		said.Code, said.Text = refused.Code, refused.Text
		return nil, said
	}
	s := newSession(c, e, &sb)
	s.mem, s.facts, s.method = mem, facts, method
	opened := s.describe(&sb, unclean)
	e.mu.Lock()
	if !resume {
		e.durable = [maxLanes]wire.Durable{} // belongs to another owner
	}
	opened.Durable = e.durable[0]
	e.session = s
	e.mu.Unlock()
	e.released.Store(false)
	c.session = s
	s.look(c.s.cfg.Heartbeat)
	c.log.Info("session granted", slog.String("region", e.r.Name()), slog.Uint64("epoch", s.epoch),
		slog.String("initiator", uuid.UUID(m.Owner.ID).String()), slog.String("key", cmp.Or(s.key, "none")), slog.String("cipher", cmp.Or(s.cipher, "not encrypted")),
		slog.String("class", e.r.Class().String()), slog.String("method", method.String()), slog.Bool("resumed", resume), slog.Bool("predecessor_unclean", unclean))
	return opened, nil
}

// exportFor returns the region of offer that m names, or the reason to refuse m in whatever
// state the region is.
func (c *conn) exportFor(offer *offered, m *wire.Open) (*export, *wire.Refused) {
	e := offer.exports[m.Region]
	allow, some := offer.Allow[m.Region]
	switch {
	case e == nil:
		return nil, unknown(m.Region)
	case c.hint != nil:
		return nil, &wire.Refused{Code: wire.CodeInvalid, Text: "OPEN or RESUME on a connection that was made to JOIN"}
	case m.Owner.ID == ([16]byte{}):
		return nil, &wire.Refused{Code: wire.CodeInvalid, Text: "the owner has no id"}
	case some && !slices.Contains(allow, m.Owner.ID):
		return nil, &wire.Refused{Code: wire.CodeNotAllowed, Text: fmt.Sprintf("the target does not allow the region to initiator %s", uuid.UUID(m.Owner.ID))}
	case offer.Encrypted[m.Region] && c.Caps().Channel == nil:
		return nil, &wire.Refused{Code: wire.CodeClear, Text: "the target demands it for this region"}
	}
	return e, nil
}

// succeedLocked ends the previous session, if there is one. Then it makes m's owner the
// region's owner in the next epoch, durably, and m's life its life. It returns the superblock
// that it wrote; the target may have settled the doubt in it since. unclean says that the previous
// owner did not close; a RESUME has no previous owner. The lock is e.granting.
func (e *export) succeedLocked(c *conn, m *wire.Open, resume bool) (granted region.Superblock, unclean bool, refused *wire.Refused) {
	before, owner := e.r.Superblock(), m.Owner
	left := e.leased(owner.ID, &before, e.session)
	// The old session's queue pairs go, and its keys with the last of them.
	if e.session != nil {
		if err := e.session.end(nil); err != nil {
			return before, false, &wire.Refused{Code: wire.CodeBusy, Seconds: 1, Text: fmt.Sprintf("the adapter did not end the previous session, restart pmnbd-target: %v", err)}
		}
	}
	if left > 0 {
		c.log.Warn("REGION TAKEN OVER: its holder loses what it has not flushed and cannot resume",
			slog.String("region", e.r.Name()), slog.String("holder", uuid.UUID(before.Owner.ID).String()),
			slog.String("by", uuid.UUID(owner.ID).String()), slog.Duration("lease_left", left))
	}
	err := e.r.Update(func(sb *region.Superblock) error {
		if !resume {
			// The session that has just ended may have changed the record.
			if code, text := unfit(m, sb); code != 0 {
				refused = e.refusal(sb)
				refused.Code, refused.Text = code, text
				return errRefused
			}
			sb.Life = max(sb.Life, m.Life)
			switch {
			case m.Flags&wire.OpenSingle == 0:
			case m.Life == 0:
				sb.ServeAlone()
			default:
				sb.Forget()
			}
		}
		if unclean = !resume && !sb.Clean && sb.Owner != (persist.Owner{}); unclean {
			e.syncer.doubted()
			sb.Doubt = true // somebody may have read bytes that are not durable
		}
		sb.Epoch++
		sb.Owner, sb.Clean = owner, false
		granted = *sb
		return nil
	})
	switch {
	case errors.Is(err, errRefused):
		return before, false, refused
	case errors.Is(err, region.ErrSave):
		// The region is well, and so is its owner's session if it can come back: any other code
		// would fail the device.
		if resume {
			e.heard()
		}
		return before, false, &wire.Refused{Code: wire.CodeBusy, Seconds: 1, Text: err.Error()}
	case err != nil:
		refused = e.refusal(&before)
		refused.Code, refused.Text = wire.CodeFailed, err.Error()
		return before, false, refused
	}
	return granted, unclean, nil
}

// errRefused ends an update of the superblock that the request does not get.
var errRefused = errors.New("refused")

// describe returns the answer that grants s on a region with superblock sb, except for
// what became durable.
func (s *session) describe(sb *region.Superblock, unclean bool) *wire.Opened {
	r, cfg := s.export.r, &s.export.s.cfg
	opened := &wire.Opened{
		UUID: r.UUID(), Size: r.Size(), Class: r.Class(), Epoch: sb.Epoch, ContentsID: sb.Contents, Mark: sb.Mark, Life: sb.Life, Record: sb.Record,
		Key: s.mem.Key, Base: s.mem.Base, Method: s.method,
		Credits: credits, Lanes: maxLanes, MaxMessage: wire.MaxMessage,
		Heartbeat: uint32(cfg.Heartbeat.Milliseconds()), Lease: uint32(cfg.Lease.Milliseconds()),
	}
	if s.conn.secret == nil {
		opened.Token = s.secret
	}
	for _, m := range persist.BestFirst {
		why := WhyNot(m, s.facts)
		opened.WhyNot[m-1] = why
		if why == persist.ReasonSound {
			opened.Methods = opened.Methods.With(m)
		}
	}
	if unclean {
		opened.Flags |= wire.OpenedUnclean
	}
	if sb.Doubt {
		opened.Flags |= wire.OpenedDoubt
	}
	if len(r.Bad()) > 0 {
		s.tells = true
		opened.Flags |= wire.OpenedBad
	}
	return opened
}

// disorders refuses c if its adapter, which is this machine's, may place an older Write
// over a newer one (RFC 5040 §5.5). The adapter that places decides, so the initiator's
// own adapter does not matter here (design §4.5).
func (c *conn) disorders() *wire.Refused {
	if c.Caps().OrderedPlacement {
		return nil
	}
	return &wire.Refused{Code: wire.CodeNotSupported, Text: "the target's RDMA device does not place overlapping Writes in order"}
}

// facts returns what is known for a session of lane c on e before its memory is
// registered.
func (e *export) facts(c *conn) Facts {
	caps, cfg := c.Caps(), &e.s.cfg
	return Facts{
		Class: e.r.Class(), EADR: e.r.Platform().Domain.EADR(),
		PlacesByDMA: caps.PlacesByDMA, PersistentFlush: caps.PersistentFlush,
		DirectWrite: cfg.DirectWrite, RelaxedOrdering: cfg.RelaxedOrdering,
	}
}

// register registers the region's data extent for c, with native FLUSH if the device and
// the memory have it. It corrects facts if registering with FLUSH fails, and returns the
// best method that the initiator has left. Call it only if the initiator is to get a
// session.
func (e *export) register(c *conn, initiator persist.Methods, facts *Facts) (mem *rdma.MemoryRegion, method persist.Method, _ *wire.Refused) {
	access := rdma.RemoteRead | rdma.RemoteWrite
	if e.r.Class() == persist.ClassFile {
		access |= rdma.PageCache
	}
	var err error
	if WhyNot(persist.MethodFlush, *facts) == persist.ReasonSound {
		if mem, err = c.domain.Register(e.r.Data(), access|rdma.RemoteFlush); err != nil {
			facts.PersistentFlush = false // the device does not keep its promise
			c.log.Warn("the device does not register the region with native FLUSH", slog.String("region", e.r.Name()), slog.Any("error", err))
		}
	}
	method, ok := choose(initiator, *facts)
	if !ok {
		return nil, 0, noMethod(initiator, *facts)
	}
	if mem == nil {
		if mem, err = c.domain.Register(e.r.Data(), access); err != nil {
			return nil, 0, &wire.Refused{Code: wire.CodeNotSupported, Text: fmt.Sprintf("register the region: %v", err)}
		}
	}
	return mem, method, nil
}

// noMethod refuses an initiator none of whose methods is sound.
func noMethod(initiator persist.Methods, facts Facts) *wire.Refused {
	r := &wire.Refused{Code: wire.CodeMethod}
	for _, m := range persist.BestFirst {
		if initiator.Has(m) {
			r.Text += fmt.Sprintf("%v is not sound here: %v. ", m, WhyNot(m, facts))
		}
	}
	r.Text = strings.TrimSuffix(r.Text, ". ")
	return r
}

// check returns why m cannot be granted now, or nil.
func (e *export) check(m *wire.Open, resume bool) *wire.Refused {
	sb := e.r.Superblock()
	r := e.refusal(&sb)
	e.mu.Lock()
	s := e.session
	e.mu.Unlock()
	leased := e.leased(m.Owner.ID, &sb, s)
	// The owner's id learns it too: another host may have a copy of its state directory.
	r.Seconds = uint32((e.lease(&sb, s) + time.Second - 1) / time.Second)
	switch {
	case e.r.Failed() != nil:
		r.Code, r.Text = wire.CodeFailed, e.r.Failure()
	case sb.Suspect:
		r.Code, r.Text = wire.CodeSuspect, "the platform lost power without saving: see pmnbd-target region clear"
	case e.r.Class() == persist.ClassVolatile && m.Flags&wire.OpenAllowVolatile == 0:
		r.Code, r.Text = wire.CodeVolatile, "its contents are lost with the target's power; --allow-volatile permits that"
	case resume && m.Flags&wire.OpenTakeover != 0:
		r.Code, r.Text = wire.CodeInvalid, "RESUME cannot take over"
	case resume && (m.Owner != sb.Owner || sb.Clean):
		r.Code, r.Text = wire.CodeNotOwner, "the owner has closed its session, or the region has had another owner since"
	case resume && m.Epoch > sb.Epoch:
		r.Code, r.Text = wire.CodeRestored, fmt.Sprintf("it is in epoch %d, and was in epoch %d", sb.Epoch, m.Epoch)
	case resume && m.Mark > sb.Mark:
		r.Code, r.Text = wire.CodeRestored, fmt.Sprintf("it has mark %d, and had mark %d", sb.Mark, m.Mark)
	case resume:
		return nil
	case leased > 0 && m.Flags&wire.OpenTakeover == 0:
		r.Code = wire.CodeBusy
	case m.Epoch == 0 || m.Epoch != sb.Epoch:
		r.Code = wire.CodeEpoch
	default:
		if r.Code, r.Text = unfit(m, &sb); r.Code == 0 {
			return nil
		}
	}
	return r
}

// refusal returns what every refusal tells of a region with superblock sb.
func (e *export) refusal(sb *region.Superblock) *wire.Refused {
	r := &wire.Refused{Epoch: sb.Epoch, Mark: sb.Mark, Holder: sb.Owner.ID, UUID: e.r.UUID(), Life: sb.Life, Record: sb.Record}
	if !sb.Clean && sb.Owner != (persist.Owner{}) {
		r.Flags = wire.OpenedUnclean
	}
	return r
}
