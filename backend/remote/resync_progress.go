package remote

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"pmnbd/rdma"
)

// A resyncProgress tells how far a resync is.
type resyncProgress struct {
	Done, Total uint64    // bytes that were compared, and copied if they differed; of how many
	Since       time.Time // when the resync began; zero: there is none
}

// An advance is the resyncProgress of a leg.
type advance struct {
	mu  sync.Mutex
	now resyncProgress
}

func (a *advance) set(now resyncProgress) {
	a.mu.Lock()
	a.now = now
	a.mu.Unlock()
}

func (a *advance) add(bytes uint64) {
	a.mu.Lock()
	a.now.Done += bytes
	a.mu.Unlock()
}

// resyncProgress tells how far the resync of g is.
func (g *leg) resyncProgress() resyncProgress {
	g.progress.mu.Lock()
	defer g.progress.mu.Unlock()
	return g.progress.now
}

// watch ends the leg's session if copies are under way and nothing has moved for too long. Otherwise it
// returns when to look again, pause at the latest.
func (r *resync) watch(now time.Time, pause time.Duration) time.Duration {
	if !r.outstanding() { // it waits for a source
		r.moved = now
		return pause
	}
	if n := r.leg.carried(); n != r.carry {
		r.carry, r.crowd = n, now
	}
	still := now.Sub(r.moved)
	left := resyncPatience - min(still, now.Sub(r.crowd))
	if left <= 0 || still >= crowdedPatience {
		err := fmt.Errorf("%w: its resync has moved nothing for %v: %w", rdma.ErrLost, still.Round(time.Second), rdma.ErrTimeout)
		r.leg.log.Warn("a resync stands still: it starts again in a new session", slog.String("region", r.leg.cfg.Region), slog.String("target", r.leg.cfg.Addr), slog.Any("error", err))
		r.leg.lanes[0].abort(err)
		r.moved = now
		return resyncPatience
	}
	if pause > 0 {
		return min(left, pause)
	}
	return left
}

// carried grows while the connections of g carry anything.
func (g *leg) carried() (n uint64) {
	for _, l := range g.lanes {
		l.mu.Lock()
		n += l.moved
		l.mu.Unlock()
	}
	return n
}
