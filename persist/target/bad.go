package target

import (
	"fmt"
	"slices"
	"sync"

	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// bad tells the initiator which places of the region the medium has lost.
func (c *conn) bad(m wire.Bad) error {
	if c.lane != 0 {
		return fmt.Errorf("%w: BAD on lane %d", errStranger, c.lane)
	}
	if c.asked.bads++; c.asked.bads > 1 {
		return fmt.Errorf("%w: two unanswered BADs", errStranger)
	}
	c.session.asked.Store(true)
	answer := wire.BadPlaces{Seq: m.Seq, Clears: c.session.export.r.BadClears()}
	for _, g := range c.session.export.r.Bad() {
		if g.End() <= m.From {
			continue
		}
		if answer.More = len(answer.Places) == wire.MaxBadPlaces; answer.More {
			break
		}
		answer.Places = append(answer.Places, g)
	}
	return c.out.send(c, answer.Append(nil))
}

// spoils reports whether b names a place that the medium has lost, and then has done what that means: what was
// stored there is lost, too, whether or not the CPU can write it back, so nobody may call it durable. The lane
// ends. The initiator comes back, learns of the place, and sends what it has anew. One of a release that asks for no
// places would do that for ever, so it hears that its barrier has failed.
func (c *conn) spoils(b *wire.Barrier) (bool, error) {
	g, lost := c.session.export.r.Lost(b.Ranges)
	if !lost {
		return false, nil
	}
	err := fmt.Errorf("the medium has lost %d bytes at %d, which barrier %d names", g.Len, g.Off, b.Seq)
	if !c.learns() {
		return true, c.fail(b.Seq, wire.CodeFailed, err.Error(), &c.out)
	}
	return true, err
}

// learns reports whether the initiator, whose connection ends, will know of a bad place when it comes back. One of a
// release that asks for no places would not, and come back for ever.
func (c *conn) learns() bool { return !c.session.tells || c.session.asked.Load() }

// A PlaceSnapshot is a run of the region's data extent, in bytes.
type PlaceSnapshot struct {
	Offset uint64 `json:"offset"`
	Length uint64 `json:"length"`
}

// PlacesOf returns b as snapshots show it. It is never nil.
func PlacesOf(b persist.BadPlaces) []PlaceSnapshot {
	s := make([]PlaceSnapshot, len(b))
	for i, g := range b {
		s[i] = PlaceSnapshot{g.Off, g.Len}
	}
	return s
}

// A settling is what a part of a barrier names, on a lane, while bad blocks are being made good.
type settling struct {
	c      *conn
	seq    uint64
	number uint64 // what Region.Mending said
	ranges []persist.Range
}

// settlings are those that have no answer yet.
type settlings struct {
	mu    sync.Mutex
	waits []settling
}

// maxSettling is how many ranges a lane can have in settlings: the pieces of a window of 512 MiB. A
// barrier can have any number of parts.
const maxSettling = 1 << 18

// cover notes what b names of bad.
func (s *settlings) cover(c *conn, b *wire.Barrier, number uint64, bad persist.BadPlaces) error {
	var ranges []persist.Range
	for _, g := range b.Ranges {
		if _, ok := bad.Touched(g.Off, g.Len); ok {
			ranges = append(ranges, g)
		}
	}
	if len(ranges) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.settling += len(ranges); c.settling > maxSettling {
		return fmt.Errorf("%w: a barrier in too many parts", errStranger)
	}
	s.waits = append(s.waits, settling{c, b.Seq, number, ranges})
	return nil
}

// durable tells the region that what the barriers of c up to seq named is durable. After an error nobody may
// acknowledge them.
func (s *settlings) durable(c *conn, seq uint64) error {
	var its []settling // told without the mutex: the region may wait for a disk
	s.mu.Lock()
	s.waits = slices.DeleteFunc(s.waits, func(w settling) bool {
		if w.c != c || w.seq > seq {
			return false
		}
		c.settling -= len(w.ranges)
		its = append(its, w)
		return true
	})
	s.mu.Unlock()
	for _, w := range its {
		if err := c.session.export.r.Settle(w.ranges, w.number); err != nil {
			return err
		}
	}
	return nil
}

// forget drops those of c, whose session has ended.
func (s *settlings) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.settling = 0
	s.waits = slices.DeleteFunc(s.waits, func(w settling) bool { return w.c == c })
}
