package remote

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"pmnbd/persist"
)

// Verify of a large mirror takes hours, and a session ends now and then: an encrypted one at the latest when
// its keys are used up. It is back a moment later. So a Verify goes in rounds, each of which has its members'
// sessions. The next one has the chunks that are left:
//
//	parts ─► a session is lost ─► all parts end ─► every member is in F, and there ─► parts
//	                                                         └─ one is not in F ─► cut short

// drive runs a round after the other. It closes v.done.
func (v *verification) drive(ctx context.Context, running *sync.WaitGroup) {
	defer v.copies.ended.Done()
	defer close(v.done)
	for running != nil {
		running.Wait()
		if !v.incomplete() {
			return
		}
		running = v.again(ctx)
	}
}

// again starts another round once all members are there. It returns nil if none can follow.
func (v *verification) again(ctx context.Context) *sync.WaitGroup {
	k := v.copies
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		k.core.commit.mu.Lock()
		stands, running := v.standsLocked(), (*sync.WaitGroup)(nil)
		if stands && ctx.Err() == nil && v.thereLocked() {
			running = v.resumeLocked(ctx)
		}
		k.core.commit.mu.Unlock()
		if running != nil || !stands {
			return running
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		case <-k.life.Done():
			return nil
		}
	}
}

// standsLocked reports whether the members are in F, and still what they were when v began: a place may have
// another member by now, and a member may have lost its contents and have got them again. The caller holds
// commit.mu.
func (v *verification) standsLocked() bool {
	k := v.copies
	r := &k.view.Record
	if k.core.failed() != nil || k.life.Err() != nil || r.F&v.members != v.members {
		return false
	}
	for slot := range r.Members {
		now, then := &r.Members[slot], &v.regions[slot]
		if v.members.Has(slot) && (now.UUID != then.UUID || now.Contents != then.Contents) {
			return false
		}
	}
	return true
}

// thereLocked reports whether all members have a session, and what the others have. The caller holds commit.mu.
func (v *verification) thereLocked() bool {
	there := persist.Member(v.from.slot)
	if !v.from.up.Load() {
		return false
	}
	for _, r := range v.parts {
		if !r.leg.up.Load() {
			return false
		}
		there |= persist.Member(r.leg.slot)
	}
	return there == v.members && v.copies.view.Flushes()
}

// resumeLocked starts a round with what the one before has left. The caller holds commit.mu.
func (v *verification) resumeLocked(ctx context.Context) *sync.WaitGroup {
	v.copies.log.Info("a verification of the mirror goes on in new sessions", slog.String("region", v.from.cfg.Region), slog.String("members", v.members.String()))
	v.mu.Lock()
	for i, old := range v.parts {
		r := v.newPart(old.leg, old.pieces)
		r.todo, r.due = old.todo, old.due
		r.compared.Store(old.compared.Load())
		v.parts[i] = r
	}
	v.broken = false
	v.mu.Unlock()
	running := v.startLocked()
	if ctx.Err() != nil { // the end of ctx may have ended the parts before these
		v.end()
	}
	return running
}

// reclaim puts back what r, a part that has ended, had begun, and what it had copied and nobody made durable.
func (r *resync) reclaim() {
	for i := range r.pieces {
		if p := &r.pieces[i]; p.state != pieceFree {
			r.todo.put(p.start)
			p.state = pieceFree
		}
	}
	for i, s := range r.copies.core.streams {
		s.mu.Lock()
		for _, c := range r.shares[i].copied {
			for off := c.Off; off < c.Off+c.Len; off += verifyChunk {
				r.todo.put(off)
			}
			r.compared.Add(-c.Len)
		}
		r.shares[i] = settlement{}
		s.mu.Unlock()
	}
}
