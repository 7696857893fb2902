package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// A Discard gives up the writes of a member that went its own way, so that the mirror can have it back.
type Discard struct {
	// Member is the letter of the member, Generation and F are what its own record says.
	Member     string
	Generation string
	F          string
	// Torn: the member is half copied from those in F, and has no writes of its own. F is then without the member.
	Torn bool
	// Holder is the id of the initiator that had the member last.
	Holder uuid.UUID
	// Kept is the generation with which the mirror goes on, KeptBy the letters of those that were reached
	// and have it, or are behind it.
	Kept   string
	KeptBy string
	// Also has the letters of members that may have writes of the same generations, or of the lives before that the
	// others do not know. Once Member is in sync again these count as refuted (mirror §4.6): such a member is then
	// behind, and copied to.
	Also string
	// Served: a pmnbd has one of these at this moment. It takes the member back after its next start.
	Served bool

	device *Device
	leg    *leg
	life   uint64
	record persist.Record // that the member gets
	half   bool           // an earlier call has ended in the middle
}

// FindDiscard asks the targets of Config.Members, of which number member, counted from 1, went its own
// way, and changes nothing. The others must agree with each other. Whoever gets a Discard ends it with
// Close.
func FindDiscard(ctx context.Context, cfg Config, member int) (_ *Discard, err error) {
	cfg.Lanes, cfg.AllowVolatile, cfg.Takeover, cfg.Arbiter = 1, true, false, nil
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if member < 1 || member > len(cfg.Members) || len(cfg.Members) < 2 {
		return nil, errors.New("name the targets of all members, and which of them went its own way")
	}
	d := &Device{cfg: cfg, log: cfg.Log}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.release())
		}
	}()
	if err := d.makeLegs(); err != nil {
		return nil, err
	}
	b := d.newBeginning()
	b.probe(ctx)
	i := member - 1
	is, name := &b.found.Legs[i], cfg.Members[i].Region+" at "+cfg.Members[i].Addr
	if is.Reach == mirror.Away {
		return nil, fmt.Errorf("%s: %w", name, errors.Join(errNotReached, b.errs[i]))
	}
	others := slices.Delete(slices.Clone(b.found.Legs), i, i+1)
	kept := mirror.Decide(mirror.Found{Legs: others, Degraded: true, WithoutArbiter: true})
	m := kept.Newest
	told := &b.told[i]
	slot := slices.IndexFunc(m.Members[:], func(is persist.Membership) bool { return is.UUID == told.UUID })
	x := &Discard{device: d, leg: d.legs[i], life: mirror.NextLife(&b.found), half: told.Record == persist.Record{}}
	switch {
	case m == persist.Record{}:
		return nil, fmt.Errorf("no other member was reached that could be kept: %s", kept.Why)
	case kept.SplitBrain:
		return nil, fmt.Errorf("the other targets do not agree either: %s", kept.Why)
	case slot < 0:
		return nil, fmt.Errorf("%s is no member of mirror %s as the others have it: to give it up, take its target out of --target", name, uuid.UUID(m.Set))
	case !x.half && !is.Parted(&m):
		return nil, fmt.Errorf("%s did not go its own way: pmnbd serve copies to it what it lacks, or from it", name)
	case told.Code != wire.CodeEpoch:
		return nil, fmt.Errorf("%s: %w", name, &RefusedError{Region: cfg.Members[i].Region, said: *told})
	case m.F.Has(slot):
		return nil, fmt.Errorf("the others say in generation %v that %s is in sync, so they cannot begin without it: nothing is discarded", m.Generation, name)
	}
	x.record = m
	x.record.Slot, x.record.Torn, x.record.Follows = uint8(slot), true, persist.Point{}
	x.Member, x.Generation, x.F, x.Holder = MemberLetter(slot), told.Record.String(), told.Record.F.String(), told.Holder
	if x.Torn = !x.half && is.Torn(); x.Torn {
		x.F = (told.Record.F &^ persist.Member(slot)).String() // its own record has one that stood in
	}
	x.Kept = m.String()
	var by persist.Members
	for j := range b.found.Legs {
		if l := &b.found.Legs[j]; j != i && l.Reach != mirror.Away && l.MemberOf(&m) && mirror.Behind(&l.Record, &m) {
			by |= persist.Member(int(l.Record.Slot))
			x.Served = x.Served || b.told[j].Code == wire.CodeBusy || b.told[j].Seconds > 0
		}
	}
	x.KeptBy = by.String()
	if also := is.GivenUpWith(&m) &^ by; also != 0 {
		x.Also = also.String()
	}
	return x, d.takeClaim(told.UUID)
}

// Close gives back what FindDiscard took. The member stays as it is, unless Do was called.
func (x *Discard) Close() error { return x.device.release() }

// Do gives up the member's writes. Then its record says that it is half copied: the next start of the
// mirror copies everything to it. Do can be called again after it was interrupted anywhere.
//
//	OPEN ─► RECORD zero: its contents count as lost ─► CLOSE ─► OPEN ─► RECORD of the mirror ─► CLOSE
func (x *Discard) Do(ctx context.Context) error {
	g := x.leg
	if !x.half {
		c, o, err := x.open(ctx)
		if err != nil {
			return err
		}
		err = g.renounce(ctx, &c, o.Epoch)
		if err = errors.Join(err, c.conn.Close()); err != nil {
			return err
		}
		x.half = true
	}
	g.joins = true
	c, o, err := x.open(ctx)
	if err != nil {
		return fmt.Errorf("%w; its writes are given up already, run it again", err)
	}
	m, end := wire.Record{Seq: 1, Record: x.record}, wire.Close{Epoch: o.Epoch}
	var done wire.Recorded
	var closed wire.Closed
	if err = g.demand(ctx, &c, m.Append(nil), &done); err == nil {
		err = g.demand(ctx, &c, end.Append(nil), &closed)
	}
	if err = errors.Join(err, c.conn.Close()); err != nil {
		return fmt.Errorf("write the record of the mirror: %w; its writes are given up already, run it again", err)
	}
	return nil
}

// open opens the member as a life of the mirror.
func (x *Discard) open(ctx context.Context) (c dialed, o wire.Opened, err error) {
	g := x.leg
	g.life, g.opening = x.life, opening{}
	if err := g.drawOwner(); err != nil {
		return c, o, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxAttempt)
	defer cancel()
	o, conns, err := g.tryOpen(ctx)
	if err != nil {
		return c, o, fmt.Errorf("open region %s: %w", g.cfg.Region, err)
	}
	conns[0].secret = nil // within a session nothing is signed
	return conns[0], o, nil
}
