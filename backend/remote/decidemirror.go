package remote

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// A legacy is what a start of a mirror knows before it begins a life: what the previous run of this
// initiator left on this host, and what the members say.
type legacy struct {
	situation // refused.UUID is the set's; nothing else of refused counts

	decision mirror.Decision // by what the probes told
	// ours: this id was the last that opened a member of the newest generation's F. closed: a
	// member of it was closed, so its life ended well.
	ours, closed bool
	again        bool // an adoption ended with a closedError: the next such end is a loss
	opens        bool // this start sent an OPEN
	degraded     bool // Config.Degraded
	// left is what a member says of the lease of an owner with this id, in seconds: the most that one
	// says. by is that member's leg.
	left uint32
	by   int
}

// decideMirror says what a start does next, as decide does for a region alone: adopt the window, open
// the members, look again, or end. It touches nothing. Whether the members can be opened, and what
// they have, is package mirror's business; here it is about what this host left.
//
// A life writes a generation of its own before it serves. So where the newest generation is the one
// that the header names, nobody has served since.
func decideMirror(s *legacy) decision {
	d := decision{lost: s.lost}
	if s.lost == nil {
		d = s.judgeMirror()
		if d.lost == nil {
			return d
		}
	}
	if !s.acceptLoss && !s.givenUp() {
		return decision{act: actEnd, err: d.lost}
	}
	return s.whenOpen(decision{lost: d.lost})
}

// givenUp reports whether the loss is what an operator gave up by Config.Degraded: what only members
// that are away have. No write that nobody flushed is among it.
func (s *legacy) givenUp() bool {
	return s.degraded && s.header.State == windowDrained && s.decision.Newest.Before(s.header.Mirror.Record.Generation)
}

// whenOpen opens the members with d once they can be opened.
func (s *legacy) whenOpen(d decision) decision {
	switch s.decision.Outcome {
	case mirror.Refuse:
		return decision{act: actEnd, err: &MirrorError{s.decision.Why}}
	case mirror.Wait:
		return decision{act: actProbe}
	}
	if d.lost != nil && s.heard() && !s.takeover {
		d.act = actWait
		return d
	}
	d.act = actOpen
	return d
}

// heard is situation.heard for a mirror: a life on another host has a number of its own.
func (s *legacy) heard() bool {
	h := &s.header
	ours := h.State != 0 && h.Boot == s.boot && h.Mirror.Life == s.decision.Newest.Life
	return s.left > 0 && !ours
}

// judgeMirror decides while this start has met no loss. It returns the loss that it finds.
func (s *legacy) judgeMirror() decision {
	h := &s.header
	if h.State == windowDamaged || h.State == windowForeign {
		return loseUnreadable(s.path, h)
	}
	if h.Boot != s.boot {
		h = &header{} // a reboot takes every window, wherever it lies
	}
	newest, v := s.decision.Newest.Generation, &h.Mirror
	was := v.Record.Generation
	settled := s.decision.GoesBack || s.decision.Outcome != mirror.Wait && s.decision.Outcome != mirror.Refuse
	switch {
	case h.State != 0 && h.UUID != s.refused.UUID:
		return lose("%v %s is of mirror %s, not of %s", ErrWindow, s.path, uuid.UUID(h.UUID), uuid.UUID(s.refused.UUID))
	case h.State == windowFailed:
		return lose("the device failed in the previous run: %s", h.failure())
	case h.State != 0 && h.Opened != 0 && s.otherDir != "" && was.Before(newest) && newest.Life != v.Life:
		return lose("%s; the window here is of generation %v, and the mirror is in generation %v", s.elsewhere(), was, newest)
	case h.State == windowLive && h.goesOn(), h.State == windowDrained && v.Pending && !s.adopted:
		return decision{act: actAdopt}
	case !settled:
		return s.whenOpen(decision{})
	case h.State == 0:
		return s.withoutWindow()
	case h.Opened == 0 && s.heard() && !s.takeover: // the start before may have been waiting, too
		return decision{act: actWait}
	case h.Opened == 0: // nobody was served in this boot, and the start before looked at what was
		return decision{act: actOpen}
	case newest == was && h.State == windowDrained && s.ours && !s.closed && !s.adopted:
		return decision{act: actAdopt} // it was killed before its CLOSE
	case newest == was:
		return decision{act: actOpen, from: *h}
	case s.adopted && s.before(v):
		// The replay was through while the life was about to take a member in.
		from := *h
		from.Mirror.Record = s.decision.Newest
		return decision{act: actOpen, from: from}
	case newest.Before(was):
		return lose("%s was in generation %v when this initiator left it, and is in generation %v: members that have newer data are away, or were restored from a copy",
			s.mirror, was, newest)
	}
	return lose("somebody else had %s since this initiator left it in generation %v: it is in generation %v, and clients that are still attached would find other contents",
		s.mirror, was, newest)
}

// unasked refuses to go on with a life that asks an arbiter before each generation, where the start neither
// names one nor is to do without.
func (s *legacy) unasked(settled bool) error {
	if v := &s.header.Mirror; settled || !v.Arbiter || s.header.State != windowLive || s.header.Boot != s.boot || !s.header.goesOn() {
		return nil
	}
	return &MirrorError{"the previous run of this initiator had " + s.mirror + " with an arbiter: name it with --arbiter; if it is gone for good, and no other host serves the mirror, --degraded --without-arbiter goes on without it"}
}

// before reports whether the newest generation is the active one of v, and the one that v has pending is
// on none of the members that were reached. Both have all that the replay sent.
func (s *legacy) before(v *mirror.View) bool {
	newest := &s.decision.Newest
	return v.Pending && slices.ContainsFunc(v.Record.Lineage[:], func(a persist.Ancestor) bool {
		return a == newest.Ancestor && a.Life == v.Life && a.F == v.Active
	})
}

// withoutWindow decides where this boot of the host has no window of the mirror: the previous run may
// have acknowledged writes that are lost with it.
func (s *legacy) withoutWindow() decision {
	switch {
	case !s.ours && s.hadBoot == s.boot:
		return lose("somebody else had %s since this initiator had it, and its window is not in %s: what was acknowledged and not flushed is lost, and clients that are still attached would find other contents",
			s.mirror, s.windowDir)
	case !s.ours || s.closed:
		return decision{act: actOpen}
	case s.localClients && s.lastBoot != uuid.Nil && s.lastBoot != s.boot:
		if s.heard() && !s.takeover {
			return decision{act: actWait}
		}
		return decision{act: actOpen, note: noteBooted}
	case s.otherDir != "":
		return lose("%s; without that window the acknowledged writes that no FLUSH covered are lost", s.elsewhere())
	}
	return lose("the previous run of this initiator did not close %s, and its window is not in %s, or is from before this host booted: what it acknowledged and did not flush is lost",
		s.mirror, s.windowDir)
}

// elsewhere says where the last window of the mirror lies.
func (s *legacy) elsewhere() string {
	return fmt.Sprintf("this initiator had the window of %s in directory %s, and this start looks in %s: start it with the former directory again",
		s.mirror, s.otherDir, s.windowDir)
}
