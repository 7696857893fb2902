package target

import (
	"fmt"

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
	answer := wire.BadPlaces{Seq: m.Seq}
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
