package target

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"pmnbd/persist"
)

// A RegionSnapshot is how a region was at one moment. It is a copy; its JSON names
// are kept once published.
type RegionSnapshot struct {
	Name  string    `json:"name"`
	Path  string    `json:"path"`
	UUID  uuid.UUID `json:"uuid"`
	Class string    `json:"class"`
	Size  uint64    `json:"size_bytes"`
	Epoch uint64    `json:"epoch"`
	// Owner is the last one, nil if there is none.
	Owner *OwnerSnapshot `json:"owner"`
	// Held: the owner has not given the region back. Session is nil if it has not
	// shown up in this run of the target.
	Held    bool             `json:"held"`
	Session *SessionSnapshot `json:"session"`
	// LeaseLeft is how long the owner may stay silent yet before somebody else can
	// have the region, in seconds; 0 if it is free.
	LeaseLeft float64 `json:"lease_left_seconds"`
	// Clean: the last session gave the region back. It is false in a session.
	Clean   bool   `json:"clean"`
	Doubt   bool   `json:"doubt"`
	Failed  bool   `json:"failed"`
	Failure string `json:"failure,omitempty"`
	Suspect bool   `json:"suspect"`
	// Barriers counts those acknowledged in this run, on each lane, Syncs the fdatasyncs begun,
	// those for the superblock among them; class file alone has any.
	Barriers uint64 `json:"barriers"`
	Syncs    uint64 `json:"syncs"`
	// Syncing is how long the sync behind barriers that is under way has taken so far, or
	// the flush that clears doubt, in seconds; 0 if there is none.
	Syncing float64 `json:"syncing_seconds"`
}

// A MethodSnapshot says whether a durability method is sound.
type MethodSnapshot struct {
	Method string `json:"method"`
	Sound  bool   `json:"sound"`
	Why    string `json:"why"`
}

// An OwnerSnapshot names an initiator and that run of it.
type OwnerSnapshot struct {
	ID    uuid.UUID `json:"id"`
	Nonce uuid.UUID `json:"nonce"`
}

// A SessionSnapshot is how a session was.
type SessionSnapshot struct {
	// Method is how its barriers are done. Methods are all that there are, best
	// first, and why one is not sound: that depends on the adapter, too.
	Method  string           `json:"method"`
	Methods []MethodSnapshot `json:"methods"`
	// Lanes are the connections that it has now, HOST:PORT of the initiator by
	// number of the lane. It has none when they broke and the lease goes on.
	Lanes []LaneSnapshot `json:"lanes"`
}

// A LaneSnapshot is a connection of a session.
type LaneSnapshot struct {
	Lane uint16 `json:"lane"`
	Peer string `json:"peer"`
}

// Snapshot is how the regions are now, by name.
func (s *Server) Snapshot() []RegionSnapshot {
	all := make([]RegionSnapshot, 0, len(s.exports))
	for _, e := range s.exports {
		all = append(all, e.snapshot())
	}
	slices.SortFunc(all, func(a, b RegionSnapshot) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (e *export) snapshot() RegionSnapshot {
	e.mu.Lock()
	session := e.session
	e.mu.Unlock()
	sb := e.r.Superblock()
	s := RegionSnapshot{
		Name: e.r.Name(), Path: e.r.Path(), UUID: e.r.UUID(), Class: e.r.Class().String(), Size: e.r.Size(),
		Epoch: sb.Epoch, Held: e.held(&sb, session), Clean: sb.Clean, Doubt: sb.Doubt, Suspect: sb.Suspect,
		Barriers: e.barriers.Load(), Syncs: e.r.Syncs(),
	}
	if began := e.syncer.began.Load(); began != 0 {
		s.Syncing = time.Duration(clock() - began).Seconds()
	}
	if sb.Owner != (persist.Owner{}) {
		s.Owner = &OwnerSnapshot{ID: sb.Owner.ID, Nonce: sb.Owner.Nonce}
	}
	if s.Held {
		s.LeaseLeft = max(0, e.leaseLeft(session).Round(time.Millisecond).Seconds())
	}
	if session != nil {
		s.Session = &SessionSnapshot{Method: session.method.String(), Lanes: session.peers()}
		for _, m := range persist.BestFirst {
			why := WhyNot(m, session.facts)
			s.Session.Methods = append(s.Session.Methods, MethodSnapshot{Method: m.String(), Sound: why == persist.ReasonSound, Why: why.String()})
		}
	}
	// Not the superblock's: a failure that could not be written down counts too.
	s.Failure = e.r.Failure()
	s.Failed = s.Failure != ""
	return s
}

// peers lists the session's connections.
func (s *session) peers() []LaneSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := make([]LaneSnapshot, 0, len(s.lanes))
	for n, c := range s.lanes {
		select {
		case <-c.done: // the session outlives it
		default:
			lanes = append(lanes, LaneSnapshot{Lane: n, Peer: c.peer})
		}
	}
	slices.SortFunc(lanes, func(a, b LaneSnapshot) int { return int(a.Lane) - int(b.Lane) })
	return lanes
}
