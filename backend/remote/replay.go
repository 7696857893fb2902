package remote

// A replay goes in slices. Each has a barrier of its own, and the covered marks move with it.
// So a session that is lost again and again gets on, if each brings one slice to the target,
// and so does an adopted window: what is covered is covered for the next process, too.
//
//	ring     covered ─────────► queued ─────────► head
//	               in the queue,        waits for its slice
//	               and a barrier behind
//
// Order is what it always was. Entries are queued in the ring's order, new ones behind all
// that wait. A READ is queued behind the entries that it came after, and a FLUSH answered by the
// first barrier that covers all that it came after: who writes on does not keep either back.

// firstSlice is how many bytes of the window a lane replays first. Each slice doubles the next
// one: a network that breaks after so few bytes carries nothing at all, and 64 MiB take no
// more than eleven barriers on one that holds.
const firstSlice = 64 << 10

// advance queues the next slice: the barrier that follows covers it. l.mu is held.
func (l *lane) advance() {
	from, head := l.queued, l.ring.Head()
	bytes := uint64(0)
	for l.queued < head && bytes < l.slice {
		bytes += uint64(l.ring.At(l.queued).Len)
		l.queued++
	}
	l.queue.push(item{kind: itemWrites, from: from, to: l.queued})
	l.counted += bytes
	l.slice *= 2
	l.behind = l.queued < head
	l.queueReads()
}

// queueReads queues the READs that wait, and have all before them in the queue. l.mu is held.
func (l *lane) queueReads() {
	for i := range l.reads {
		if r := &l.reads[i]; r.op != nil && !r.queued && r.at <= l.queued {
			r.queued = true
			l.queue.push(item{kind: itemRead, from: uint64(i)})
		}
	}
}

// extent is how far a barrier covers the lane that is queued now, and what wrote was there.
// l.mu is held.
func (l *lane) extent() (to, wrote uint64) {
	if l.behind {
		return l.queued, l.counted
	}
	return l.ring.Head(), l.wrote
}

// list decides which ops barrier c answers, during a replay or at its end: c.ops are those that
// wait, beside the listed ones. The listed ones keep their positions over slices and sessions;
// ops that come meanwhile are listed when those are answered. b.mu is held.
func (b *barriers) list(c *barrier, lanes []*lane) {
	if !b.behind {
		c.ops = append(c.ops, b.listed...)
		b.clearListed()
		return
	}
	came := c.ops
	c.ops = nil
	if len(b.listed) > 0 && b.reaches(c) {
		c.ops = append(c.ops, b.listed...)
		b.clearListed()
	}
	if len(b.listed) > 0 {
		b.waiting = append(b.waiting, came...)
		return
	}
	b.listed, b.upTo = append(b.listed, came...), b.upTo[:0]
	for _, l := range lanes {
		b.upTo = append(b.upTo, l.ring.Head())
	}
}

// reaches reports whether barrier c covers all that the listed ops came after.
func (b *barriers) reaches(c *barrier) bool {
	for i, to := range c.to {
		if to < b.upTo[i] {
			return false
		}
	}
	return true
}

func (b *barriers) clearListed() {
	clear(b.listed)
	b.listed = b.listed[:0]
}
