package target

import (
	"cmp"
	"slices"

	"pmnbd/persist"
)

// flushStep is how many bytes a flush writes back before it checks whether to continue.
// That takes milliseconds, which a grant can wait for.
const flushStep = 64 << 20

// writeBack makes ranges, which lie in the region, durable with the CPU. It may change
// ranges. One message names 254 of them, and each can be the whole region. So writeBack
// writes each byte back only once, and stops if the lane is interrupted, because a grant
// waits for it.
func (c *conn) writeBack(ranges []persist.Range) error {
	r, step := c.session.export.r, c.s.cfg.step
	left := step
	for _, g := range ranges {
		if g.Len > left {
			return c.writeBackMuch(merge(ranges))
		}
		left -= g.Len
	}
	return r.Flush(ranges)
}

func (c *conn) writeBackMuch(ranges []persist.Range) error {
	for _, g := range ranges {
		for g.Len > 0 {
			if c.dead.Load() {
				return errEnded
			}
			n := min(g.Len, c.s.cfg.step)
			c.piece[0] = persist.Range{Off: g.Off, Len: n}
			if err := c.session.export.r.Flush(c.piece[:]); err != nil {
				return err
			}
			g.Off += n
			g.Len -= n
		}
	}
	return nil
}

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
