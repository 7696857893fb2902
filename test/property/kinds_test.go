package property

import (
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"pmnbd/persist"
)

// A kind of fleets is what happens to them beside crashes.
type kind struct {
	name    string
	changes bool // members come and go, and M is set
	follows bool // a member follows, and is promoted
	crashes *atomic.Int64
}

var kinds = []kind{
	{"fixed members", false, false, new(atomic.Int64)},
	{"changing members", true, false, new(atomic.Int64)},
	{"a follower", false, true, new(atomic.Int64)},
	{"a follower, changing members", true, true, new(atomic.Int64)},
}

// counts counts the crashes since before.
func (k *kind) counts(before int64) { k.crashes.Add(crashed.Load() - before) }

// draw draws the shape of a fleet of the kind.
func (k *kind) draw(rt *rapid.T) (s shape) {
	of := rapid.SampledFrom([]struct{ legs, min int }{{2, 1}, {3, 2}, {3, 1}, {2, 2}}).Draw(rt, "members and least copies")
	s.members, s.min = of.legs, of.min
	if k.follows {
		s.members, s.min, s.async = rapid.IntRange(2, 3).Draw(rt, "members, with the follower"), 1, 1
		if s.members == 3 {
			s.min = rapid.IntRange(1, 2).Draw(rt, "least copies, without the follower")
		}
		s.asyncDrop = rapid.Bool().Draw(rt, "drop the follower")
	}
	stations := s.members
	if k.changes {
		stations = persist.MaxMembers
	}
	for range stations {
		s.worlds = append(s.worlds, worlds[rapid.IntRange(0, len(worlds)-1).Draw(rt, "world")])
	}
	s.legTimeout = rapid.SampledFrom([]time.Duration{0, 2 * time.Second, time.Minute}).Draw(rt, "leg timeout")
	s.arbitrated = rapid.Bool().Draw(rt, "arbiter")
	return s
}
