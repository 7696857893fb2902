package remote

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma"
)

// A parting is the network between one initiator and a target. While it is cut nothing connects.
type parting struct {
	rdma.Provider
	cut *atomic.Bool
}

func (p parting) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	if p.cut.Load() {
		return nil, rdma.ErrLost
	}
	return p.Provider.OpenDomain(ctx, addr)
}

// A contender is a start of another host in the background, which can be cut off from each target.
type contender struct {
	cfg   Config
	cut   []*atomic.Bool
	mu    sync.Mutex
	waits []string
	begun chan struct{}
	stop  context.CancelFunc
	d     *Device
	err   error
}

func (a *arbitrated) contender(t *testing.T, id byte, windowDir string) *contender {
	c := &contender{cfg: a.cfg, begun: make(chan struct{})}
	c.cfg.ID, c.cfg.StateDir, c.cfg.WindowDir, c.cfg.Members = [16]byte{id}, t.TempDir(), windowDir, nil
	for _, m := range a.cfg.Members {
		cut := new(atomic.Bool)
		m.Provider = parting{m.Provider, cut}
		c.cfg.Members, c.cut = append(c.cfg.Members, m), append(c.cut, cut)
	}
	c.cfg.Waits = func(why string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waits = append(c.waits, why)
	}
	return c
}

func (c *contender) start(t *testing.T) {
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	go func() {
		defer close(c.begun)
		c.d, c.err = Dial(ctx, c.cfg)
	}()
	t.Cleanup(func() {
		c.stop()
		<-c.begun
	})
}

// said is for whom the start waits, by the status.
func (c *contender) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits[len(c.waits)-1]
}

// joined is how many terms have begun.
func (a *fakeArbiter) joined() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.terms)
}

// free reports whether nobody has the lease.
func (a *fakeArbiter) free() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.terms {
		if t.leftLocked() > 0 {
			return false
		}
	}
	return true
}

// withAndWithoutWindow runs test in a bubble, with a directory for windows and with none.
func withAndWithoutWindow(t *testing.T, test func(t *testing.T, dir string)) {
	for name, window := range map[string]bool{"with a window": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			dir := ""
			if window {
				dir = inMemory(t)
			}
			synctest.Test(t, func(t *testing.T) { test(t, dir) })
		})
	}
}

// A standby that gets the lease and reaches no member gives it back: another host that reaches members begins. Once the
// standby reaches some, it is one again (mirror §4.8).
func TestStandbyThatReachesNobody(t *testing.T) {
	withAndWithoutWindow(t, testStandbyThatReachesNobody)
}

func testStandbyThatReachesNobody(t *testing.T, dir string) {
	a := newArbitrated(t)
	old, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	other := a.contender(t, 7, dir)
	other.start(t)
	time.Sleep(time.Minute)
	require.Contains(t, other.said(), "another initiator has the mirror")
	other.cut[0].Store(true)
	other.cut[1].Store(true)
	require.NoError(t, old.Close())
	time.Sleep(2 * connectTimeout)
	require.Equal(t, 2, a.joined())
	require.False(t, a.free(), "it may reach them soon")
	require.Contains(t, other.said(), "none was reached")
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := Dial(soon, a.cfg)
	require.NoError(t, err)
	require.Contains(t, other.said(), "another host may have the lease")
	c = backendtest.NewClient(t, d)
	read := c.Read(0, block, 0)
	require.NoError(t, c.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	time.Sleep(10 * time.Minute)
	require.Equal(t, 3, a.joined())

	other.cut[0].Store(false)
	other.cut[1].Store(false)
	time.Sleep(time.Minute)
	require.Contains(t, other.said(), "another initiator has the mirror")
	require.NoError(t, d.Close())
	began := time.Now()
	<-other.begun
	require.NoError(t, other.err)
	require.Less(t, time.Since(began), 5*time.Second)
	n := backendtest.NewClient(t, other.d)
	read = n.Read(0, block, 0)
	require.NoError(t, n.Do(read))
	require.Equal(t, backendtest.Pattern(block, 2), read.Got)
	require.NoError(t, other.d.Close())
}

// A start that reaches only members that are behind leaves the lease to others most of the time. It begins soon after one
// of them is in sync. What the arbiter held before does not keep it from that (mirror §4.8).
func TestStandbyThatReachesTooLittle(t *testing.T) {
	withAndWithoutWindow(t, testStandbyThatReachesTooLittle)
}

func testStandbyThatReachesTooLittle(t *testing.T, dir string) {
	a := newArbitrated(t)
	old, c := a.dial(t)
	a.network(0).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, old.Close())
	a.network(0).Up()
	require.Equal(t, persist.Members(2), a.holds().F)

	other := a.contender(t, 7, dir)
	other.cfg.Jitter = func() float64 { return 0 }
	other.cut[1].Store(true)
	other.start(t)
	busy := 0
	for range 1200 {
		time.Sleep(time.Second)
		if !a.free() {
			busy++
		}
	}
	require.Contains(t, other.said(), "waits for B")
	require.Less(t, busy, 1200/2, "seconds in which nobody else could begin")
	require.Greater(t, a.joined(), 10, "the arbiter may know better by now")

	require.Eventually(t, a.free, time.Minute, time.Second)
	d, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	require.Eventually(t, func() bool { return a.holds().F == 3 && a.record(0).Ancestor == a.holds().Ancestor }, 20*time.Second, time.Second, "A is copied to, and comes in")
	require.NoError(t, d.Close())
	began := time.Now()
	<-other.begun
	require.NoError(t, other.err)
	require.Less(t, time.Since(began), 5*time.Second)
	n := backendtest.NewClient(t, other.d)
	read := n.Read(0, block, 0)
	require.NoError(t, n.Do(read))
	require.Equal(t, backendtest.Pattern(block, 2), read.Got)
	other.cut[1].Store(false)
	require.NoError(t, other.d.Close())
}
