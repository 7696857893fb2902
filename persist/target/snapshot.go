package target

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"pmnbd/internal/latency"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// A RegionSnapshot describes a region at one moment. It is a copy. Its JSON names stay as
// they are once published.
type RegionSnapshot struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// Parts are the paths of all parts of a region of several.
	Parts []string  `json:"parts,omitempty"`
	UUID  uuid.UUID `json:"uuid"`
	Class string    `json:"class"`
	Size  uint64    `json:"size_bytes"`
	Epoch uint64    `json:"epoch"`
	// Owner is the last owner, or nil if there was none.
	Owner *OwnerSnapshot `json:"owner"`
	// Held: the owner has not closed its session. Session is nil if the owner has not
	// connected in this run of the target.
	Held    bool             `json:"held"`
	Session *SessionSnapshot `json:"session"`
	// LeaseLeft is how long the owner may still stay silent before somebody else can have
	// the region, in seconds, or 0 if the region is free.
	LeaseLeft float64 `json:"lease_left_seconds"`
	// Clean: the last session ended with CLOSE. It is false during a session.
	Clean   bool   `json:"clean"`
	Doubt   bool   `json:"doubt"`
	Failed  bool   `json:"failed"`
	Failure string `json:"failure,omitempty"`
	Suspect bool   `json:"suspect"`
	// Protection is nil unless the region is of class protected.
	Protection *ProtectionSnapshot `json:"protection"`
	// Member is nil if the region is no member of a mirror.
	Member *MemberSnapshot `json:"member"`
	// Barriers counts the barriers acknowledged in this run, on each lane. Syncs counts
	// the fdatasyncs begun, including those of the superblock. Only class file has any.
	Barriers uint64 `json:"barriers"`
	Syncs    uint64 `json:"syncs"`
	// Syncing is how long the current sync for barriers, or the flush that settles doubt,
	// has taken so far, in seconds, or 0 if there is none.
	Syncing float64 `json:"syncing_seconds"`
	// WriteBack is how long parts of barriers took to write back with the CPU, for classes volatile
	// and pmem. Fdatasync is how long the syncs took that have ended, for class file.
	WriteBack latency.Histogram `json:"write_back_latency"`
	Fdatasync latency.Histogram `json:"fdatasync_latency"`
	// DoubtLeft is how many bytes the flush that settles doubt still has to do.
	DoubtLeft uint64 `json:"doubt_left_bytes"`
	// Bad has the places of the region that its medium has lost. BadUnknown is why there may be more.
	Bad        []PlaceSnapshot `json:"bad_places"`
	BadUnknown string          `json:"bad_unknown,omitempty"`
}

// A MemberSnapshot describes a region as a member of a mirror, by its own record. Members are
// letters, by slot.
type MemberSnapshot struct {
	// Mirror is the UUID of the set, and Member this region's letter.
	Mirror uuid.UUID `json:"mirror"`
	Member string    `json:"member"`
	// Generation is LIFE.COUNT. Life is the highest life that has opened the region.
	Generation string `json:"generation"`
	Life       uint64 `json:"life"`
	// InSync has the members of the generation's F: each had every flushed write.
	InSync    string `json:"in_sync"`
	MinCopies int    `json:"min_copies"`
	// Torn: a resync of this region has begun and has not ended. It serves nobody.
	Torn bool `json:"torn"`
	// Others are the mirror's other members.
	Others []OtherSnapshot `json:"others"`
}

// An OtherSnapshot is another member of a region's mirror.
type OtherSnapshot struct {
	Member string    `json:"member"`
	UUID   uuid.UUID `json:"uuid"`
	// Behind is how many bytes of the region the member may lack, by this region's bits.
	Behind uint64 `json:"behind_bytes"`
}

// A MethodSnapshot says whether a durability method is sound.
type MethodSnapshot struct {
	Method string `json:"method"`
	Sound  bool   `json:"sound"`
	Why    string `json:"why"`
}

// An OwnerSnapshot names one run of an initiator.
type OwnerSnapshot struct {
	ID    uuid.UUID `json:"id"`
	Nonce uuid.UUID `json:"nonce"`
}

// A SessionSnapshot describes a session.
type SessionSnapshot struct {
	// Method is the session's method. Methods lists all methods, best first, and why each
	// one that is not sound is not. That also depends on the adapter.
	Method  string           `json:"method"`
	Methods []MethodSnapshot `json:"methods"`
	// Key is the fingerprint of the key that has proven the session, and Cipher what encrypts it;
	// empty: none.
	Key    string `json:"key"`
	Cipher string `json:"cipher"`
	// Lanes lists the session's connections by lane number. There are none if they broke
	// and the lease still runs.
	Lanes []LaneSnapshot `json:"lanes"`
}

// A LaneSnapshot is a connection of a session.
type LaneSnapshot struct {
	Lane uint16 `json:"lane"`
	Peer string `json:"peer"`
}

// Snapshot returns a snapshot of each region, sorted by name.
func (s *Server) Snapshot() []RegionSnapshot {
	all := make([]RegionSnapshot, 0, len(s.served()))
	for _, e := range s.served() {
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
		Name: e.r.Name(), Path: e.r.Path(), Parts: e.r.Parts(), UUID: e.r.UUID(), Class: e.r.Class().String(), Size: e.r.Size(),
		Epoch: sb.Epoch, Held: e.held(&sb, session), Clean: sb.Clean, Doubt: sb.Doubt, Suspect: sb.Suspect,
		Barriers: e.barriers.Load(), Syncs: e.r.Syncs(),
		WriteBack: e.writeBacks(), Fdatasync: e.r.SyncLatency(),
	}
	if sb.Doubt {
		s.DoubtLeft = e.syncer.left.Load()
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
		s.Session = &SessionSnapshot{Method: session.method.String(), Key: session.key, Cipher: session.cipher, Lanes: session.peers()}
		for _, m := range persist.BestFirst {
			why := WhyNot(m, session.facts)
			s.Session.Methods = append(s.Session.Methods, MethodSnapshot{Method: m.String(), Sound: why == persist.ReasonSound, Why: why.String()})
		}
	}
	s.Bad = PlacesOf(e.r.Bad())
	if err := e.r.BadUnknown(); err != nil {
		s.BadUnknown = err.Error()
	}
	s.Member, s.Protection = e.member(&sb), e.protection()
	// The superblock does not have a failure that could not be recorded.
	s.Failure = e.r.Failure()
	s.Failed = s.Failure != ""
	return s
}

// member describes the region as a member of its mirror, or returns nil.
func (e *export) member(sb *region.Superblock) *MemberSnapshot {
	rec := &sb.Record
	if *rec == (persist.Record{}) {
		return nil
	}
	m := &MemberSnapshot{
		Mirror: rec.Set, Member: persist.Member(int(rec.Slot)).String(), Generation: rec.String(), Life: sb.Life,
		InSync: rec.F.String(), MinCopies: int(rec.MinCopies), Torn: rec.Torn,
	}
	for slot, other := range rec.Members {
		if other.UUID == ([16]byte{}) || slot == int(rec.Slot) {
			continue
		}
		behind := e.r.BitsSet(slot) * e.r.ChunkSize()
		m.Others = append(m.Others, OtherSnapshot{Member: persist.Member(slot).String(), UUID: other.UUID, Behind: min(behind, e.r.Size())})
	}
	return m
}

// peers lists the session's connections.
func (s *session) peers() []LaneSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := make([]LaneSnapshot, 0, len(s.lanes))
	for n, c := range s.lanes {
		select {
		case <-c.done: // the session outlives the connection
		default:
			lanes = append(lanes, LaneSnapshot{Lane: n, Peer: c.peer})
		}
	}
	slices.SortFunc(lanes, func(a, b LaneSnapshot) int { return int(a.Lane) - int(b.Lane) })
	return lanes
}
