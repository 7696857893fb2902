package property

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/remote"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/test/pmemsim"
)

// A fleet is the targets of a mirror: a station for each member, by slot, with a network of its own.
type fleet struct {
	troupe
	worlds  []world
	members []*station
	min     int // copies
	cut     []bool
	journal journal
}

// A journal keeps the last lines that the devices of a check log.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lines = append(j.lines, string(line)); len(j.lines) > 150 {
		j.lines = j.lines[75:]
	}
	return len(line), nil
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "")
}

// newFleet makes the regions of the stations one mirror, as pmnbd mirror create does.
func newFleet(t testing.TB, worlds []world, minCopies int, turns turns, legTimeout time.Duration) *fleet {
	f := &fleet{troupe: troupe{t: t, turns: turns, mirror: &remote.Config{LegTimeout: legTimeout}}, worlds: worlds, min: minCopies, cut: make([]bool, len(worlds))}
	f.mirror.Log = slog.New(slog.NewTextHandler(&f.journal, nil))
	var err error
	f.dir, err = os.MkdirTemp("/dev/shm", "pmnbd-test-")
	require.NoError(t, err)
	r := persist.Record{Set: [16]byte{0xee}, MinCopies: uint8(minCopies)}
	r.Generation = persist.Generation{Life: 1, Count: 2, Nonce: [16]byte{1}}
	r.Lineage[0] = persist.Ancestor{Generation: persist.Generation{Life: 1, Count: 1, Nonce: [16]byte{1}}, F: persist.Member(len(worlds)) - 1}
	for slot, w := range worlds {
		turns.slot = slot
		s := newStation(t, w, turns)
		f.members, f.networks = append(f.members, s), append(f.networks, s.network)
		sb := s.region.Superblock()
		r.F |= persist.Member(slot)
		r.Members[slot] = persist.Membership{UUID: s.region.UUID(), Contents: sb.Contents, Epoch: sb.Epoch}
	}
	for slot, s := range f.members {
		r.Slot = uint8(slot)
		require.NoError(t, s.region.SetRecord(r, 0))
	}
	return f
}

// reachable returns the members whose targets run, on a network that works.
func (f *fleet) reachable() (m persist.Members) {
	for slot, s := range f.members {
		if !f.cut[slot] && !s.isDown() {
			m |= persist.Member(slot)
		}
	}
	return m
}

// isolate cuts the network of a member for good, or lets it work again.
func (f *fleet) isolate(slot int, cut bool) {
	if f.cut[slot] = cut; cut {
		f.networks[slot].Down()
	} else if !f.members[slot].isDown() {
		f.networks[slot].Up()
	}
}

// superblock returns what the member in slot persists: a target that starts now finds it.
func (f *fleet) superblock(slot int) region.Superblock {
	s := f.members[slot]
	if !s.isDown() {
		return s.region.Superblock()
	}
	path := filepath.Join(f.dir, "superblock")
	s.mem.Durable(func(medium []byte) { require.NoError(f.t, os.WriteFile(path, medium[:2*region.CopySize], 0o600)) })
	info, err := region.Inspect(path)
	require.NoError(f.t, err)
	return info.Superblock
}

// survived returns an error if the member in slot lacks something that is durable.
func (f *fleet) survived(slot int, past *history) (err error) {
	f.members[slot].mem.Durable(func(medium []byte) { err = past.survived(medium[region.DataOffset:]) })
	return err
}

// revive ends all outages.
func (f *fleet) revive() {
	for slot, s := range f.members {
		s.revive()
		f.isolate(slot, false)
	}
}

// close ends the targets. All living processes have closed.
func (f *fleet) close() {
	f.end()
	for _, s := range f.members {
		s.close()
	}
	require.NoError(f.t, os.RemoveAll(f.dir))
}

// evict writes some cache lines of a member back.
func (f *fleet) evict(slot int, c crash) { f.members[slot].mem.Evict(pmemsim.Seeded(c.seed, c.part)) }

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
