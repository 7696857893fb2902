package remote

import (
	"fmt"
	"log/slog"
	"time"

	"pmnbd/rdma"
)

// stallLeases bounds, in leases, how long a lane, a heartbeat, or a barrier that the target
// does not know of may make no progress: 60 s by default.
const stallLeases = 6

// A stall finds what makes no progress although the target seems to live: a dead lane whose
// transport has not noticed, or a barrier that got lost (design §5).
//
// A barrier that the target is working on is another matter. A large sync on a slow disk takes its
// time. A new session would make all its pages dirty again, and the next sync would
// take as long. So the session stays, status says how long the target has been at the barrier, and
// only Config.LossTimeout ends the device. A stall belongs to the goroutine of the heartbeats.
type stall struct {
	barrier, target, beat step
	lanes                 []step
	said                  uint64 // the barrier that the log tells of
}

// A step is how far something was, and since when.
type step struct {
	at    progress
	since int64 // by clock
}

// A progress is what changes when something waited for moves; zero while nothing is.
type progress struct{ seq, remaining, moved, atTarget, doubtLeft uint64 }

// stays is how long p has been where it is now.
func (s *step) stays(p progress, now int64) time.Duration {
	if p != s.at || p == (progress{}) {
		*s = step{p, now}
	}
	return time.Duration(now - s.since)
}

// find returns an error if something has stood still for longer than patience, and the
// lane to end for it. unanswered is the number of the heartbeat that has left and has no ack yet, or
// 0.
func (s *stall) find(g *leg, now int64, patience time.Duration, unanswered uint64) (*lane, error) {
	if s.lanes == nil {
		s.lanes = make([]step, len(g.lanes))
	}
	c := &g.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	var barrier progress
	if b := c.current; b != nil && b.owed(g.slot) > 0 {
		barrier = progress{seq: b.seq, remaining: uint64(b.owed(g.slot)), atTarget: g.pulse.barrier.Load(), doubtLeft: g.pulse.doubt.Load()}
	}
	var stuck *lane
	for i, l := range g.lanes {
		l.mu.Lock()
		// An outage is not the new connection's. A heartbeat moves its lane, and no barrier.
		arrived := l.conn.Arrived()
		p := progress{seq: g.generation.Load(), moved: l.moved + l.back.requests + arrived + 1}
		if l.signaled.empty() {
			p = progress{}
		}
		barrier.moved += l.moved + arrived
		l.mu.Unlock()
		if s.lanes[i].stays(p, now) > patience {
			stuck = l
		}
	}
	if barrier.seq == 0 {
		barrier = progress{}
	}
	stays := s.barrier.stays(barrier, now)
	silent := s.beat.stays(progress{seq: unanswered, moved: g.generation.Load()}, now)
	if unanswered == 0 {
		silent = 0
	}
	atTarget := barrier.seq != 0 && barrier.atTarget == barrier.seq
	// Other requests may move on meanwhile, and say nothing of it.
	target := progress{seq: barrier.seq, remaining: barrier.remaining, doubtLeft: barrier.doubtLeft}
	if !atTarget {
		target = progress{}
	}
	hangs := s.target.stays(target, now)
	if hangs > patience && s.said != barrier.seq {
		s.said = barrier.seq
		g.log.Warn("the target lives, and has been at a barrier for long: its disk is slow, or hangs. READs and writes go on, FLUSHes wait",
			slog.String("region", g.cfg.Region), slog.Uint64("barrier", barrier.seq), slog.Duration("for", hangs))
	}
	switch {
	case stuck != nil:
		return stuck, fmt.Errorf("%w: lane %d has carried nothing for %v: %w", rdma.ErrLost, stuck.index, patience, rdma.ErrTimeout)
	case silent > patience: // what the last ack said is not true any more
		return g.lanes[0], fmt.Errorf("%w: the target has not answered a heartbeat for %v: %w", rdma.ErrLost, silent.Round(time.Millisecond), rdma.ErrTimeout)
	case atTarget && g.cfg.LossTimeout > 0 && hangs+c.lost > g.cfg.LossTimeout:
		return g.lanes[0], &lastingError{fmt.Errorf("the target lives, but has been at barrier %d for %v, and the loss timeout is %v: its disk is too slow, or hangs: %w",
			barrier.seq, hangs.Round(time.Millisecond), g.cfg.LossTimeout, rdma.ErrTimeout)}
	case !atTarget && stays > patience:
		return g.lanes[0], fmt.Errorf("%w: barrier %d was sent %v ago, and the target knows nothing of it: %w", rdma.ErrLost, barrier.seq, stays.Round(time.Millisecond), rdma.ErrTimeout)
	}
	return nil, nil
}
