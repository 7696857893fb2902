package remote

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// After a kill the next run has all acknowledged writes, in their order, whether flushed or not. The
// next run may have another shape, and be killed in turn.
func TestAdoptedWindow(t *testing.T) {
	h := newHost(t)
	want := make([]byte, regionSize)
	shapes := []struct {
		lanes  int
		window uint64
	}{{1, 16 << 20}, {3, 8 << 20}, {1, 4 << 20}, {5, 32 << 20}}
	var lineage [16]byte
	for round := range uint32(8) {
		shape := shapes[round%4]
		h.cfg.Lanes, h.cfg.Window = shape.lanes, shape.window
		h.cfg.AcceptLoss = round%2 == 1 // which changes nothing: there is no loss
		d, c := h.run()
		if round == 0 {
			lineage = d.lineage
		}
		require.Equal(t, lineage, [16]byte(d.Snapshot().Lineage), "round %d", round)
		for off := 0; off < regionSize; off += 1 << 20 {
			r := c.Read(uint64(off), 1<<20, 0)
			require.NoError(t, c.Do(r))
			require.True(t, string(want[off:off+1<<20]) == string(r.Got), "round %d, from %d", round, off)
		}
		h.provider.Pause() // nothing of this round gets to the target
		for i, off := range []int{0, 100, 1<<20 - 50, 50, 3 << 20, 0} {
			data := backendtest.Pattern(block+i*777, round*10+uint32(i))
			copy(want[off:], data)
			require.NoError(t, c.Do(c.Write(uint64(off), data, 0)))
		}
		clear(want[2<<20-1000:][:5000])
		require.NoError(t, c.Do(c.Zero(2<<20-1000, 5000)))
		h.kill(d)
		h.provider.Resume()
	}
	d, c := h.run()
	require.NoError(t, c.Do(c.Flush()))
	require.True(t, string(want) == string(h.region.Data()))
	require.NoError(t, d.Close())
	info, err := os.Stat(h.file())
	require.NoError(t, err)
	require.EqualValues(t, headerPage, info.Size(), "nothing is held that is not needed")
}

// An adopted window is durable before the device serves. Its session is closed by then, and no
// barrier of the next session would cover it.
func TestAdoptedIsDurable(t *testing.T) {
	h := newHost(t)
	h.stop()
	var lines log
	h.start(h.path, regiontest.Medium{PMem: region.DomainMemory, Data: lines.written})
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(5*block, backendtest.Pattern(block, 1), 0)))
	h.kill(d)
	lines.take()
	d, _ = h.run()
	require.Contains(t, lines.take(), persist.Range{Off: 5 * block, Len: block})
	require.NoError(t, d.Close())
}

// An adoption that cannot be done leaves the window as it is.
func TestAdoptionWaits(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	h.provider.Pause()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 3), 0)))
	h.kill(d)
	h.provider.Resume()
	h.stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Dial(ctx, h.cfg)
	require.Error(t, err)
	var loss *LossError
	require.False(t, errors.As(err, &loss))
	h.start(h.path, regiontest.ADR)
	d, c = h.run()
	r := c.Read(0, block, 0)
	require.NoError(t, c.Do(r))
	require.Equal(t, backendtest.Pattern(block, 3), r.Got)
	require.NoError(t, d.Close())
	require.ErrorIs(t, c.Do(c.Flush()), backend.ErrClosed)
}

// hungAdoption starts a run that adopts the window of a killed one, and returns once the target's disk hangs in
// the barrier of the replay. The run logs to log, if that is not nil. read ends the hang, and expects that the
// next run adopts the window.
func hungAdoption(ctx context.Context, t *testing.T, openTimeout time.Duration, log *slog.Logger) (gaveUp <-chan error, read func()) {
	p := fake(t, rdmafake.Config{})
	cfg := p.config(t)
	cfg.WindowDir, cfg.LossTimeout = inMemory(t), 0
	h := &host{&farm{t: t, region: p.region}, cfg}
	killedDirty(h)
	release := p.sync.block()
	run := h.cfg
	run.OpenTimeout, run.Log = openTimeout, cmp.Or(log, run.Log)
	ended := make(chan error, 1)
	go func() { _, err := Dial(ctx, run); ended <- err }()
	for range 3 { // the syncs of the superblock, for RESUME
		<-p.sync.began
		next := p.sync.block()
		release()
		release = next
	}
	<-p.sync.began
	return ended, func() {
		release()
		h.cfg.OpenTimeout = 0
		d, c := h.run()
		r := c.Read(0, block, 0)
		require.NoError(t, c.Do(r))
		require.True(t, string(backendtest.Pattern(block, 1)) == string(r.Got))
		require.NoError(t, d.Close())
	}
}

// A start can be given up while the target cannot end the barrier of the replay. The next start
// adopts the window again.
func TestAdoptionGivenUp(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	gaveUp, read := hungAdoption(ctx, t, 0, nil)
	stop()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	read()
}

// A start ends when its replay makes no headway. The next start adopts the window again.
func TestReplayStandsStill(t *testing.T) {
	gaveUp, read := hungAdoption(context.Background(), t, 2*time.Second, nil)
	require.ErrorContains(t, <-gaveUp, "come no further for 2s")
	read()
}

// A replay that the target can never take is a loss. One that it did not take in time is none: the next start adopts the
// window.
func TestReplayThatCannotEnd(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		lost  bool
	}{
		"for good":          {&lastingError{ErrBadPlace}, true},
		"its disk was slow": {&lastingError{rdma.ErrTimeout}, false},
		"it was away":       {rdma.ErrTimeout, false},
		"it was given up":   {nil, false},
	} {
		r := &replayer{core: &core{}, cause: c.cause}
		err := r.left(backend.ErrFailed, nil)
		require.Error(t, err, name)
		require.Equal(t, c.lost, errors.As(err, new(*LossError)), name)
	}
}

// A said handler has hear look at each record of one message before it goes on.
type said struct {
	slog.Handler
	message string
	hear    func(slog.Record)
}

func (h said) Enabled(context.Context, slog.Level) bool { return true }

func (h said) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.hear(r)
	}
	return h.Handler.Handle(ctx, r)
}

func (h said) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// A start whose replay takes long says how far it is, again and again.
func TestReplaySaysHowFar(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	records := make(chan slog.Record, 1)
	first := func(r slog.Record) {
		select {
		case records <- r:
		default: // the test has one
		}
	}
	gaveUp, read := hungAdoption(ctx, t, 0, slog.New(said{slog.DiscardHandler, "adopting the window: it is sent to the target, and made durable", first}))
	has := make(map[string]uint64)
	r := <-records
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindUint64 {
			has[a.Key] = a.Value.Uint64()
		}
		return true
	})
	require.Equal(t, map[string]uint64{"unflushed_bytes": block, "doubt_left_bytes": 0}, has)
	stop()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	read()
}

// A replay goes on as long as it makes headway. The number of connections does not matter.
func TestReplayStands(t *testing.T) {
	var r headway
	for i, tt := range []struct {
		sent, barriers, doubt uint64
		now                   int64
		stands                time.Duration
	}{
		{0, 0, 0, 0, 0},
		{0, 0, 0, 5, 5},
		{10, 0, 0, 6, 0},
		{10, 0, 0, 9, 3},
		{2, 0, 0, 10, 4}, // another connection
		{9, 0, 0, 11, 5},
		{11, 0, 0, 12, 0},
		{11, 0, 7, 15, 0}, // doubt
		{11, 0, 6, 16, 0},
		{11, 1, 6, 17, 0}, // the barrier
		{11, 1, 6, 19, 2},
		{15, 1, 6, 20, 0},
		{3, 1, 6, 21, 1}, // another connection, which begins behind the barrier
		{5, 1, 6, 22, 0},
	} {
		require.Equal(t, tt.stands, r.stands(tt.sent, tt.barriers, tt.doubt, tt.now), "step %d", i)
	}
}
