package remote

import (
	"fmt"
	"time"

	"pmnbd/rdma"
)

// stallLeases is how many leases a barrier, or a lane, may take without progress: 60 s
// by default, which leaves a disk of the target one command timeout of 30 s and a retry.
const stallLeases = 6

// A stall tells what makes no progress, while heartbeats say that the target lives: a
// disk that hangs there, or a lane that no longer is one and whose transport does not
// notice (design §5). It belongs to the goroutine of the heartbeats.
type stall struct {
	barrier step
	lanes   []step
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
// lane to end for it.
func (s *stall) find(d *Device, now int64, patience time.Duration) (*lane, error) {
	if s.lanes == nil {
		s.lanes = make([]step, len(d.lanes))
	}
	b := &d.barriers
	b.mu.Lock()
	defer b.mu.Unlock()
	var barrier progress
	if c := b.current; c != nil {
		barrier = progress{seq: c.seq, remaining: uint64(c.remaining), atTarget: d.beatBarrier.Load(), doubtLeft: d.beatDoubt.Load()}
	}
	var stuck *lane
	for i, l := range d.lanes {
		l.mu.Lock()
		p := progress{seq: d.generation.Load(), moved: l.moved + 1} // an outage is not the new connection's
		if l.signaled.empty() {
			p = progress{}
		}
		barrier.moved += l.moved
		l.mu.Unlock()
		if s.lanes[i].stays(p, now) > patience {
			stuck = l
		}
	}
	if barrier.seq == 0 {
		barrier = progress{}
	}
	stays := s.barrier.stays(barrier, now)
	switch {
	case stuck != nil:
		return stuck, fmt.Errorf("%w: lane %d has carried nothing for %v: %w", rdma.ErrLost, stuck.index, patience, rdma.ErrTimeout)
	case stays <= patience:
		return nil, nil
	case barrier.atTarget == barrier.seq:
		return d.lanes[0], fmt.Errorf("%w: the target is at barrier %d for %v without progress: %w", rdma.ErrLost, barrier.seq, stays.Round(time.Millisecond), rdma.ErrTimeout)
	}
	return d.lanes[0], fmt.Errorf("%w: barrier %d was sent %v ago, and the target knows nothing of it: %w", rdma.ErrLost, barrier.seq, stays.Round(time.Millisecond), rdma.ErrTimeout)
}
