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

// cover notes what b names. Its lane has few parts without an answer.
func (s *settlings) cover(c *conn, b *wire.Barrier, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, settling{c, b.Seq, number, slices.Clone(b.Ranges)})
}

// durable tells the region that what the barriers of c up to seq named is durable.
func (s *settlings) durable(c *conn, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = slices.DeleteFunc(s.waits, func(w settling) bool {
		its := w.c == c && w.seq <= seq
		if its {
			c.session.export.r.Settle(w.ranges, w.number)
		}
		return its
	})
}

// forget drops those of c, which has ended.
func (s *settlings) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = slices.DeleteFunc(s.waits, func(w settling) bool { return w.c == c })
}
