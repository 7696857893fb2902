package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"pmnbd/persist/wire"
)

// resume makes one attempt to bring the session back: RESUME on a new lane 0, JOIN on
// the others, then the replay. A replay may follow RESUME alone. A member of a mirror that this life
// has not reached before is opened.
func (g *leg) resume(ctx context.Context, limit time.Duration) (t transition, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var conns []dialed
	defer func() {
		if err == nil {
			return
		}
		for _, c := range conns {
			_ = c.conn.Close() // err says why
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			err = errStopped
		}
	}()
	var o wire.Opened
	if g.granted.Epoch == 0 {
		g.opening = opening{}
		if err = g.core.copies.probe(ctx, g); err == nil {
			o, conns, err = g.tryOpen(ctx)
		}
	} else {
		o, conns, err = g.tryResume(ctx)
	}
	if err != nil {
		conns = nil
		return t, err
	}
	if k := g.core.copies; k != nil {
		if err = k.meet(ctx, g, &o, &conns[0]); err != nil {
			g.vain++
			return t, err
		}
	}
	t, durable, err := g.revive(&o, conns)
	if err != nil {
		return t, err
	}
	if c := durable; c != nil {
		g.log.Info("what was being made durable when the session was lost is durable", slog.String("region", g.cfg.Region), slog.Uint64("barrier", c.seq))
		c.answer(nil)
		g.core.commit.free(c)
	}
	g.core.commit.start(true) // the replay's barrier
	g.core.post()
	return t, nil
}

// tryResume makes one attempt at RESUME and JOIN. It closes what it has connected if that fails.
func (g *leg) tryResume(ctx context.Context) (o wire.Opened, conns []dialed, err error) {
	defer func() {
		if err != nil {
			for _, c := range conns {
				_ = c.conn.Close() // err says why
			}
		}
	}()
	if err := g.openDomain(ctx); err != nil {
		return o, nil, err
	}
	connecting, connected := context.WithTimeout(ctx, connectTimeout)
	c, err := g.connect(connecting, 0, nil)
	connected()
	if err != nil {
		return o, nil, err
	}
	conns = append(conns, c)
	if o, err = g.askResume(ctx, &conns[0]); err != nil {
		return o, conns, err
	}
	conns, err = g.joinAll(ctx, conns, &o)
	return o, conns, err
}

// askResume sends RESUME and compares what is granted with what was.
func (g *leg) askResume(ctx context.Context, c *dialed) (o wire.Opened, err error) {
	msg := g.request(g.owner)
	msg.Flags &^= wire.OpenTakeover
	msg.Epoch, msg.Mark = g.granted.Epoch, g.mark.Load()
	if msg.Methods, err = g.methods(c.conn); err != nil {
		return o, err
	}
	var refused wire.Refused
	t, err := g.petition(ctx, c, &msg, true, &o, &refused)
	if err != nil {
		return o, fmt.Errorf("RESUME: %w", err)
	}
	if t == wire.TypeRefused {
		return o, g.refusal(&refused)
	}
	if err := chosen(msg.Methods, &o); err != nil {
		return o, err
	}
	if err := check(&o); err != nil {
		return o, err
	}
	return o, g.compare(&o)
}

// refusal decides what a refused RESUME means: that it comes too late, or too early. Only
// the region of this device can say that the session is lost for good. Another target at the
// address, or a new region under the name, knows nothing of it.
func (g *leg) refusal(r *wire.Refused) error {
	err := &RefusedError{Region: g.cfg.Region, said: *r}
	switch {
	case r.UUID != [16]byte{} && r.UUID != g.granted.UUID:
		return g.elsewhere(r.UUID)
	case r.UUID == g.granted.UUID && (r.Code == wire.CodeNotOwner || r.Code == wire.CodeRestored || r.Code == wire.CodeFailed):
		// Somebody else may have written, and a replay would overwrite that. Or the target
		// has lost what this device wrote.
		if taker := g.taker(r); taker != "" {
			return &lastingError{&TakenError{Taker: taker, Epoch: r.Epoch, err: err}}
		}
		return &lastingError{err}
	}
	return err
}

// A TakenError tells that another initiator, or another process of this one, has had the region
// since the session was lost. What this device had not flushed is lost. Once nothing uses the
// device any more, it can be opened again with Config.AcceptLoss, and with Config.Takeover while the
// other holds the region.
type TakenError struct {
	Taker string // in words
	Epoch uint64 // of the session in which the target said so; 0: an arbiter did
	err   error
}

func (e *TakenError) Error() string {
	if e.Epoch == 0 {
		return fmt.Sprintf("%s has begun, and what was not flushed is lost (%v)", e.Taker, e.err)
	}
	return fmt.Sprintf("%s has had the region since (epoch %d), and what was not flushed is lost (%v)", e.Taker, e.Epoch, e.err)
}

func (e *TakenError) Unwrap() error { return e.err }

// taker names the initiator that has had the region since this session, as a refused RESUME tells
// it; "" if it names none.
func (g *leg) taker(r *wire.Refused) string {
	switch {
	case r.Code != wire.CodeNotOwner || r.Holder == [16]byte{} || r.Epoch <= g.granted.Epoch:
		return ""
	case r.Holder == g.cfg.ID:
		return "another pmnbd with this initiator's id"
	}
	return "initiator " + uuid.UUID(r.Holder).String()
}

// elsewhere says that the name leads to region other. The device replays nothing into that, and
// waits: the right target may come back to the address.
func (g *leg) elsewhere(other [16]byte) error {
	return fmt.Errorf("region %s at %s has UUID %s now, and this device is on %s: another target answers there, or the region was made anew. Check the address, and serve the right region there again; until then nothing is sent",
		g.cfg.Region, g.cfg.Addr, uuid.UUID(other), uuid.UUID(g.granted.UUID))
}

// compare returns an error unless o is what the session had. A window must never be replayed
// into something else, nor where the contents are lost.
func (g *leg) compare(o *wire.Opened) error {
	old := &g.granted
	switch {
	case o.UUID != old.UUID:
		return g.elsewhere(o.UUID)
	case o.Size != old.Size || o.Class != old.Class:
		return &lastingError{fmt.Errorf("region %s is of another size or class than it was: it is not what this device was opened on", g.cfg.Region)}
	case len(g.cfg.Members) > 0:
		return nil // the other copies have what this one may have lost
	case o.Epoch <= old.Epoch:
		return &lastingError{fmt.Errorf("the region went back from epoch %d to %d: it was restored from a copy", old.Epoch, o.Epoch)}
	case o.Mark < g.mark.Load():
		return &lastingError{fmt.Errorf("the region went back from mark %d to %d: it was restored from a copy", g.mark.Load(), o.Mark)}
	case o.ContentsID != old.ContentsID:
		return &lastingError{errors.New("the region's contents were lost at the target")}
	}
	return nil
}

// revive gives the lanes their new connections, and the queues what was in them: the
// writes that no barrier covers, in their order, then the READs. Nothing is ahead of
// the replay. If the target had made the broken barrier durable, revive retires and returns it:
// the caller answers its ops and frees it. From then on heartbeats look, and barriers start once
// every leg is back. revive returns an error if the device has ended meanwhile, or the mirror went on without
// the member.
func (g *leg) revive(o *wire.Opened, conns []dialed) (t transition, durable *barrier, err error) {
	c := &g.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := g.core.failed(); err != nil {
		return t, nil, &lastingError{err}
	}
	if g.leaver != nil { // removed while it came back: nobody keeps bits for it, and asking for them ends a session
		return t, nil, errRemoved
	}
	if k := g.core.copies; k != nil && k.leftLocked(g) {
		return t, nil, errGivenUp
	}
	g.granted, g.fills = *o, 0
	if old := g.badPlaces.Load().bytes(); conns[0].bad.bytes() > old {
		g.accused = false // a place that was lost explains why a READ ended the session
	}
	g.knowBad(conns[0].bad)
	g.trustLocked(&conns[0])
	g.device.noteSession(g, o)
	g.marked(o.Mark)
	g.method = o.Method
	durable = c.resumeLocked(g.slot, o.Flags&wire.OpenedDoubt != 0 && !g.follow.on, durableOn(conns))
	if g.core.copies != nil && !g.follow.on {
		// What the barrier in flight covers is in the replay, too, and must not be freed without it.
		c.interruptLocked(0)
	}
	g.touches.Store(true)
	for i, l := range g.lanes { // behind the marks, which say what is replayed
		l.connect(conns[i], g.core.servesLocked(g))
	}
	c.behind = g.core.behind()
	if durable == nil && !g.lostAt.IsZero() {
		c.lost = time.Since(g.lostAt)
	}
	g.pulse.left()
	g.pulse.proves(int64(conns[0].asked.Sub(g.pulse.epoch)))
	g.generation.Add(1)
	g.owes = g.core.owedLocked()
	for _, l := range g.lanes {
		l.mu.Lock()
		l.broken = nil
		l.mu.Unlock()
		go l.complete()
	}
	t = g.core.backLocked(g)
	if g.follow.on {
		g.core.copies.sendIntervalLocked(g)
		g.tell() // the RECORD before may have been lost with its session
	}
	return t, durable, nil
}
