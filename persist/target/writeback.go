package target

import (
	"cmp"
	"errors"
	"slices"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// flushStep is how many bytes a flush writes back before it checks whether to continue.
// That takes milliseconds, which a grant can wait for.
const flushStep = 64 << 20

// lanePart is how many bytes of one part of a barrier the lane's goroutine writes back itself. That
// takes about a millisecond, and the syncer would take longer to wake up for much less. All other
// messages of the lane wait meanwhile, heartbeats too, but never for more parts than the lane has
// credits (design §5).
const lanePart = 4 << 20

// follows reports whether the syncer still has a part of a barrier of c. Then it must get the next
// part, too: the initiator takes answers only in the order of its messages.
func (c *conn) follows() bool {
	c.behind = c.behind && c.session.export.syncer.has(c)
	return c.behind
}

// beside reports whether the syncer has to write back ranges for c: they have more bytes than a
// lane may wait for, or follow a part that the syncer has.
func (c *conn) beside(ranges []persist.Range) bool {
	if c.follows() {
		return true
	}
	if c.session.export.r.FencesOnly() {
		return false // bytes do not matter
	}
	left := c.s.cfg.lanePart
	for _, g := range ranges {
		if g.Len > left {
			return true
		}
		left -= g.Len
	}
	return false
}

// hand hands a part of a barrier to the syncer. Its message names 254 ranges, and each can be the
// whole region, so they are merged: the syncer writes each byte back once.
func (c *conn) hand(b *wire.Barrier) error {
	c.behind = true
	return c.session.export.syncer.add(syncJob{c: c, seq: b.Seq, last: b.Last, losses: c.losses, ranges: merge(slices.Clone(b.Ranges))})
}

// note notes what jobs name, before one sync of the files serves them all. The cache lines of other parts are written
// back then. What nobody waits for any more is dropped.
func (y *syncer) note(jobs []syncJob) error {
	for i := range jobs {
		err := y.writeBack(&jobs[i])
		if errors.Is(err, errEnded) {
			jobs[i].c.dropped = true
		} else if err != nil {
			return err
		}
	}
	return nil
}

// writeBack makes what a job names durable with the CPU, in steps, but for what is in files: that is noted. It stops if
// the lane is interrupted or leaves its session, because a grant waits for it.
func (y *syncer) writeBack(j *syncJob) error {
	flush := (*region.Region).Flush
	if y.e.r.MayBlock() {
		flush = (*region.Region).Note
	}
	for _, g := range j.ranges {
		for g.Len > 0 {
			if j.c.ends() {
				return errEnded
			}
			n := min(g.Len, y.e.s.cfg.step)
			if err := flush(y.e.r, []persist.Range{{Off: g.Off, Len: n}}); err != nil {
				return err
			}
			g.Off += n
			g.Len -= n
		}
	}
	return nil
}

// ends reports whether nobody waits for answers to c any more.
func (c *conn) ends() bool { return c.dead.Load() || c.leaves.Load() }

// fewer returns ranges, merged if they have more bytes than a step. It may change ranges.
func (c *conn) fewer(ranges []persist.Range) []persist.Range {
	left := c.s.cfg.step
	for _, g := range ranges {
		if g.Len > left {
			return merge(ranges)
		}
		left -= g.Len
	}
	return ranges
}

// merge combines ranges that overlap or touch, in place. Their ends must not overflow.
func merge(ranges []persist.Range) []persist.Range {
	slices.SortFunc(ranges, func(a, b persist.Range) int { return cmp.Compare(a.Off, b.Off) })
	n := 0
	for _, g := range ranges {
		if n > 0 && g.Off <= ranges[n-1].Off+ranges[n-1].Len {
			last := &ranges[n-1]
			last.Len = max(last.Len, g.Off+g.Len-last.Off)
			continue
		}
		ranges[n] = g
		n++
	}
	return ranges[:n]
}
