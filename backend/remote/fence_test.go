package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// Of three members two can begin another life. While two are silent, READs wait that the third could
// answer: it would show what the other life has replaced (mirror §4.7).
func TestReadsAreFenced(t *testing.T) { synctest.Test(t, testReadsAreFenced) }

func testReadsAreFenced(t *testing.T) {
	var s pairs
	for range 3 {
		s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second}))
	}
	s.join(t, 2)
	d, err := Dial(context.Background(), s.config(t))
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	for range 3 { // heartbeats keep READs going
		time.Sleep(time.Minute)
		require.NoError(t, c.Do(c.Read(0, block, 0)))
	}
	s.network(1).Down()
	time.Sleep(time.Minute)
	require.NoError(t, c.Do(c.Read(0, block, 0)), "two of three are there")
	s.network(2).Freeze()
	time.Sleep(9500 * time.Millisecond) // less than the lease
	read := c.Read(0, block, 0)
	c.Submit(read)
	synctest.Wait()
	require.False(t, read.Completed())
	s.network(2).Thaw()
	require.NoError(t, c.Wait(read))
	s.network(1).Up()
	require.NoError(t, c.Do(c.Flush()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// Data that come when the fence has closed are no answer, also if nobody has looked at the clock since:
// the process may have been stopped. The session is taken up anew, and its target would say if it were
// somebody else's.
func TestReadIsFencedWhenItsDataCome(t *testing.T) { synctest.Test(t, testReadIsFencedWhenItsDataCome) }

func testReadIsFencedWhenItsDataCome(t *testing.T) {
	a := newArbitrated(t)
	d, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	recoveries := d.Snapshot().Recoveries
	d.core.copies.fence.until.Store(0)
	read := c.Read(0, block, 0)
	require.NoError(t, c.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	time.Sleep(time.Second)
	require.Greater(t, d.Snapshot().Recoveries, recoveries)
	require.NoError(t, d.Close())
}

// A life that takes members over, and not all of F, serves nobody before the fence of the life before it must
// have closed (mirror §4.7).
func TestTakeoverAwaitsTheFence(t *testing.T) {
	for name, c := range map[string]struct {
		n       int // M is 2
		members []int
		closed  bool
		waits   bool
	}{
		"a majority":                       {n: 3, members: []int{1, 2}, waits: true},
		"all":                              {n: 3, members: []int{0, 1, 2}},
		"a majority, after an orderly end": {n: 3, members: []int{1, 2}, closed: true},
		"two of four, by force":            {n: 4, members: []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testTakeoverAwaitsTheFence(t, c.n, c.members, c.closed, c.waits) })
		})
	}
}

func testTakeoverAwaitsTheFence(t *testing.T, of int, members []int, closed, waits bool) {
	s := beating(t, of, 2)
	cfg := s.config(t)
	p := partition{make(chan struct{})}
	for _, i := range []int{1, 2} {
		cfg.Members[i].Provider = wrapped{cfg.Members[i].Provider, p.wrap}
	}
	old, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	time.Sleep(time.Minute)
	if closed {
		require.NoError(t, old.Close())
	}
	close(p.cut)
	began := time.Now()
	all := s.config(t)
	cfg = all
	cfg.ID, cfg.StateDir, cfg.WindowDir, cfg.Takeover, cfg.Members = [16]byte{7}, t.TempDir(), "", true, nil
	cfg.Degraded = of == 4
	for _, i := range members {
		cfg.Members = append(cfg.Members, all.Members[i])
	}
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	if waits {
		require.GreaterOrEqual(t, time.Since(began), usualLease)
	} else {
		require.Less(t, time.Since(began), time.Second)
	}
	n := backendtest.NewClient(t, d)
	require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 2), 0), n.Flush()))
	if !closed {
		late := c.Read(0, block, 0)
		c.Submit(late)
		time.Sleep(time.Second)
		if late.Completed() && !cfg.Degraded { // force shows old data
			require.Error(t, c.Wait(late), "it would be stale")
		}
		abandon(old)
	}
	require.NoError(t, d.Close())
}

// The wait counts from when the last member was granted, and not from when the start began to ask for it: until then
// the life before may have heard from it.
func TestTakeoverOfASlowMemberAwaitsTheFence(t *testing.T) {
	synctest.Test(t, testTakeoverOfASlowMember)
}

func testTakeoverOfASlowMember(t *testing.T) {
	s := beating(t, 3, 2)
	cfg := s.config(t)
	var cut [3]partition
	for i := range cut {
		cut[i].cut = make(chan struct{})
		cfg.Members[i].Provider = wrapped{cfg.Members[i].Provider, cut[i].wrap}
	}
	old, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	close(cut[1].cut)
	cfg = s.config(t)
	cfg.ID, cfg.StateDir, cfg.Takeover, cfg.Members = [16]byte{7}, t.TempDir(), true, cfg.Members[1:]
	connects := 0
	cfg.Members[1].Provider = lateProvider{cfg.Members[1].Provider, func() {
		if connects++; connects == 2 { // after the probe
			time.Sleep(usualLease - time.Second)
			close(cut[2].cut)
		}
	}}
	takenOverFrom(t, cfg, old, c)
}

// takenOverFrom begins a life as cfg says, and writes. A READ of c, a client of the life before, which is old, must have
// nothing that is older than this.
func takenOverFrom(t *testing.T, cfg Config, old *Device, c *backendtest.Client) {
	t.Helper()
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	n := backendtest.NewClient(t, d)
	require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 2), 0), n.Flush()))
	late := c.Read(0, block, 0)
	c.Submit(late)
	time.Sleep(time.Second)
	if late.Completed() {
		require.Error(t, c.Wait(late), "it would be stale")
	}
	abandon(old)
	require.NoError(t, d.Close())
}

// A lateProvider calls before ahead of each connection.
type lateProvider struct {
	rdma.Provider
	before func()
}

func (p lateProvider) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	d, err := p.Provider.OpenDomain(ctx, addr)
	return lateDomain{d, p.before}, err
}

type lateDomain struct {
	rdma.Domain
	before func()
}

func (d lateDomain) Dial(ctx context.Context, addr string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	d.before()
	return d.Domain.Dial(ctx, addr, cfg, recvs)
}
