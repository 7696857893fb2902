package remote

import (
	"context"
	"errors"
	"time"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// ProbeMirror asks the targets of Config.Members what the regions' records say. It opens nothing, and
// disturbs nobody who has the mirror. What only a session tells, it does not know: whether a region
// still has the contents that its record names. An error means that no target knows of a mirror.
func ProbeMirror(ctx context.Context, cfg Config) (_ *MirrorSnapshot, err error) {
	cfg.AllowVolatile = true
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if len(cfg.Members) == 0 {
		return nil, errors.New("a mirror has Members")
	}
	d := &Device{cfg: cfg, log: cfg.Log}
	defer func() { err = errors.Join(err, d.release()) }()
	if err := d.makeLegs(); err != nil {
		return nil, err
	}
	b := d.newBeginning()
	b.probe(ctx)
	decision := mirror.Decide(b.found)
	m := &decision.Newest
	if *m == (persist.Record{}) {
		return nil, errors.Join(append([]error{errors.New(decision.Why)}, b.errs...)...)
	}
	s := shown(&mirror.View{Record: *m, Active: m.F, Equal: m.F})
	s.Copies = 0
	for i, g := range d.legs {
		l := b.shown(i, m)
		l.Target, l.Region = g.cfg.Addr, g.cfg.Region
		if l.State == LegInSync {
			s.Copies++
		}
		s.Legs = append(s.Legs, l)
	}
	s.Start = decision.Outcome.String() + ": " + decision.Why
	return s, nil
}

// shown is how the member of leg i is, seen from the newest record. One that has the data of m is in
// sync, because the next start need not copy to it.
func (b *beginning) shown(i int, m *persist.Record) (s LegSnapshot) {
	l := b.found.Legs[i]
	reached := l.Reach != mirror.Away
	if reached {
		s.Epoch = l.Epoch
	}
	v := mirror.View{Record: *m, Active: m.F, Equal: m.F}
	slot := int(l.Record.Slot)
	member := reached && l.MemberOf(m)
	if member {
		s.Slot = persist.Member(slot).String()
	}
	l.Reach = mirror.Away // nobody copies to it
	if member && m.F.Has(slot) && !l.Lost(m) {
		l.Reach = mirror.Held
	}
	s.State = legState(v.State(&l))
	if r := &l.Record; member && r.Async.Has(slot) && !r.Torn {
		s.Follows = &FollowsSnapshot{Barrier: r.Follows.Barrier, Until: time.Unix(0, r.Follows.At)}
	}
	switch {
	case s.State == LegInSync:
		s.Behind = new(uint64)
	case s.Follows != nil && s.State == LegAway:
		s.Cause = "it followed the mirror: --degraded with this target alone promotes it"
	case !reached && b.errs[i] != nil:
		s.Cause = b.errs[i].Error()
	case !reached:
		s.Cause = errNotReached.Error()
	case s.State == LegOwnWay:
		s.Cause = "it has writes that the newest generation does not have"
	case s.State == LegTorn:
		s.Cause = "what it lacks is to be copied to it, or a copy was not completed"
	case !member:
		s.Cause = "it is no member of this mirror"
	case b.errs[i] != nil:
		s.Cause = b.errs[i].Error()
	default:
		s.Cause = "the mirror went on without it: the next start copies to it what it lacks"
	}
	return s
}
