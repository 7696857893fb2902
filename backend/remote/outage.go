package remote

import "time"

// An outage starts when the session is lost. It ends when everything that waited when the session
// came back has its answer. A loss before that continues the same outage, however long the session
// lived: its patience and its pauses between attempts go on. For a network may pass RESUME and
// heartbeats, and nothing larger.
type outage struct {
	since    time.Time
	attempts int
	barriers uint64    // that had succeeded before
	back     time.Time // when the session came back last
	said     string    // in the log
}

// lasts is how long a session must live to end an outage in which nobody waited for it.
const lasts = 10 * time.Second

// lost begins an outage, or continues it. If anything waited when the session came back, the
// outage is over once that has its answer.
func (o *outage) lost(now time.Time, barriers uint64, waited, answered bool) {
	over := answered
	if !waited {
		over = barriers != o.barriers || now.Sub(o.back) > lasts
	}
	if o.since.IsZero() || over {
		*o = outage{since: now, barriers: barriers}
	}
}

// A debt is what waited when a session came back.
type debt struct {
	barrier bool     // something is to be made durable
	count   uint64   // barriers that had succeeded
	heads   []uint64 // by stream: what of its ring will be covered
	reads   []uint64 // by stream: its READ parts that will have ended
	fetches bool     // there are any to end
}

func (o *debt) any() bool { return o.barrier || o.fetches }

// owedLocked is what waits now. The caller holds commit.mu.
func (x *core) owedLocked() (o debt) {
	c := &x.commit
	o.count = c.count
	o.barrier = c.doubts != 0 && len(c.waiting)+len(c.listed) > 0
	for _, s := range x.streams {
		s.mu.Lock()
		o.barrier = o.barrier || s.ring.Covered() != s.ring.Head()
		o.heads = append(o.heads, s.ring.Head())
		waits := s.waitingReadsLocked()
		o.fetches = o.fetches || waits > 0
		o.reads = append(o.reads, s.fetched+waits)
		s.mu.Unlock()
	}
	return o
}

// answered reports whether nothing of o waits any more. A stream's READs end about in order.
func (x *core) answered(o *debt) bool {
	if o.barrier && x.commit.succeeded() == o.count {
		return false
	}
	for i, n := range o.reads {
		s := x.streams[i]
		s.mu.Lock()
		short := s.fetched < n || s.ring.Covered() < o.heads[i]
		s.mu.Unlock()
		if short {
			return false
		}
	}
	return true
}
