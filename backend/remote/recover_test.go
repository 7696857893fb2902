package remote

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// dialPatient opens a session of n lanes that comes back when it is lost.
func (p *pair) dialPatient(t testing.TB, n int) *Device {
	cfg := p.config(t)
	cfg.Lanes, cfg.LossTimeout = n, 0
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return d
}

// What was in flight, in the queues or only in the window when the connections broke
// is there afterwards, in its order, and is answered without an error.
func TestSessionGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		pair  func(testing.TB) *pair
		lanes int
	}{
		"gpspm":             {func(t testing.TB) *pair { return fake(t, rdmafake.Config{}) }, 1},
		"gpspm, many lanes": {func(t testing.TB) *pair { return fake(t, rdmafake.Config{MaxSendWR: 2, MaxReads: 1}) }, 5},
		"apm":               {func(t testing.TB) *pair { return eADR(t, rdmafake.Config{}) }, 2},
		"flush":             {func(t testing.TB) *pair { return flushing(t, rdmafake.Config{MaxSendWR: 2}, nil) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.pair(t)
			network := p.provider.(*rdmafake.Provider)
			d := p.dialPatient(t, c.lanes)
			client := backendtest.NewClient(t, d)
			want := make([]byte, regionSize)
			write := func(off, n int, seed uint32, fua bool) *backendtest.Request {
				data := backendtest.Pattern(n, seed)
				copy(want[off:], data)
				r := client.Write(uint64(off), data, 0)
				r.FUA = fua
				return r
			}
			for round := range uint32(8) {
				epoch := d.Snapshot().Epoch
				recoveries := d.Snapshot().Recoveries
				client.Submit(write(0, block, round*10+1, false)) // flushed by nobody yet
				network.Pause()
				flush, read := client.Flush(), client.Read(0, 3*block, 0)
				zero := client.Zero(1<<20-512, 1024)
				clear(want[1<<20-512:][:1024])
				client.Submit(write(0, block, round*10+2, false), write(100, 2*block, round*10+3, false), flush, read, zero, write(2<<20, 300<<10, round*10+4, true))
				network.Cut()
				client.Submit(write(50, block, round*10+5, false)) // nobody is there
				network.Resume()
				require.NoError(t, client.Wait(flush, read, zero))
				require.NoError(t, client.Wait())
				require.Greater(t, d.Snapshot().Epoch, epoch)
				require.Equal(t, StateOpen, d.Snapshot().State)
				require.Greater(t, d.Snapshot().Recoveries, recoveries)
				all := client.Read(0, regionSize, 0)
				require.NoError(t, client.Do(all))
				require.True(t, string(want) == string(all.Got), "round %d", round)
			}
			require.NoError(t, client.Do(client.Flush()))
			require.Zero(t, d.Unflushed())
			require.True(t, string(want) == string(p.region.Data()))
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
			require.True(t, p.region.Superblock().Clean)
			require.False(t, p.region.Superblock().Doubt, "nobody else can have read")
		})
	}
}

// One lane lost is handled like all lost.
func TestAnyLaneLost(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialPatient(t, 3)
	c := backendtest.NewClient(t, d)
	for i := range uint64(6) {
		require.NoError(t, c.Do(c.Write(i<<20, backendtest.Pattern(block, uint32(i)), 0)))
		d.legs[0].lanes[i%3].abort(rdma.ErrLost)
		require.NoError(t, c.Do(c.Flush()))
		require.Equal(t, backendtest.Pattern(block, uint32(i)), p.region.Data()[i<<20:][:block])
		d.core.commit.mu.Lock()
		require.Zero(t, d.legs[0].granted.Flags, "nobody else had it: there is nothing to doubt")
		d.core.commit.mu.Unlock()
	}
	require.NoError(t, d.Close())
}

// A target that is silent is lost, and resumed when it answers again.
func TestSilenceIsResumed(t *testing.T) {
	p := newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 10 * time.Millisecond, Lease: 50 * time.Millisecond})
	d := p.dialPatient(t, 1)
	c := backendtest.NewClient(t, d)
	for i := range uint32(3) {
		epoch := d.Snapshot().Epoch
		p.provider.(*rdmafake.Provider).Pause()
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, i), 0), flush)
		require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting || d.Snapshot().Epoch > epoch }, patience, tick)
		p.provider.(*rdmafake.Provider).Resume()
		require.NoError(t, c.Wait(flush))
		require.Greater(t, d.Snapshot().Epoch, epoch)
	}
	require.NoError(t, d.Close())
}

// A farm is a target that can be stopped and started again at one address.
type farm struct {
	t        *testing.T
	provider *rdmafake.Provider
	path     string
	region   *region.Region
	name     string
	keys     target.Keys
	marks    bool // they advance, at the next heartbeat
	stop     func()
}

func newFarm(t *testing.T) *farm {
	f := &farm{t: t, name: targetName, provider: rdmafake.New(rdmafake.Config{}), path: inMemory(t)}
	f.start(f.path, regiontest.ADR)
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *farm) start(path string, m regiontest.Medium) {
	r, err := region.Open(path, region.OpenOptions{Name: "log", CreateSize: regionSize, AllowVolatile: true, Wrap: m.Wrap})
	require.NoError(f.t, err)
	f.serve(r)
}

func (f *farm) serve(regions ...*region.Region) {
	cfg := target.Config{Heartbeat: time.Hour, Lease: 2 * time.Hour, Keys: f.keys, Name: f.name, Log: (&pair{}).config(f.t).Log}
	if f.marks {
		cfg.Heartbeat, cfg.MarkInterval = 10*time.Millisecond, 1
	}
	s := target.New(cfg, regions)
	l, err := f.provider.Listen(context.Background(), "target")
	require.NoError(f.t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if len(regions) > 0 {
		f.region = regions[0]
	}
	f.stop = func() {
		require.NoError(f.t, s.Close())
		require.NoError(f.t, <-served)
		for _, r := range regions {
			require.NoError(f.t, r.Close())
		}
		f.stop = func() {}
	}
}

func (f *farm) dial(timeout time.Duration) *Device {
	cfg := (&pair{provider: f.provider, addr: "target", stateDir: f.t.TempDir()}).config(f.t)
	cfg.LossTimeout = timeout
	d, err := Dial(context.Background(), cfg)
	require.NoError(f.t, err)
	return d
}

// The target's process may go and come again: what it had acknowledged is there.
func TestTargetRestarts(t *testing.T) {
	f := newFarm(t)
	d := f.dial(0)
	c := backendtest.NewClient(t, d)
	for i := range uint32(5) {
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, i), 0), c.Flush()))
		require.NoError(t, c.Do(c.Write(block, backendtest.Pattern(block, i+100), 0)))
		f.stop()
		flush, read := c.Flush(), c.Read(0, 2*block, 0)
		c.Submit(flush, read)
		require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
		require.NotEmpty(t, d.Snapshot().Cause)
		require.NotZero(t, d.Unflushed())
		f.start(f.path, regiontest.ADR)
		require.NoError(t, c.Wait(flush, read))
		require.Equal(t, append(backendtest.Pattern(block, i), backendtest.Pattern(block, i+100)...), read.Got)
		require.Equal(t, read.Got, f.region.Data()[:2*block])
	}
	require.NoError(t, d.Close())
}

// What is held gets an error when the target stays away, and so does all that follows.
func TestLossTimeout(t *testing.T) {
	f := newFarm(t)
	d := f.dial(50 * time.Millisecond)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	f.stop()
	flush, read := c.Flush(), c.Read(0, block, 0)
	c.Submit(flush, read)
	require.ErrorContains(t, c.Wait(flush), "away for 50ms")
	require.ErrorIs(t, c.Wait(read), backend.ErrFailed)
	requireFailed(t, c)
	require.EqualValues(t, block, d.Unflushed())
	backendtest.AllBack(t, d)
	require.ErrorContains(t, d.Close(), "4096 bytes were not flushed")
}

// An access error is resumed once: again right after a fresh session it is our bug or
// theirs.
func TestAccusedTwice(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialPatient(t, 1)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	epoch := d.Snapshot().Epoch
	d.legs[0].lanes[0].abort(rdma.ErrRemoteAccess)
	require.Eventually(t, func() bool { return d.Snapshot().Epoch == epoch+1 }, patience, tick)
	d.legs[0].lanes[0].abort(rdma.ErrRemoteAccess)
	require.Eventually(t, func() bool { return d.Snapshot().State == StateFailed }, patience, tick)
	requireFailed(t, c)
	require.Error(t, d.Close())
}

// If the session lasted in between, the second error is a first one again, though a device that
// is only read had no barrier.
func TestAccusedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{})
		d, err := Dial(t.Context(), p.config(t))
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		epoch := d.Snapshot().Epoch
		for n := range uint64(2) {
			d.legs[0].lanes[0].abort(rdma.ErrRemoteAccess)
			time.Sleep(2 * lasts)
			s := d.Snapshot()
			require.Equal(t, StateOpen, s.State)
			require.Equal(t, epoch+1+n, s.Epoch)
			require.NoError(t, c.Do(c.Read(0, block, 0)))
		}
		require.NoError(t, d.Close())
	})
}

// A late message of a lane about a barrier that was cut off counts nothing.
func TestCutBarrierDoesNotCount(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialPatient(t, 1)
	c := backendtest.NewClient(t, d)
	release := p.sync.block()
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	<-p.sync.began
	d.core.commit.done(0, 0, 99)
	d.core.commit.done(0, 0, 0)
	require.False(t, flush.Completed())
	require.NotZero(t, d.Unflushed())
	release()
	require.NoError(t, c.Wait(flush))
	require.NoError(t, d.Close())
}

func TestBackoff(t *testing.T) {
	for n, want := range []time.Duration{10, 20, 40, 80, 160, 250, 250, 250} {
		require.Equal(t, want*time.Millisecond, backoff(n, 0))
		require.Equal(t, want*time.Millisecond/2, backoff(n, 1))
	}
	require.Equal(t, maxBackoff, backoff(1<<40, 0))
	for n, want := range []time.Duration{5, 10, 20, 30, 30} {
		require.Equal(t, want*time.Second, attemptLimit(n))
	}
	require.Equal(t, maxAttempt, attemptLimit(1<<40))
}

// A session that is resumed in doubt has its FLUSHes wait until the doubt is settled,
// also those with nothing to flush.
func TestResumedInDoubt(t *testing.T) {
	f := newFarm(t)
	d := f.dial(0)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	epoch := d.Snapshot().Epoch
	f.stop()
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	r, err := region.Open(f.path, region.OpenOptions{
		Wrap: regiontest.Medium{PMem: region.DomainMemory, Data: func(_, _ uint64) { <-hold }}.Wrap,
	})
	require.NoError(t, err)
	require.NoError(t, r.Update(func(sb *region.Superblock) error { sb.Doubt = true; return nil }))
	f.serve(r)
	require.Eventually(t, func() bool { s := d.Snapshot(); return s.Epoch > epoch && s.State == StateOpen }, patience, tick)
	require.True(t, d.Snapshot().Doubt)
	flush := c.Flush()
	c.Submit(flush)
	require.False(t, flush.Completed())
	release()
	require.NoError(t, c.Wait(flush))
	require.False(t, d.Snapshot().Doubt)
	require.NoError(t, d.Close())
}
