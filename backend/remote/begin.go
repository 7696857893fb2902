package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// A MirrorError means that a mirror cannot begin, however long the start waits: two members went
// different ways, or what was flushed is gone. An operator has to decide.
type MirrorError struct{ text string }

func (e *MirrorError) Error() string { return e.text }

// A start of a mirror probes all members before it opens any: nothing is destroyed before it can
// succeed (mirror §4.1). It waits for members that it needs for as long as ctx lasts.
//
//	probe ─► decide ─► open ─► decide ─► a generation of one's own ─► serve
//	  ▲        │ wait             │ somebody was faster, or a target was lost
//	  └────────┴──────────────────┘
type beginning struct {
	device *Device
	found  mirror.Found // by leg
	errs   []error      // why a member was not reached, by leg
	grants []grant      // by leg
	number uint64       // of the life that this attempt begins
	owner  persist.Owner
	said   string // in the log, for whom it waits: the reasons may name a port that is another each time
	waited string // by Config.Waits

	// By leg: what a probe told of the session before those that this start opened and gave up. Such
	// a session changed nothing, and must not hide how the life before ended.
	told []wire.Refused
	own  []uint64 // the epoch up to which there were only such sessions since
	life []uint64 // of the last OPEN

	refused string // what the look before would have refused; "" if it would not: see decide

	waits time.Time // since when it waits for what clients have read from; zero: it does not
	turn  time.Time // since when it has the lease at the arbiter and cannot begin; zero: not yet

	opened  time.Time     // when this start had its last OPEN granted
	granted []wire.Opened // by leg: what the last OPEN was granted
	gained  uint64        // the lease of the term with which the arbiter said what found has
}

// A grant is a session whose lanes nobody uses yet.
type grant struct {
	o     wire.Opened
	conns []dialed
}

// beginMirror opens the members, in the order of their slots, and begins a generation.
func (d *Device) beginMirror(ctx context.Context) error {
	b := d.newBeginning()
	if d.cfg.Arbiter != nil && d.term == nil {
		set, err := b.findSet(ctx)
		if err != nil {
			return err
		}
		if err := b.join(ctx, set); err != nil {
			return err
		}
	}
	for n := 0; ; n++ {
		decision, err := b.attempt(ctx)
		if errors.Is(err, errHeard) && ctx.Err() == nil { // by a member that was away before
			decision, err = mirror.Decision{Why: errHeard.Error()}, nil
		}
		if err == nil && (decision.Outcome == mirror.Begin || decision.Outcome == mirror.Copy) {
			return b.serve(&decision)
		}
		b.drop()
		if err != nil {
			return err
		}
		if err := b.await(ctx, n, &decision); err != nil {
			return err
		}
	}
}

func (d *Device) newBeginning() *beginning {
	n := len(d.legs)
	b := &beginning{
		device: d, found: mirror.Found{Degraded: d.cfg.Degraded, WithoutArbiter: d.cfg.WithoutArbiter}, grants: make([]grant, n),
		told: make([]wire.Refused, n), own: make([]uint64, n), life: make([]uint64, n),
		granted: make([]wire.Opened, n),
	}
	if s := d.legacy; s != nil && s.header.Boot == s.boot {
		b.found.Prefer = s.header.Mirror.Equal
		b.found.Read = s.lost == nil && s.header.Opened != 0 && b.found.Prefer != 0
	}
	return b
}

// unreached says of each target that gave no answer for its region why not.
func (b *beginning) unreached() string {
	var s strings.Builder
	for i, err := range b.errs {
		if l := &b.found.Legs[i]; l.Reach == mirror.Away && err != nil {
			fmt.Fprintf(&s, "; %s: %v", l.Name, err)
		}
	}
	return s.String()
}

// attempt probes, and opens as long as the decision says so.
func (b *beginning) attempt(ctx context.Context) (mirror.Decision, error) {
	b.probe(ctx)
	if err := b.ask(ctx); err != nil {
		return mirror.Decision{Why: err.Error()}, ctx.Err()
	}
	b.number = max(mirror.NextLife(&b.found), slices.Max(b.life)+1) // members that this start opened may be away
	if s := b.device.legacy; s != nil {
		b.number = max(b.number, s.header.Mirror.Life+1) // members that had it may be away
	}
	b.owner.ID = b.device.cfg.ID
	if _, err := rand.Read(b.owner.Nonce[:]); err != nil { // an owner that was OPENED never OPENs again
		return mirror.Decision{}, fmt.Errorf("draw a nonce: %w", err)
	}
	for {
		decision := b.decide()
		switch decision.Outcome {
		case mirror.Refuse:
			return decision, &MirrorError{decision.Why}
		case mirror.Begin, mirror.Copy:
			return decision, errors.Join(b.judge(), ctx.Err())
		case mirror.Wait:
			if decision.GoesBack { // it could begin but for that: another loss may have come meanwhile
				if err := b.judge(); err != nil {
					return decision, err
				}
			}
			if b.goesBack(&decision) {
				continue
			}
		case mirror.Open:
			if err := b.judge(); err != nil {
				return decision, err
			}
			if b.open(ctx, &decision); ctx.Err() != nil {
				return decision, ctx.Err()
			}
			continue
		}
		return decision, ctx.Err()
	}
}

// decide decides by what the members said. They answer at different moments. While the life before goes on, one member
// may answer before its session is resumed, and another one when its record already names the new session: then the
// first one seems to have lost its data. So decide refuses only what two looks in a row show, and waits before.
func (b *beginning) decide() mirror.Decision {
	d := mirror.Decide(b.found)
	switch {
	case d.Outcome == mirror.Wait:
		b.refused = ""
	case d.Outcome == mirror.Refuse && d.Why != b.refused:
		b.refused = d.Why
		d.Outcome, d.Why = mirror.Wait, "looks again: "+d.Why
	}
	return d
}

// goesBack accepts that clients could read older data than before, if an operator says that there is none any more. The
// members that they have read from have Config.LegTimeout to come back: then nothing is lost.
func (b *beginning) goesBack(decision *mirror.Decision) bool {
	switch {
	case !decision.GoesBack:
		b.waits = time.Time{}
	case b.waits.IsZero():
		b.waits = time.Now()
	}
	cfg := &b.device.cfg
	if !decision.GoesBack || !cfg.AcceptLoss || time.Since(b.waits) < max(cfg.LegTimeout, leastPatience) {
		return false
	}
	b.accept(&LossError{decision.Why})
	return true
}

// accept has the start go on without what is lost.
func (b *beginning) accept(lost *LossError) {
	d := b.device
	d.accept(lost)
	d.legacy.lost, d.lineage = lost, uuid.New()
	d.file.update(func(h *header) { h.Opened, h.Lineage, h.Mirror = 0, d.lineage, mirror.View{} })
	b.found.Read, b.found.Prefer = false, 0
}

// probe asks all members at the same time.
func (b *beginning) probe(ctx context.Context) {
	b.found.Legs, b.errs = make([]mirror.Leg, len(b.device.legs)), make([]error, len(b.device.legs))
	var asked sync.WaitGroup
	for i, g := range b.device.legs {
		asked.Go(func() {
			l := &b.found.Legs[i]
			l.Name = g.cfg.Region + " at " + g.cfg.Addr
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			refused, err := g.probe(ctx)
			b.errs[i] = err
			var no *RefusedError
			switch {
			case err == nil && refused.Code == wire.CodeEpoch:
				l.Reach = mirror.Probed
			case err == nil:
				l.Reach = mirror.Refused
			case errors.As(err, &no) && no.said.UUID != [16]byte{}:
				refused = no.said
				l.Reach, l.Failed = mirror.Refused, refused.Code == wire.CodeFailed || refused.Code == wire.CodeSuspect
			default:
				g.log.Debug("a member of the mirror was not reached", slog.String("target", g.cfg.Addr), slog.Any("error", err))
				return
			}
			b.hear(i, &refused)
			l.Record, l.Life, l.Epoch = refused.Record, refused.Life, refused.Epoch
			l.Contents = b.contents(i, &refused)
			l.Clean = b.told[i].Flags&wire.OpenedUnclean == 0
		})
	}
	asked.Wait()
}

// hear notes what the target of leg i says of the session before. The answer to an OPEN of this start may
// have been lost.
func (b *beginning) hear(i int, refused *wire.Refused) {
	ours := b.life[i] != 0 && refused.Life == b.life[i] && refused.Holder == b.device.cfg.ID && refused.Epoch-b.own[i] <= 1
	if !ours {
		b.told[i] = *refused
	}
	b.own[i] = refused.Epoch
}

// contents is the contents id of a member that was only probed, because only OPENED tells it: what this
// start found when it had a session on it, or else what its record says. A start that forgot what it
// found would open a member without the contents again and again.
func (b *beginning) contents(i int, refused *wire.Refused) [16]byte {
	if o := &b.granted[i]; o.Epoch != 0 && o.UUID == refused.UUID && o.Epoch == refused.Epoch {
		return o.ContentsID
	}
	if r := &refused.Record; int(r.Slot) < len(r.Members) {
		return r.Members[r.Slot].Contents
	}
	return [16]byte{}
}

// open opens the members that decision says. One that does not grant a session is told apart, and the next
// decision may do without it.
func (b *beginning) open(ctx context.Context, decision *mirror.Decision) {
	for slot := range persist.MaxMembers {
		if !decision.Open.Has(slot) {
			continue
		}
		i := b.leg(&decision.Newest, slot)
		g := b.device.legs[i]
		g.life, g.owner, g.opening = b.number, b.owner, opening{}
		b.life[i] = b.number
		if s := b.device.legacy; s != nil {
			s.opens = true
		}
		ctx, cancel := context.WithTimeout(ctx, maxAttempt) // its disk may hang, and the others may do
		o, conns, err := g.tryOpen(ctx)
		cancel()
		if err != nil {
			g.log.Warn("a member of the mirror was not opened", slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr), slog.Any("error", err))
			b.found.Legs[i].Reach = mirror.Refused
			continue
		}
		b.grants[i], b.granted[i] = grant{o, conns}, o
		b.opened = time.Now()      // not before: the life before may have heard from it until the grant
		if o.Epoch != b.own[i]+1 { // somebody was faster
			b.told[i].Flags = o.Flags & wire.OpenedUnclean
		}
		b.own[i] = o.Epoch
		b.found.Legs[i] = mirror.Leg{
			Name: b.found.Legs[i].Name, Reach: mirror.Held, Record: o.Record, Life: o.Life,
			Contents: o.ContentsID, Epoch: o.Epoch, Clean: b.told[i].Flags&wire.OpenedUnclean == 0, Bad: o.Flags&wire.OpenedBad != 0,
		}
	}
}

// leg is the number of the leg that reached the member that m has in slot. A region that was removed may
// have a record still, with a slot that another member has now.
func (b *beginning) leg(m *persist.Record, slot int) int {
	for i := range b.found.Legs {
		if l := &b.found.Legs[i]; l.Reach != mirror.Away && l.MemberOf(m) && int(l.Record.Slot) == slot {
			return i
		}
	}
	return 0 // Decide names members that were reached
}

// drop gives up the sessions that were opened. It does not close them: what the life before left is
// for the next attempt.
func (b *beginning) drop() {
	for i := range b.grants {
		for _, c := range b.grants[i].conns {
			_ = c.conn.Close() // nothing was sent on it
		}
		b.grants[i] = grant{}
	}
}

// serve begins the generation of decision, and waits until it is active.
func (b *beginning) serve(decision *mirror.Decision) error {
	d := b.device
	var nonce [16]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return fmt.Errorf("draw a nonce: %w", err)
	}
	x, k := d.core, d.core.copies
	c := &x.commit
	sessions := make(map[*leg]*wire.Opened)
	c.mu.Lock()
	k.view, k.sources = mirror.Start(decision, b.number, nonce), decision.Sources
	k.office.start(d.term, &b.found, b.gained)
	k.office.begin(&k.view)
	d.quiet, d.quietBy = b.quietAfter(decision)
	for _, g := range d.spares {
		g.life, g.owner = b.number, b.owner
	}
	for i, g := range d.legs {
		g.life, g.owner = b.number, b.owner
		if l := &b.found.Legs[i]; l.Reach != mirror.Away && l.MemberOf(&k.view.Record) { // another one says nothing of slots
			k.placeLocked(g, int(l.Record.Slot))
		}
		if slot := b.unfinished(i, &k.view.Record); slot >= 0 {
			k.placeLocked(g, slot)
			g.joins = true
		}
		if o := &b.grants[i].o; o.Epoch != 0 {
			sessions[g] = o
		}
	}
	d.noteLife(b.owner, k.view, sessions)
	c.mu.Unlock()
	if s := d.legacy; s != nil {
		if err := d.noteBoot(s.refused.UUID, s.boot); err != nil {
			b.drop()
			return err
		}
	}
	for i, g := range d.legs {
		o := &b.grants[i].o
		if o.Epoch == 0 {
			continue
		}
		g.record = o.Record
		if !k.view.Record.F.Has(g.slot) { // it is copied to first
			g.granted = *o
			for _, l := range b.grants[i].conns {
				_ = l.conn.Close() // RESUME brings it back
			}
			continue
		}
		g.begin(o, b.grants[i].conns)
		g.warn(o)
	}
	b.grants = nil
	b.compareTargets(&decision.Newest)
	if decision.Promotes() != 0 {
		d.log.Warn("A MEMBER THAT FOLLOWED IS PROMOTED: what it lacks is lost to this mirror", slog.String("why", decision.Why),
			slog.Time("has_until", time.Unix(0, decision.Promoted.At)), slog.Uint64("has_barrier", decision.Promoted.Barrier))
	}
	d.log.Info("the mirror begins", slog.String("why", decision.Why), slog.Uint64("life", b.number))
	d.describe()
	return nil
}

// awaitMirror waits until the first generation of this life is active.
func (d *Device) awaitMirror(ctx context.Context) error {
	x := d.core
	x.copies.begin()
	select {
	case <-x.copies.serves:
	case <-x.over:
		return errors.Join(fmt.Errorf("begin a generation of the mirror: %w", x.failed()), d.leave(context.Background(), false))
	case <-x.copies.newer:
		return errors.Join(errAgain, d.leave(context.Background(), false))
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("begin a generation of the mirror: %w", context.Cause(ctx)), d.leave(context.Background(), false))
	}
	if err := d.awaitQuiet(ctx); err != nil {
		return errors.Join(err, d.leave(context.Background(), false))
	}
	d.noteServes()
	d.log.LogAttrs(ctx, slog.LevelInfo, "session opened", d.opened()...)
	return nil
}
