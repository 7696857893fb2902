package remote

import (
	"fmt"

	"github.com/google/uuid"

	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// A situation is what a start knows before it opens its region: what the previous run of this
// initiator left on this host, and what the target says of the region.
type situation struct {
	id           [16]byte  // this initiator
	boot         uuid.UUID // of this host
	region       string    // the region's name
	mirror       string    // what messages call the mirror; "" where there is none
	localClients bool      // Config.LocalClients
	acceptLoss   bool      // Config.AcceptLoss
	takeover     bool      // Config.Takeover
	windowDir    string    // where this start keeps its window

	refused wire.Refused // what the target last said of the region; busy while another id holds it

	path   string // of the window file
	header header // of the window file; its State is 0 if there was none

	// otherDir is the directory where this initiator's last window of the region lies, if that
	// is not windowDir.
	otherDir string
	hadBoot  uuid.UUID // the boot in which this host last had the region; Nil if nothing tells
	// lastBoot is the boot in which this host last had the region for local clients alone; Nil
	// if it had other clients, or nothing tells.
	lastBoot uuid.UUID

	adopted bool       // this start has adopted the window
	resumed answer     // to the RESUME of actAsk
	lost    *LossError // the loss that this start has met
	looked  bool       // refused is what the target said after lost was found
}

// An answer is what the target said to a RESUME.
type answer int

const (
	answerNone    answer = iota // nobody has asked
	answerGranted               // the header's owner has the region
	answerRefused               // another owner has had it
)

// A decision is what a start does next.
type decision struct {
	act  act
	err  error      // of actEnd
	lost *LossError // of actProbe, actWait and actOpen: the accepted loss

	// Of actOpen.
	owner persist.Owner // to open as; zero: a new one
	epoch uint64        // that OPEN names
	from  header        // what the new window continues; State 0: nothing, and it starts a lineage
	note  string        // for the log
}

// An act is one step of a start.
type act int

const (
	actEnd   act = iota // with an error
	actAdopt            // adopt the window, probe, decide again
	actAsk              // learn by RESUME whether the header's owner has the region, decide again
	actProbe            // ask the target about the region again, decide again
	actOpen             // open the region with an empty window
	actWait             // let the owner's lease end, probe, decide again
)

// decide says what a start does next. It is the table of docs/architecture.md, "What a run
// leaves to the next", and it touches nothing.
//
// Acknowledged writes may be forgotten only if their clients saw the device die: the kernel and
// QEMU send a new pmnbd only what was not answered (design §6.4). So a window that can be
// replayed is, and every doubt about the rest is a loss, which only a person can accept.
func decide(s *situation) decision {
	d := decision{act: actProbe, lost: s.lost}
	if s.lost == nil {
		d = s.judge()
		if d.lost == nil {
			return d
		}
	}
	switch {
	case !s.acceptLoss:
		return decision{act: actEnd, err: d.lost}
	case !s.looked: // a RESUME may have raised the epoch, and a loss accepts any
		return decision{act: actProbe, lost: d.lost}
	case s.refused.Code == wire.CodeBusy:
		return s.busy()
	case s.heard() && !s.takeover:
		return decision{act: actWait, lost: d.lost}
	}
	return decision{act: actOpen, lost: d.lost, epoch: s.refused.Epoch}
}

// heard reports whether the target hears an owner with this initiator's id, or did less than a lease
// ago, that may be another host's: nothing here is of the region's last session. The claim and the
// window's lock keep processes of one host apart, but not two hosts that have copies of one state
// directory. A target of release 0.1.0 does not tell.
func (s *situation) heard() bool {
	h, r := &s.header, &s.refused
	ours := h.State != 0 && h.Boot == s.boot && h.UUID == r.UUID && h.Epoch == r.Epoch
	return r.Holder == s.id && r.Seconds > 0 && !ours
}

// unserved reports whether the previous run ended before it served anybody, and may have opened something.
func (s *situation) unserved() bool {
	return s.header.State != 0 && s.header.Boot == s.boot && s.header.Opened == 0
}

// judge decides while this start has met no loss. It returns the loss that it finds.
func (s *situation) judge() decision {
	h, r := &s.header, &s.refused
	if h.State == windowDamaged || h.State == windowForeign {
		return loseUnreadable(s.path, h)
	}
	if h.Boot != s.boot {
		h = &header{} // a reboot takes every window, wherever it lies
	}
	if h.State != 0 && h.UUID != r.UUID {
		return lose("%v %s is of region %s, not of %s", ErrWindow, s.path, uuid.UUID(h.UUID), uuid.UUID(r.UUID))
	}
	later := heldSince(r, s.id, h.Epoch)
	switch {
	case (h.State == windowLive || h.State == windowDrained) && s.otherDir != "" && r.Holder == s.id && r.Epoch > h.Epoch:
		return lose("%s; the window here is of epoch %d, and the region is in epoch %d", s.elsewhere(), h.Epoch, r.Epoch)
	case h.State == windowLive && h.Opened != 0, h.State == windowDrained && later && !s.adopted:
		// The run that drained it may have resumed the session without hearing of it, when its
		// CLOSE broke. RESUME tells, also while another id holds the region: the target grants it
		// to nobody but the persisted owner, so its refusal is for good.
		return decision{act: actAdopt}
	case h.State == windowFailed:
		return lose("the device failed in the previous run: %s", h.failure())
	case r.Code == wire.CodeBusy:
		return s.busy() // nothing is known to be lost, and the rest can be compared once the region is free
	case h.State == 0:
		return s.withoutWindow()
	case r.Mark < h.Mark:
		return decision{lost: lossOfMark(s.region, h.Mark, r.Mark)}
	case h.State == windowLive && later && s.resumed == answerNone:
		return decision{act: actAsk} // the run may have been killed before it noted the grant
	case h.State == windowLive && later && s.resumed == answerGranted:
		return decision{act: actOpen, owner: h.Owner, epoch: h.Epoch, from: *h}
	case h.ContentsID != [16]byte{} && r.Epoch == h.Epoch && r.Holder != s.id:
		return lose("somebody else had region %s since this initiator left it: it was restored from a copy, and came to epoch %d again", s.region, h.Epoch)
	case r.Epoch != h.Epoch:
		return lose("somebody else had region %s since this initiator left it in epoch %d: it is in epoch %d, and clients that are still attached would find other contents",
			s.region, h.Epoch, r.Epoch)
	}
	return decision{act: actOpen, epoch: r.Epoch, from: *h}
}

// withoutWindow decides where this boot of the host has no window of the region: the previous
// run may have acknowledged writes that are lost with it.
func (s *situation) withoutWindow() decision {
	open := decision{act: actOpen, epoch: s.refused.Epoch}
	switch {
	case s.refused.Holder != s.id && s.hadBoot == s.boot:
		return lose("somebody else had region %s since this initiator had it, and its window is not in %s: what was acknowledged and not flushed is lost, and clients that are still attached would find other contents",
			s.region, s.windowDir)
	case s.refused.Holder != s.id || s.refused.Flags&wire.OpenedUnclean == 0:
		return open
	case s.localClients && s.lastBoot != uuid.Nil && s.lastBoot != s.boot:
		// Every client of that run was on this host, so none has survived.
		if s.heard() && !s.takeover {
			return decision{act: actWait}
		}
		open.note = noteBooted
		return open
	case s.otherDir != "":
		return lose("%s; without that window the acknowledged writes that no FLUSH covered are lost", s.elsewhere())
	}
	return lose("the previous run of this initiator did not close region %s, and its window is not in %s, or is from before this host booted: what it acknowledged and did not flush is lost",
		s.region, s.windowDir)
}

const noteBooted = "this host was booted since the previous run: no client is left that knows what it had acknowledged"

// loseUnreadable is the loss of a window whose header cannot be read.
func loseUnreadable(path string, h *header) decision {
	if h.State == windowForeign {
		return lose("another release of pmnbd left %v %s: it is of %s. Start that release again, so that it sends what it has acknowledged, and end it with SIGTERM once nobody uses the device; a release in between may adopt it (docs/compatibility.md)",
			ErrWindow, path, h.failure())
	}
	return lose("the header of %v %s is damaged", ErrWindow, path)
}

// busy ends a start because another id holds the region. What the previous run left stays as it is.
func (s *situation) busy() decision {
	return decision{act: actEnd, err: &RefusedError{Region: s.region, said: s.refused}}
}

// elsewhere says where the last window of the region lies.
func (s *situation) elsewhere() string {
	return fmt.Sprintf("this initiator had the window of region %s in directory %s, and this start looks in %s: start it with the former directory again",
		s.region, s.otherDir, s.windowDir)
}

// heldSince tells whether id opened or resumed the region after epoch and has not closed it.
// Which run of id that was only a RESUME tells.
func heldSince(r *wire.Refused, id [16]byte, epoch uint64) bool {
	return r.Holder == id && r.Epoch > epoch && r.Flags&wire.OpenedUnclean != 0
}

// granted compares what OPEN granted with what h says of the region: somebody can put a copy
// in its place between the probe and OPEN. It returns what is lost, or nil.
func (h *header) granted(region string, g *wire.Opened) *LossError {
	switch {
	case h.ContentsID != [16]byte{} && h.ContentsID != g.ContentsID:
		return &LossError{fmt.Sprintf("the contents of region %s were lost at the target since this initiator left it", region)}
	case g.Mark < h.Mark:
		return lossOfMark(region, h.Mark, g.Mark)
	}
	return nil
}

// lossOfMark is the loss of a region whose mark is lower than this initiator left it.
func lossOfMark(region string, left, has uint64) *LossError {
	return &LossError{fmt.Sprintf("region %s was restored from a copy since this initiator left it: it has mark %d, and had mark %d. It lacks the writes that were flushed in between",
		region, has, left)}
}

// lose is the decision that something is lost.
func lose(format string, args ...any) decision {
	return decision{lost: &LossError{fmt.Sprintf(format, args...)}}
}
