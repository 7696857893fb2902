package remote

import (
	"slices"
	"time"

	"pmnbd/persist"
)

// A replay goes in slices. Each slice has a barrier of its own, and the covered marks move with it.
// So a session that is lost again and again still advances, if each return brings one slice to the
// target. The same holds for an adopted window: the next process goes on behind what is covered.
//
//	ring     covered ─────────► queued ─────────► head
//	               in the queue,        waits for its slice
//	               and a barrier behind
//
// If the barriers of a mirror wait for another member, pull sends the rest without slices. READs go on then.
//
// The order stays the ring's: new entries come behind all that wait. A READ goes behind the entries
// that it came after, and the first barrier that covers all that a FLUSH came after answers it. A
// client that goes on writing keeps neither back.

// firstSlice is how many bytes of the window a lane replays first. Each slice is twice as large as the
// one before. A network that breaks after so few bytes carries nothing at all, and one that holds
// needs no more than eleven barriers for 64 MiB.
const firstSlice = 64 << 10

// advanceLocked queues the next slice. The barrier behind it covers it.
func (l *lane) advanceLocked() {
	from, head := l.queued, l.ring.Head()
	bytes := uint64(0)
	for l.queued < head && (bytes < l.slice || l.dividesLocked(from, l.queued)) {
		bytes += uint64(l.ring.At(l.queued).Len)
		l.queued++
	}
	l.queue.push(item{kind: itemWrites, from: from, to: l.queued})
	l.counted += bytes
	l.slice *= 2
	l.behind = l.queued < head
	l.chooseReaderLocked()
}

// pullAfter is how long READs wait for barriers that wait for another member of a mirror. Nearly every barrier
// takes less, and so does the return of a member after a short loss. A session that breaks sooner replays in
// slices only: else it might never bring one to the end.
const pullAfter = 5 * time.Second

// A standstill is what pull saw last, and since when: the newest barrier, and whether it is in flight.
type standstill struct {
	seq   uint64
	flies bool
	since time.Time
}

// pull sends the rest of a replay without slices if READs wait for it and its barriers wait for another member,
// which is away and cannot be let go, or whose disk hangs (mirror §3.3). A member that owes an answer to the
// barrier in flight keeps its slices. The next barrier covers what was sent. The heartbeats call pull.
func (x *core) pull() {
	if x.copies == nil {
		return
	}
	c, pulled, now := &x.commit, false, time.Now()
	c.mu.Lock()
	b := c.current
	if x.still.seq != c.seq || x.still.flies != (b != nil) {
		x.still = standstill{c.seq, b != nil, now}
	}
	if now.Sub(x.still.since) >= pullAfter {
		for _, s := range x.streams {
			s.mu.Lock()
			pulled = s.pullLocked(b) || pulled
			s.mu.Unlock()
		}
	}
	c.mu.Unlock()
	if pulled {
		x.post()
	}
}

// pullLocked pulls the lanes of s if a READ waits there. b is the barrier in flight, or nil.
func (s *stream) pullLocked(b *barrier) (pulled bool) {
	if !slices.ContainsFunc(s.reads, func(r readPart) bool { return r.op != nil && r.lane == nil }) {
		return false
	}
	for _, l := range s.lanes {
		if !l.readable || time.Since(l.leg.backAt) < pullAfter || b != nil && b.owed(l.leg.slot) > 0 {
			continue
		}
		for l.behind {
			l.advanceLocked()
			pulled = true
		}
	}
	return pulled
}

// dividesLocked reports whether a slice from the entry at from up to the one at to ends inside a block. If the block is
// bad, only what is written to all of it makes it good: the next session would find one half in the window.
func (l *lane) dividesLocked(from, to uint64) bool {
	if to == from {
		return false
	}
	last, next := l.ring.At(to-1), l.ring.At(to)
	return next.Off == last.Off+uint64(last.Len) && next.Off%persist.BadBlock != 0
}

// queueReadsLocked queues the READs that wait, if all that they came after is in the queue.
func (l *lane) queueReadsLocked() {
	for i := range l.reads {
		if r := &l.reads[i]; r.op != nil && r.lane == nil && (!l.behind || r.at <= l.queued) {
			r.lane = l
			l.queue.push(item{kind: itemRead, from: uint64(i)})
			l.urgent = true
		}
	}
}

// listLocked decides which ops barrier b answers, during a replay or at its end. b.ops are the ops
// that wait, beside the listed ones. Listed ops keep their positions over slices and sessions. Ops that
// arrive meanwhile are listed once those have their answers.
func (c *groupCommit) listLocked(b *barrier) {
	if !c.behind {
		b.ops = append(b.ops, c.listed...)
		c.clearListedLocked()
		return
	}
	came := b.ops
	b.ops = nil
	if len(c.listed) > 0 && c.reachesLocked(b) {
		b.ops = append(b.ops, c.listed...)
		c.clearListedLocked()
	}
	if len(c.listed) > 0 {
		c.waiting = append(c.waiting, came...)
		return
	}
	c.listed, c.upTo = append(c.listed, came...), c.upTo[:0]
	for i := range b.shares {
		c.upTo = append(c.upTo, c.env.head(i))
	}
}

// reachesLocked reports whether barrier b covers all that the listed ops came after.
func (c *groupCommit) reachesLocked(b *barrier) bool {
	for i := range b.shares {
		if b.shares[i].to < c.upTo[i] {
			return false
		}
	}
	return true
}

func (c *groupCommit) clearListedLocked() {
	clear(c.listed)
	c.listed = c.listed[:0]
}
