package property

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/remote"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/test/pmemsim"
)

// A fleet is the targets of a mirror: a station for each member, in the order of the slots at first, and
// those for regions that may become members. Each has a network of its own.
type fleet struct {
	troupe
	shape
	stations []*station
	cut      []bool
	journal  journal
}

// A shape is what a fleet is made of. The first worlds are those of members.
type shape struct {
	worlds     []world
	members    int
	async      int // how many members, the last ones, are asynchronous
	min        int // copies
	legTimeout time.Duration
	asyncDrop  bool
	arbitrated bool
}

// A journal keeps the last lines that the devices of a check log.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lines = append(j.lines, string(line)); len(j.lines) > 300 {
		j.lines = j.lines[150:]
	}
	return len(line), nil
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "")
}

// newFleet makes the regions of the first stations one mirror, as pmnbd mirror create does.
func newFleet(t testing.TB, turns turns, shape shape) *fleet {
	f := &fleet{troupe: troupe{t: t, turns: turns, mirror: &remote.Config{LegTimeout: shape.legTimeout, AsyncDrop: shape.asyncDrop}}, shape: shape, cut: make([]bool, len(shape.worlds))}
	f.mirror.Log = slog.New(slog.NewTextHandler(&f.journal, nil))
	if shape.arbitrated {
		f.mirror.Arbiter = &arbiter{}
	}
	f.dir = testhost.Memory(t)
	r := persist.Record{Set: theSet, MinCopies: uint8(shape.min)}
	r.F = persist.Member(shape.members-shape.async) - 1
	r.Async = (persist.Member(shape.members) - 1) &^ r.F
	r.Generation = persist.Generation{Life: 1, Count: 2, Nonce: [16]byte{1}}
	r.Lineage[0] = persist.Ancestor{Generation: persist.Generation{Life: 1, Count: 1, Nonce: [16]byte{1}}, F: r.F}
	for i, w := range shape.worlds {
		turns.slot = i
		s := newStation(t, w, turns, f.mirror.Log.With("at", address(i)))
		f.stations, f.networks = append(f.stations, s), append(f.networks, s.network)
		sb := s.region.Superblock()
		if i < shape.members {
			r.Members[i] = persist.Membership{UUID: s.region.UUID(), Contents: sb.Contents, Epoch: sb.Epoch}
			f.listed = append(f.listed, i)
		}
	}
	for slot, s := range f.stations[:shape.members] {
		r.Slot, r.Torn = uint8(slot), r.Async.Has(slot)
		require.NoError(t, s.region.SetRecord(r, r.Async&^persist.Member(slot)))
	}
	return f
}

// theSet is the UUID of a fleet's mirror.
var theSet = [16]byte{0xee}

// at returns the number of the station that r has in slot, or -1.
func (f *fleet) at(r *persist.Record, slot int) int {
	return slices.IndexFunc(f.stations, func(s *station) bool { return r.Present().Has(slot) && s.region.UUID() == r.Members[slot].UUID })
}

// slotOf returns the slot that r has station i in, or -1.
func (f *fleet) slotOf(r *persist.Record, i int) int {
	for slot := range r.Members {
		if f.at(r, slot) == i {
			return slot
		}
	}
	return -1
}

// in reports whether r has station i in F, and says what it has. It does not where i stands in for another one.
func (f *fleet) in(r *persist.Record, i int) bool {
	slot := f.slotOf(r, i)
	return slot >= 0 && r.F.Has(slot) && r.Members[slot].Contents != [16]byte{}
}

// reachable returns the stations whose targets run, on a network that works.
func (f *fleet) reachable() (all []int) {
	for i, s := range f.stations {
		if !f.cut[i] && !s.isDown() {
			all = append(all, i)
		}
	}
	return all
}

// isolate cuts the network of station i for good, or lets it work again.
func (f *fleet) isolate(i int, cut bool) {
	if f.cut[i] = cut; cut {
		f.networks[i].Down()
	} else if !f.stations[i].isDown() {
		f.networks[i].Up()
	}
}

// superblock returns what the region of station i persists: a target that starts now finds it.
func (f *fleet) superblock(i int) region.Superblock {
	s := f.stations[i]
	if !s.isDown() {
		return s.region.Superblock()
	}
	path := filepath.Join(f.dir, "superblock")
	s.mem.Durable(func(medium []byte) { require.NoError(f.t, os.WriteFile(path, medium[:2*region.CopySize], 0o600)) })
	info, err := region.Inspect(path)
	require.NoError(f.t, err)
	return info.Superblock
}

// durable calls check with what is durable in the data extent of station i.
func (f *fleet) durable(i int, check func(data []byte) error) (err error) {
	f.stations[i].mem.Durable(func(medium []byte) { err = check(medium[region.DataOffset:][:size]) })
	return err
}

// revive ends all outages.
func (f *fleet) revive() {
	for i, s := range f.stations {
		s.revive()
		f.isolate(i, false)
	}
}

// close ends the targets. All living processes have closed.
func (f *fleet) close() {
	f.end()
	for _, s := range f.stations {
		s.close()
	}
	require.NoError(f.t, os.RemoveAll(f.dir))
}

// target is the target of station i as the process sees it.
func (p *process) target(i int) remote.Target {
	return remote.Target{Provider: device{p.in.networks[i], p}, Addr: address(i), Region: "r"}
}

// evict writes some cache lines of a station back.
func (f *fleet) evict(i int, c crash) { f.stations[i].mem.Evict(pmemsim.Seeded(c.seed, c.part)) }

// descends reports whether a record comes from generation g.
func descends(r *persist.Record, g persist.Generation) bool {
	is := func(a persist.Generation) bool { return a.Life == g.Life && a.Nonce == g.Nonce && a.Count >= g.Count }
	for i := range r.Lineage {
		if is(r.Lineage[i].Generation) {
			return true
		}
	}
	return is(r.Generation)
}

var errNotFlushed = errors.New("it differs from what was flushed")
