package remote

import "time"

// An outage is from when a session was lost until all is answered that waited when it
// came back. One that is lost before is in the same outage, however long it lived: its
// patience goes on, and so do the pauses between attempts. A network may let RESUME and
// heartbeats pass and nothing that is larger.
type outage struct {
	since    time.Time
	attempts int
	barriers uint64    // that had succeeded before
	back     time.Time // when the session came back last
	said     string    // in the log
}

// lasts is how long a session must live to count as back, if nobody waited for it.
const lasts = 10 * time.Second

// lost begins an outage, or goes on with it. If anything waited when the session came
// back, it is over when that was answered.
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
	heads   []uint64 // by lane: what of its ring will be covered
	reads   []uint64 // by lane: its READ parts that will have ended
	fetches bool     // there are any to end
}

func (o *debt) any() bool { return o.barrier || o.fetches }

// owed is what waits now. b.mu is held.
func (d *Device) owed() (o debt) {
	b := &d.barriers
	o.count = b.count
	o.barrier = b.inherits && len(b.waiting)+len(b.listed) > 0
	for _, l := range d.lanes {
		l.mu.Lock()
		o.barrier = o.barrier || l.ring.Covered() != l.ring.Head()
		o.heads = append(o.heads, l.ring.Head())
		waits := uint64(len(l.reads) - len(l.spare))
		o.fetches = o.fetches || waits > 0
		o.reads = append(o.reads, l.fetched+waits)
		l.mu.Unlock()
	}
	return o
}

// answered reports whether nothing of o waits any more. A lane's READs end about in order.
func (d *Device) answered(o *debt) bool {
	if o.barrier && d.Barriers() == o.count {
		return false
	}
	for i, n := range o.reads {
		l := d.lanes[i]
		l.mu.Lock()
		short := l.fetched < n || l.ring.Covered() < o.heads[i]
		l.mu.Unlock()
		if short {
			return false
		}
	}
	return true
}
