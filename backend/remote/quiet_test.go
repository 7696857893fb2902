package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
)

// A start that ends while it waits for the fence of the life before leaves the wait to the next one: the life that
// this adopts and closes had served nobody, so its orderly end says nothing of the one before (mirror §4.7).
func TestTheNextStartAwaitsTheFenceToo(t *testing.T) {
	for name, takeover := range map[string]bool{"with a takeover again": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testTheNextStartAwaitsTheFenceToo(t, takeover) })
		})
	}
}

func testTheNextStartAwaitsTheFenceToo(t *testing.T, takeover bool) {
	windows := inMemory(t)
	s := beating(t, 3, 2)
	cfg := s.config(t)
	p := partition{make(chan struct{})}
	for _, i := range []int{1, 2} {
		cfg.Members[i].Provider = wrapped{cfg.Members[i].Provider, p.wrap}
	}
	old, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	close(p.cut)

	cfg = s.config(t)
	cfg.ID, cfg.StateDir, cfg.WindowDir, cfg.Takeover, cfg.Members = [16]byte{7}, t.TempDir(), windows, true, cfg.Members[1:]
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	_, err = Dial(ctx, cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cfg.Takeover = takeover
	ctx, stop = context.WithTimeout(context.Background(), time.Second)
	defer stop()
	_, err = Dial(ctx, cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	began := time.Now()
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), usualLease)
	abandon(old)
	require.NoError(t, d.Close())

	began = time.Now()
	d, err = Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.Less(t, time.Since(began), time.Second, "it had served")
	require.NoError(t, d.Close())
}

// So it does to a start on another host, where nothing tells of it but the generations that it had (mirror §4.7).
func TestStartElsewhereAwaitsTheFenceToo(t *testing.T) {
	for name, test := range map[string]func(t *testing.T){
		"with a takeover": testTakeoverElsewhere,
		"with an arbiter": func(t *testing.T) { testStandbyElsewhere(t, 2, 1) },
		"with an arbiter, and it had taken a member in": func(t *testing.T) { testStandbyElsewhere(t, 3, 2) },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// elsewhere has another initiator begin, whose client writes, and then a client of old read that, which is cut off.
func elsewhere(t *testing.T, cfg Config, old *Device, c *backendtest.Client) {
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	n := backendtest.NewClient(t, d)
	require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 2), 0), n.Flush()))
	late := c.Read(0, block, 0)
	c.Submit(late)
	time.Sleep(time.Second)
	require.NotEqual(t, backendtest.Pattern(block, 1), late.Got, "it would be stale")
	abandon(old)
	require.NoError(t, d.Close())
}

func testTakeoverElsewhere(t *testing.T) {
	s := beating(t, 3, 2)
	cfg := s.config(t)
	p := partition{make(chan struct{})}
	for _, i := range []int{1, 2} {
		cfg.Members[i].Provider = wrapped{cfg.Members[i].Provider, p.wrap}
	}
	old, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	close(p.cut)

	cfg = s.config(t)
	cfg.ID, cfg.StateDir, cfg.Takeover, cfg.Members = [16]byte{7}, t.TempDir(), true, cfg.Members[1:]
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	_, err = Dial(ctx, cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cfg.ID, cfg.StateDir = [16]byte{8}, t.TempDir()
	elsewhere(t, cfg, old, c)
}

// testStandbyElsewhere has the start before end in that generation of its own. It reaches all members but the first.
func testStandbyElsewhere(t *testing.T, members int, count uint64) {
	a := newArbitratedOf(t, members)
	p := partition{make(chan struct{})}
	for i := 1; i < members; i++ {
		a.cfg.Members[i].Provider = wrapped{a.cfg.Members[i].Provider, p.wrap}
	}
	old, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	for i := 1; i < members; i++ {
		a.cfg.Members[i].Provider = a.network(i)
	}
	a.cutOff(true)
	time.AfterFunc(a.lease-time.Millisecond, func() { close(p.cut) })

	cfg := a.cfg
	cfg.ID, cfg.StateDir, cfg.Members = [16]byte{7}, t.TempDir(), cfg.Members[1:]
	ctx, stop := context.WithTimeout(context.Background(), a.lease+2*time.Second)
	defer stop()
	_, err := Dial(ctx, cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, count, a.pairs.record(1).Count)
	a.mu.Lock()
	a.terms[1].over, a.terms[1].cut = false, time.Now() // a process that was killed tells nobody
	a.mu.Unlock()
	cfg.ID, cfg.StateDir = [16]byte{8}, t.TempDir()
	elsewhere(t, cfg, old, c)
}
