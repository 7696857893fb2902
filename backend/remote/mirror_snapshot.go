package remote

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// A MirrorSnapshot is how a mirror was at one moment. It is a copy; its JSON names are kept once
// published.
type MirrorSnapshot struct {
	Set uuid.UUID `json:"set"`
	// Generation is life and count, such as "3.2".
	Generation string `json:"generation"`
	// Pending: the generation is not on all of F yet.
	Pending bool `json:"pending,omitempty"`
	// Members and F are letters of slots, such as "AB". The members in F have every flushed write.
	Members string `json:"members"`
	F       string `json:"f"`
	// Regions are the UUIDs of the members' regions, in the order of Members.
	Regions []uuid.UUID `json:"region_uuids"`
	// MinCopies is how many members F has at least for a FLUSH to succeed.
	MinCopies int `json:"min_copies"`
	// Copies is how many members have all data, and are in F.
	Copies int `json:"copies"`
	// Async has the members that follow the others, and are never in F.
	Async string        `json:"async,omitempty"`
	Legs  []LegSnapshot `json:"legs"`
	// Arbiter is nil if the mirror has none, or if it was not asked.
	Arbiter *ArbiterSnapshot `json:"arbiter,omitempty"`
	// Start says what a start would do. Only ProbeMirror fills it in.
	Start string `json:"start,omitempty"`
}

// An ArbiterSnapshot is how a device stands with the arbiter of its mirror.
type ArbiterSnapshot struct {
	// Lease is for how many seconds no other initiator can have the mirror, unless the arbiter answers
	// before; 0: another one may.
	Lease float64 `json:"lease_seconds"`
	// Cause says why a change of generation waits for the arbiter; empty if none does.
	Cause string `json:"cause,omitempty"`
}

// Synchronous is how many members can be in sync: all but the asynchronous ones.
func (s *MirrorSnapshot) Synchronous() int { return len(s.Members) - len(s.Async) }

// A LegSnapshot is how a member of a mirror was.
type LegSnapshot struct {
	Target string `json:"target"` // HOST:PORT
	Region string `json:"region"`
	Slot   string `json:"slot"` // a letter; empty while the member was not reached, and of a stranger
	// Class and Method are empty, and Epoch is 0, until there was a session.
	Class  string   `json:"class,omitempty"`
	Method string   `json:"method,omitempty"`
	Epoch  uint64   `json:"epoch,omitempty"`
	State  LegState `json:"state"`
	// Since is when the target of a leg that is not connected was heard last, or when its resync began;
	// nil if neither ever happened.
	Since *time.Time `json:"since,omitempty"`
	// Cause says why State is not LegInSync.
	Cause string `json:"cause,omitempty"`
	// Behind is how many bytes a resync still has to compare, and to copy where they differ; nil if
	// nobody knows now.
	Behind *uint64 `json:"behind_bytes"`
	// Late is for how many seconds other members have waited for this one alone, without any progress of
	// it: its disk is slow, or hangs.
	Late float64 `json:"late_seconds"`
	// Follows says how far an asynchronous member is; nil for the others, and while that is not known.
	// Behind is then what was flushed and it lacks.
	Follows *FollowsSnapshot `json:"follows,omitempty"`
}

// A FollowsSnapshot says how far an asynchronous member has followed.
type FollowsSnapshot struct {
	// Barrier numbers the barriers of a life. The member has everything up to it, and so up to Until.
	Barrier uint64    `json:"barrier"`
	Until   time.Time `json:"until"`
	// LagSeconds is the age of the oldest FLUSH that it lacks; 0: it has all.
	LagSeconds float64 `json:"lag_seconds"`
	// AtBound: FLUSHes wait for it.
	AtBound bool `json:"at_bound"`
}

// A LegState is what a mirror makes of a member.
type LegState string

const (
	// LegInSync: the member has every write, as far as it was acknowledged by its target.
	LegInSync LegState = "in sync"
	// LegFollows: it is asynchronous, and gets one barrier of the others after the other.
	LegFollows LegState = "follows"
	// LegResync: what it lacks is being copied to it.
	LegResync LegState = "resync"
	// LegAway: nobody reaches it. Once it is back, only what was written meanwhile is copied.
	LegAway LegState = "away"
	// LegTorn: nobody reaches it, and a resync of it was not completed. Alone it is of no use.
	LegTorn LegState = "torn"
	// LegFailed: its region failed, lost its contents, or is no member of this mirror.
	LegFailed LegState = "failed"
	// LegOwnWay: it has writes that the mirror has not, and that nobody may overwrite unasked.
	LegOwnWay LegState = "went its own way"
)

// LegStates returns all states of a leg.
func LegStates() []LegState {
	return []LegState{LegInSync, LegFollows, LegResync, LegAway, LegTorn, LegFailed, LegOwnWay}
}

// legState is s under the names of a snapshot.
func legState(s mirror.State) LegState {
	switch s {
	case mirror.StateSync:
		return LegInSync
	case mirror.StateFollows:
		return LegFollows
	case mirror.StateResync:
		return LegResync
	case mirror.StateAway:
		return LegAway
	case mirror.StateTorn:
		return LegTorn
	case mirror.StateOwnWay:
		return LegOwnWay
	}
	return LegFailed // StateFailed, StateStranger
}

// shown is what v says of its mirror.
func shown(v *mirror.View) *MirrorSnapshot {
	r := &v.Record
	s := &MirrorSnapshot{
		Set: r.Set, Generation: r.String(), Pending: v.Pending,
		Members: r.Present().String(), F: r.F.String(), MinCopies: int(r.MinCopies), Copies: (v.Active & v.Equal).Count(), Async: r.Async.String(),
	}
	for slot := range r.Members {
		if r.Present().Has(slot) {
			s.Regions = append(s.Regions, r.Members[slot].UUID)
		}
	}
	return s
}

// shownLocked returns how the mirror is, and the leg that stands for it: the first one that is in
// sync, or else the first one that was ever up. Both are nil without a mirror. The caller holds
// commit.mu.
func (k *copies) shownLocked() (s *MirrorSnapshot, first *leg) {
	if k == nil {
		return nil, nil
	}
	s = shown(&k.view)
	s.Arbiter = k.office.shownLocked()
	synced := false
	for _, g := range k.core.legs {
		if g.vacant {
			continue
		}
		l := g.shownLocked(&k.view)
		if g.follow.on {
			k.followsLocked(g, &l)
		}
		s.Legs = append(s.Legs, l)
		if in := l.State == LegInSync; g.granted.Epoch != 0 && (first == nil || in && !synced) {
			first, synced = g, in
		}
	}
	return s, first
}

// followsLocked notes in l how far g, which follows, is. The caller holds commit.mu.
func (k *copies) followsLocked(g *leg, l *LegSnapshot) {
	lag := k.lagLocked(&g.follow)
	l.Behind = &lag.bytes
	l.Follows = &FollowsSnapshot{
		Barrier: g.follow.point.Barrier, Until: time.Unix(0, g.follow.point.At),
		LagSeconds: lag.age.Seconds(), AtBound: k.atBound(lag),
	}
	if l.Follows.AtBound && l.State == LegFollows {
		l.Cause = "FLUSHes wait for it: it is as far behind as it may be"
	}
}

// shownLocked is how g is, seen from v. The caller holds commit.mu.
func (g *leg) shownLocked(v *mirror.View) LegSnapshot {
	l := mirror.Leg{Record: g.record}
	if g.follow.on && l.MemberOf(&v.Record) { // its record says so soon
		l.Record.Torn = false
	}
	if g.up.Load() {
		l.Reach = mirror.Held
	}
	s := LegSnapshot{Target: g.cfg.Addr, Region: g.cfg.Region, State: legState(v.State(&l)), Late: time.Duration(g.late.Load()).Seconds()}
	if l.MemberOf(&v.Record) {
		s.Slot = persist.Member(g.slot).String()
	}
	if g.granted.Epoch != 0 {
		s.Class, s.Method, s.Epoch = g.granted.Class.String(), g.method.String(), g.granted.Epoch
	}
	switch s.State {
	case LegInSync:
		s.Behind = new(uint64)
		return s
	case LegFollows:
		return s
	case LegResync:
		s.Cause = "the others have not begun to copy to it"
		if p := g.resyncProgress(); !p.Since.IsZero() {
			behind := p.Total - min(p.Done, p.Total)
			s.Cause, s.Since, s.Behind = "what it lacks is copied to it", &p.Since, &behind
		}
		return s
	}
	cause := g.cause()
	var refused *RefusedError
	if g.bad != nil || errors.As(cause, &refused) && (refused.said.Code == wire.CodeFailed || refused.said.Code == wire.CodeSuspect) {
		s.State = LegFailed
	}
	s.Cause = cause.Error()
	if !g.silentAt.IsZero() {
		at := g.silentAt.Round(time.Millisecond)
		s.Since = &at
	}
	return s
}
