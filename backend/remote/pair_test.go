package remote

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/logtest"
	"pmnbd/internal/testhost"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A pair is a target with one region of class file, and what it takes to reach it.
type pair struct {
	server   *target.Server
	region   *region.Region
	provider rdma.Provider
	addr     string
	stateDir string
	sync     *syncHook
}

// A syncHook stands for the disk of the region.
type syncHook struct {
	watch regiontest.Watch
	mu    sync.Mutex
	err   error         // what a sync returns
	began chan struct{} // gets one for each sync that finds hold set
	hold  chan struct{} // a sync waits for its end
	data  bool          // but one of the superblock does not
	slow  time.Duration // a sync of data takes so long

	synced func() // is told of each sync of data, when nothing waits for it any more; or nil
}

func (h *syncHook) sync(fd int) error {
	ofData := h.watch.Data(fd)
	h.mu.Lock()
	hold, data, slow, err := h.hold, h.data, h.slow, h.err
	h.mu.Unlock()
	if hold != nil && (ofData || !data) {
		select {
		case h.began <- struct{}{}:
		default: // nobody counts so many
		}
		<-hold
	}
	if ofData {
		time.Sleep(slow) //nolint:forbidigo // by the clock of synctest
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	if ofData && h.synced != nil {
		h.synced()
	}
	h.mu.Unlock()
	return unix.Fdatasync(fd)
}

// takes makes each sync of data take so long that begins from now on.
func (h *syncHook) takes(slow time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slow = slow
}

// block makes syncs wait until release is called, once or more; those that begin after
// another block until that one's is.
func (h *syncHook) block() (release func()) { return h.blockSome(false) }

// blockData is block for the syncs of data: grants go on.
func (h *syncHook) blockData() (release func()) { return h.blockSome(true) }

func (h *syncHook) blockSome(data bool) (release func()) {
	hold := make(chan struct{})
	h.mu.Lock()
	h.hold, h.data = hold, data
	h.mu.Unlock()
	return sync.OnceFunc(func() {
		h.mu.Lock()
		if h.hold == hold {
			h.hold = nil
		}
		h.mu.Unlock()
		close(hold)
	})
}

func (h *syncHook) fail(err error) {
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
}

// targetBarriers is how many barriers the target has acknowledged.
func (p *pair) targetBarriers() uint64 { return p.server.Snapshot()[0].Barriers }

const (
	regionSize = 8 << 20
	patience   = 30 * time.Second // before a wait is a failure
	tick       = time.Millisecond
)

// targetName is the name of the targets, unless a test has several.
const targetName = "pm1"

// newPair serves a new region at path by p; an empty path is a file of the test's.
// Without a heartbeat of the test's own there is none: one would cover a wake-up
// that got lost.
func newPair(t testing.TB, p rdma.Provider, listen, path string, cfg target.Config) *pair {
	return newPairOn(t, p, listen, path, cfg, regiontest.Medium{})
}

// newPairOn is newPair with more to say of the region's memory.
func newPairOn(t testing.TB, p rdma.Provider, listen, path string, cfg target.Config, m regiontest.Medium) *pair {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat, cfg.Lease = time.Hour, 2*time.Hour
	}
	if path == "" {
		path = filepath.Join(testhost.Disk(t), "region")
	}
	return newPairOf(t, p, listen, path, region.OpenOptions{CreateSize: regionSize}, cfg, m)
}

// newPairOf is newPairOn with more to say of how the region is opened.
func newPairOf(t testing.TB, p rdma.Provider, listen, path string, o region.OpenOptions, cfg target.Config, m regiontest.Medium) *pair {
	cfg.Log, cfg.Name = logtest.New(t), targetName
	h := &syncHook{began: make(chan struct{}, 16)}
	m.Sync = h.sync
	o.Name, o.AllowVolatile, o.Wrap = "log", true, m.Wrap
	r, err := region.Open(path, o)
	require.NoError(t, err)
	s := target.New(cfg, []*region.Region{r})
	l, err := p.Listen(context.Background(), listen)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
		require.NoError(t, r.Close())
	})
	return &pair{server: s, region: r, provider: p, addr: l.Addr(), stateDir: t.TempDir(), sync: h}
}

func (p *pair) config(t testing.TB) Config {
	return Config{
		Provider: p.provider, Addr: p.addr, Region: "log", ID: [16]byte{1}, StateDir: p.stateDir,
		Window: 16 << 20, Connections: 8, AllowVolatile: true, Log: logtest.New(t),
		LossTimeout: 1, // a lost connection fails the device at once, where a test does not say otherwise
	}
}

func (p *pair) dial(t testing.TB) *Device {
	d, err := Dial(context.Background(), p.config(t))
	require.NoError(t, err)
	return d
}

func fake(t testing.TB, cfg rdmafake.Config) *pair {
	return newPair(t, rdmafake.New(cfg), "", "", target.Config{})
}

// dialLanes opens a session of n lanes.
func (p *pair) dialLanes(t testing.TB, n int) *Device {
	cfg := p.config(t)
	cfg.Lanes = n
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.Len(t, d.legs[0].lanes, n)
	return d
}

// dirty reports whether a lane has entries that no successful barrier covers.
func dirty(r *backend.Ring) bool { return r.Head() != r.Covered() }

func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		rdmafake.Config
		lanes int
	}{
		"queues of the usual size": {lanes: 1},
		"tiny queues":              {rdmafake.Config{MaxSendWR: 2, MaxReads: 1}, 1},
		"answers overtake sends":   {rdmafake.Config{AnswersFirst: true}, 1},
		"three lanes":              {lanes: 3},
		"tiny queues, many lanes":  {rdmafake.Config{MaxSendWR: 2, MaxReads: 1}, MaxLanes},
	} {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backend.Device { return fake(t, c.Config).dialLanes(t, c.lanes) })
		})
	}
}
