package remote

import (
	"time"

	"pmnbd/internal/latency"
	"pmnbd/persist"
)

// roundTrips measures, for each leg by its slot, how long barriers took there: from when one was
// queued behind the writes that it covers until the last of the leg's lanes answered. A barrier that
// was in flight when a session was lost counts on the legs that had answered. groupCommit.mu
// guards it.
type roundTrips [persist.MaxMembers]latency.Histogram

// noteLocked notes that a lane of a leg has answered b. It reads the clock once the leg owes b
// nothing more.
func (n *roundTrips) noteLocked(b *barrier, leg int) {
	if b.owed(leg) == 0 {
		n[leg].Note(time.Since(b.began))
	}
}

// An interruption is one session that was lost, until it is back.
type interruption struct {
	leg   *leg
	began time.Time // zero if there was no session yet
}

// interruption begins one now.
func (g *leg) interruption() interruption {
	if g.granted.Epoch == 0 {
		return interruption{leg: g}
	}
	return interruption{g, time.Now()}
}

// over notes that the session is back.
func (i interruption) over() {
	if i.began.IsZero() {
		return
	}
	c := &i.leg.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	i.leg.outages.Note(time.Since(i.began))
}

// A TargetSnapshot says how long things took with one target, and what it still has to do.
type TargetSnapshot struct {
	Target string `json:"target"` // HOST:PORT
	Region string `json:"region"`
	// Key is the fingerprint of the key that has proven the last session with the target, and Cipher
	// what encrypts it; empty: none.
	Key    string `json:"key"`
	Cipher string `json:"cipher"`
	// Barriers is how long barriers took there: one for each barrier that ended.
	Barriers latency.Histogram `json:"barrier_latency"`
	// Outages is how long sessions that were lost took to come back.
	Outages latency.Histogram `json:"outages"`
	// DoubtLeft is how many bytes the target still has to flush before it can acknowledge a barrier
	// in inherited doubt, as its last heartbeat said.
	DoubtLeft uint64 `json:"doubt_left_bytes"`
	// Bad is how many bytes of the region its medium has lost, as the target said when the session began.
	Bad uint64 `json:"bad_bytes"`
}

// targetsLocked returns a snapshot of each leg. The caller holds commit.mu.
func (x *core) targetsLocked() []TargetSnapshot {
	all := make([]TargetSnapshot, 0, len(x.legs))
	for _, g := range x.legs {
		if g.vacant {
			continue
		}
		all = append(all, TargetSnapshot{
			Target: g.cfg.Addr, Region: g.cfg.Region, Key: g.key, Cipher: g.cipher, Barriers: x.commit.took[g.slot], Outages: g.outages, DoubtLeft: g.pulse.doubt.Load(), Bad: g.badPlaces.Load().bytes(),
		})
	}
	return all
}
