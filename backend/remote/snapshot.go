package remote

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"pmnbd/backend"
)

// A State is where a device is in its life.
type State string

const (
	// StateOpen: the session is up.
	StateOpen State = "open"
	// StateWaiting: the session is interrupted. READ and FLUSH wait; Cause says what for.
	StateWaiting State = "waiting"
	// StateFailed: the device failed for good, every op gets an I/O error.
	StateFailed State = "failed"
	// StateClosed: the session was given back.
	StateClosed State = "closed"
)

// A Snapshot is how a device was at one moment. It is a copy; its JSON names are
// kept once published.
type Snapshot struct {
	Region     string    `json:"region"`
	RegionUUID uuid.UUID `json:"region_uuid"`
	Target     string    `json:"target"` // HOST:PORT
	Class      string    `json:"class"`
	Size       uint64    `json:"size_bytes"`
	Method     string    `json:"method"`
	MethodWhy  string    `json:"method_why"`
	Epoch      uint64    `json:"epoch"`
	Owner      uuid.UUID `json:"owner_id"` // the initiator's id
	// Unclean: the session before this one was not closed; what was acknowledged in
	// it and not flushed is lost.
	Unclean bool `json:"unclean"`
	// Lineage stays over restarts while nothing that was acknowledged can have been lost,
	// and nobody else have had the region. It is a new one where a LossError was accepted,
	// and where there was no window file of this boot.
	Lineage uuid.UUID `json:"lineage"`
	// Doubt: the session inherited doubt, and no barrier has succeeded since.
	Doubt bool  `json:"doubt"`
	State State `json:"state"`
	// Cause says why State is not open.
	Cause string `json:"cause,omitempty"`
	// Since is when State became what it is.
	Since time.Time `json:"state_since"`
	// WaitingSince is when the target was lost for which the device waits; nil in other states.
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	// Taken: State is failed by a TakenError.
	Taken bool `json:"taken,omitempty"`
	// Recoveries counts how often the session was interrupted and went on.
	Recoveries uint64           `json:"recoveries"`
	Lanes      []LaneSnapshot   `json:"lanes"`
	Window     WindowSnapshot   `json:"window"`
	Barriers   BarriersSnapshot `json:"barriers"`
	// BadRequests counts the requests that got an I/O error because the medium has lost what they name.
	BadRequests uint64 `json:"bad_requests"`
	// Targets has one element for each copy, in the order of --target.
	Targets []TargetSnapshot `json:"targets"`
	// Mirror is nil for a region alone. What is of one session above is then of the first leg that
	// is in sync, or of the first one where none is.
	Mirror *MirrorSnapshot `json:"mirror,omitempty"`
}

// DeviceUUID identifies what the device stores its data in: the mirror, or the region alone. Unlike RegionUUID, it
// does not change when another member of the mirror becomes the first in sync.
func (s *Snapshot) DeviceUUID() uuid.UUID {
	if s.Mirror != nil {
		return s.Mirror.Set
	}
	return s.RegionUUID
}

// A LaneSnapshot is how a lane was.
type LaneSnapshot struct {
	Peer string `json:"peer"` // HOST:PORT
	// Posted counts the work requests made since the lane was connected,
	// Outstanding those whose send slot is not known to be free again.
	Posted      uint64 `json:"posted_work_requests"`
	Outstanding uint64 `json:"outstanding_work_requests"`
}

// A WindowSnapshot is how full the window was.
type WindowSnapshot struct {
	// Used and Limit are memory, in chunks of backend.ChunkSize: payloads that no
	// barrier covers, and room for larger ones that are being received.
	Used  uint64 `json:"used_bytes"`
	Limit uint64 `json:"limit_bytes"`
	// Entries are pieces of writes.
	Entries      uint64 `json:"used_entries"`
	EntriesLimit uint64 `json:"limit_entries"`
	// Unflushed is what was acknowledged and is covered by no successful barrier.
	// On a failed device it is what may be lost.
	Unflushed uint64 `json:"unflushed_bytes"`
}

// A BarriersSnapshot counts barriers that succeeded since the device was opened.
type BarriersSnapshot struct {
	Done uint64 `json:"done"`
	// Answered is how many of them answered FLUSHes or FUA writes; the others made
	// room in the window. Asked counts those FLUSHes and FUA writes, without FLUSHes
	// that found nothing to do: Asked/Answered is the group-commit factor.
	Answered uint64 `json:"answered"`
	Asked    uint64 `json:"asked"`
	// InFlight: one is under way. Waiting ones will be answered by the next.
	InFlight bool   `json:"in_flight"`
	Waiting  uint64 `json:"waiting"`
	// AtTarget is how long heartbeats have said that the target is at the one in flight, in
	// seconds; 0 if they do not say so.
	AtTarget float64 `json:"at_target_seconds"`
}

// Snapshot is how the device is now, also after it failed or was closed. It holds
// each lock for a few loads.
func (d *Device) Snapshot() Snapshot {
	c := &d.core.commit
	c.mu.Lock()
	mirror, leg := d.core.copies.shownLocked()
	if leg == nil {
		leg = d.legs[0]
	}
	granted, method, why := leg.granted, leg.method.String(), leg.methodWhy()
	c.mu.Unlock()
	g := &granted
	s := Snapshot{
		Region: leg.cfg.Region, RegionUUID: g.UUID, Target: leg.cfg.Addr, Class: g.Class.String(), Size: d.info.Size,
		Method: method, MethodWhy: why, Epoch: g.Epoch, Owner: d.cfg.ID, State: StateOpen,
		Unclean: leg.opening.unclean, Lineage: d.lineage, Mirror: mirror,
	}
	for _, l := range d.core.legs {
		s.Recoveries += l.generation.Load()
	}
	now := d.core.life.now.Load()
	s.State, s.Cause = now.shown()
	s.Since = now.at.UTC().Round(time.Millisecond)
	if s.State == StateWaiting {
		since := now.since.UTC().Round(time.Millisecond)
		s.WaitingSince = &since
	}
	s.Taken = s.State == StateFailed && errors.As(now.err, new(*TakenError))
	bytes, entries := d.arenas.Write.Pins(), d.arenas.Entries
	s.Window = WindowSnapshot{
		Used:    uint64(bytes.Total()-bytes.Free()) * backend.ChunkSize,
		Limit:   uint64(bytes.Total()) * backend.ChunkSize,
		Entries: uint64(entries.Total() - entries.Free()), EntriesLimit: uint64(entries.Total()),
		Unflushed: d.Unflushed(),
	}
	for _, l := range leg.lanes {
		l.mu.Lock()
		if l.conn != nil { // it was connected at least once
			s.Lanes = append(s.Lanes, LaneSnapshot{Peer: l.conn.RemoteAddr(), Posted: l.out.requests, Outstanding: l.out.requests - l.back.requests})
		}
		l.mu.Unlock()
	}
	c.mu.Lock()
	s.Doubt = c.doubts != 0
	s.BadRequests = d.core.bad.requests.Load()
	s.Targets = d.core.targetsLocked()
	s.Barriers = BarriersSnapshot{Done: c.count, Answered: c.answered, Asked: c.asked, InFlight: c.current != nil, Waiting: uint64(len(c.waiting) + len(c.listed))}
	if c.current != nil {
		for _, l := range d.core.legs {
			s.Barriers.AtTarget = max(s.Barriers.AtTarget, l.pulse.at(c.current.seq).Seconds())
		}
	}
	c.mu.Unlock()
	return s
}
