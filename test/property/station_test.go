package property

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
	"pmnbd/test/pmemsim"
)

// A world says what a station is built from.
type world struct {
	name   string
	domain region.Domain
	fake   rdmafake.Config
	direct bool // direct-write-to-pmem is declared
	lanes  int
	method string // the method that the target must choose
	parts  int    // of the region; 0: it is one file
}

// A station is a real target on simulated memory. It can crash at any time and comes back at
// the same address.
type station struct {
	troupe
	w       world
	network *rdmafake.Provider
	mem     *pmemsim.Memory
	boot    byte
	log     *slog.Logger // nil: none
	region  *region.Region
	stop    func()

	mu   sync.Mutex
	cond sync.Cond
	down bool
	slow bool // a flush of the whole extent does not end
}

func newStation(t testing.TB, w world, turns turns, log *slog.Logger) *station {
	dir := testhost.Memory(t)
	s := &station{troupe: troupe{t: t, turns: turns, dir: dir}, w: w, boot: 1, log: log}
	s.cond.L = &s.mu
	w.fake.Flushed = func(off uint64, n uint32) { s.mem.Flushed(region.DataOffset+off, n) }
	w.fake.Pushed = func(off uint64, n uint32) { s.mem.Pushed(region.DataOffset+off, n) }
	w.fake.Woken = turns.woken
	w.fake.Strays = pmemsim.Seeded(1, 128)
	s.network = rdmafake.New(w.fake)
	s.networks = []*rdmafake.Provider{s.network}
	made := regiontest.Medium{PMem: w.domain, Boot: [16]byte{1}}
	if w.parts > 0 {
		s.mem = s.makeParts(made)
	} else {
		s.mem = s.makeRegion(made)
	}
	s.start()
	return s
}

// makeRegion makes the region, in one file.
func (s *station) makeRegion(made regiontest.Medium) *pmemsim.Memory {
	path := s.paths()[0]
	r, err := region.Open(path, region.OpenOptions{Name: "r", CreateSize: size, Wrap: made.Wrap})
	require.NoError(s.t, err)
	require.NoError(s.t, r.Close())
	mem, err := pmemsim.Open(path, s.w.domain.EADR())
	require.NoError(s.t, err)
	return mem
}

// paths are those of the region's parts.
func (s *station) paths() []string {
	paths := []string{filepath.Join(s.dir, "region")}
	for i := 1; i < s.w.parts; i++ {
		paths = append(paths, filepath.Join(s.dir, "part"+strconv.Itoa(i)))
	}
	return paths
}

// makeParts makes the region, of several files. The memory has them where the region maps
// them, so that what the region writes back, and what the network flushes, is where it is in
// one file: the first part's header, all data, and from the next huge page on one for each
// further part's superblock.
func (s *station) makeParts(made regiontest.Medium) *pmemsim.Memory {
	const huge = region.DataOffset
	paths, each := s.paths(), uint64(size)/uint64(s.w.parts)
	_, err := region.Create(paths[0], region.CreateOptions{Name: "r", Size: each, Parts: paths[1:], Wrap: made.Wrap})
	require.NoError(s.t, err)
	heads := uint64(region.DataOffset+size+huge-1) / huge * huge
	spans := []pmemsim.Span{{Path: paths[0], Len: region.DataOffset + each}}
	for i, path := range paths[1:] {
		i := uint64(i + 1)
		spans = append(spans, pmemsim.Span{Path: path, Off: region.DataOffset, At: region.DataOffset + i*each, Len: each},
			pmemsim.Span{Path: path, At: heads + (i-1)*huge, Len: 2 * region.CopySize})
	}
	mem, err := pmemsim.OpenSpans(spans, heads+uint64(s.w.parts-2)*huge+2*region.CopySize, s.w.domain.EADR())
	require.NoError(s.t, err)
	return mem
}

// open opens the region, as a starting target does.
func (s *station) open() *region.Region {
	m := regiontest.Medium{PMem: s.w.domain, Data: s.data, Header: s.mem.Lines, Boot: [16]byte{s.boot}}
	paths := s.paths()
	r, err := region.Open(paths[0], region.OpenOptions{Name: "r", Parts: paths[1:], Wrap: m.Wrap})
	require.NoError(s.t, err)
	return r
}

// data writes back n bytes at off of the data extent. While s.slow is set it holds a write-back
// of the whole extent until the target ends.
func (s *station) data(off, n uint64) {
	s.mu.Lock()
	for n == size && s.slow && !s.down {
		s.cond.Wait()
	}
	s.mu.Unlock()
	s.mem.Lines(region.DataOffset+off, n)
}

// set changes s.down or s.slow.
func (s *station) set(flag *bool, to bool) {
	s.mu.Lock()
	*flag = to
	s.cond.Broadcast()
	s.mu.Unlock()
}

// lease is that of a mirror's targets: a life is taken over, and no heartbeat comes in between.
const lease = 2 * time.Hour

// start starts the target and the network.
func (s *station) start() {
	r := s.open()
	server := target.New(target.Config{Heartbeat: lease / 2, Lease: lease, DirectWrite: s.w.direct, Log: s.log}, []*region.Region{r})
	s.network.Up()
	l, err := s.network.Listen(context.Background(), address(s.turns.slot))
	require.NoError(s.t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	s.region = r
	s.stop = func() {
		require.NoError(s.t, server.Close())
		require.NoError(s.t, <-served)
		require.NoError(s.t, r.Close())
	}
}

// address is where the target of a member listens, on the member's network.
func address(slot int) string { return persist.Member(slot).String() }

// revive starts the target again if a test ended while it was down.
func (s *station) revive() {
	s.network.Resume()
	s.network.Thaw()
	s.set(&s.slow, false)
	if s.isDown() {
		s.restart(crash{})
	}
	s.sweep(nil)
}

// isDown reports whether the target has crashed and not started again.
func (s *station) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// close ends the station. All living processes have closed.
func (s *station) close() {
	s.end()
	s.stop()
	require.NoError(s.t, s.mem.Close())
	require.NoError(s.t, os.RemoveAll(s.dir))
}

// A crash ends the target: its process is killed, or the power fails and takes all but some
// cache lines.
type crash struct {
	power bool
	seed  uint64
	part  uint8 // of 256, how many of the cache lines chance had written back
}

// crash ends the target now. From then on nobody hears from it.
func (s *station) crash(c crash) {
	s.mu.Lock()
	if !s.down {
		crashed.Add(1)
	}
	s.mu.Unlock()
	s.set(&s.down, true)
	s.network.Down()
	if c.power {
		s.mem.PowerOff(pmemsim.Seeded(c.seed, c.part))
	} else {
		s.mem.Kill()
	}
}

// crashAt lets the target crash when it is about to write back for the nth time from now, and
// then closes the channel.
func (s *station) crashAt(n int, c crash) (crashed <-chan struct{}) {
	done := make(chan struct{})
	s.mem.Trap(n, func() {
		s.crash(c)
		close(done)
	})
	return done
}

// restart starts the target again after crash c. It returns the data extent that the target
// found, and whether its contents count as lost. Each number in starts is a start that crashes
// again when the target is about to write back for the nth time.
func (s *station) restart(c crash, starts ...int) (found []byte, lost bool) {
	before := s.region.Superblock().Contents
	s.stop()
	for {
		s.mem.Trap(0, nil)
		found = s.mem.Restart()[region.DataOffset:][:size]
		if c.power {
			s.boot++
		}
		if len(starts) == 0 {
			s.set(&s.down, false)
			s.start()
			return found, s.region.Superblock().Contents != before
		}
		s.crashAt(starts[0], c)
		starts = starts[1:]
		r := s.open()
		s.crash(c)
		require.NoError(s.t, r.Close())
	}
}
