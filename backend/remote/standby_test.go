package remote

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
)

// A standby begins with one member of two once the lease of the active one is over. Of the active one,
// which reaches only the other member, nothing is read from then on, and its writes land nowhere that
// counts (mirror §4.7, §4.8).
func TestStandby(t *testing.T) { synctest.Test(t, testStandby) }

func testStandby(t *testing.T) {
	a := newArbitrated(t)
	old, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	a.cutOff(true)
	time.AfterFunc(a.lease-100*time.Millisecond, a.network(1).Freeze) // what the active one sends to B never arrives
	began := time.Now()
	d, n := a.standby(t, 1)
	require.GreaterOrEqual(t, time.Since(began), a.lease)
	read := n.Read(0, block, 0)
	require.NoError(t, n.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 2), 0), n.Flush()))

	late, flush := c.Read(0, block, 0), c.Flush()
	c.Submit(late, c.Write(0, backendtest.Pattern(block, 3), 0), flush)
	time.Sleep(10 * time.Minute)
	require.NotEqual(t, backendtest.Pattern(block, 1), late.Got, "it would be stale")
	a.network(1).Thaw()
	require.Error(t, c.Wait(flush))
	require.Error(t, late.Err)
	require.True(t, old.Snapshot().Taken)
	require.Equal(t, backendtest.Pattern(block, 2), a.pairs[1].region.Data()[:block])
	require.Error(t, old.Close())
	require.NoError(t, d.Close())
}

// A standby that reaches all members waits for nothing but the lease at the arbiter.
func TestStandbyWithAllMembers(t *testing.T) { synctest.Test(t, testStandbyWithAllMembers) }

func testStandbyWithAllMembers(t *testing.T) {
	a := newArbitrated(t)
	old, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	a.cutOff(true)
	abandon(old)
	a.mu.Lock()
	a.terms[0].over = false // a process that was killed tells nobody
	a.mu.Unlock()
	began := time.Now()
	d, n := a.standby(t, 0, 1)
	require.LessOrEqual(t, time.Since(began), a.lease+time.Second)
	read := n.Read(0, block, 0)
	require.NoError(t, n.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	require.NoError(t, d.Close())

	began = time.Now()
	d, _ = a.dial(t) // as any initiator: after an orderly end the mirror is free at once
	require.Less(t, time.Since(began), time.Second)
	require.NoError(t, d.Close())
}

// A partition is the network between one initiator and a target. Once it is cut nothing arrives at either
// end, and neither hears that.
type partition struct{ cut chan struct{} }

func (p *partition) wrap(c rdma.Conn) rdma.Conn {
	return &partitioned{Conn: c, partition: p, closed: make(chan struct{})}
}

func (p *partition) over() bool {
	select {
	case <-p.cut:
		return true
	default:
		return false
	}
}

type partitioned struct {
	rdma.Conn
	partition *partition
	once      sync.Once
	closed    chan struct{}
}

func (c *partitioned) Wait() error {
	err := c.Conn.Wait()
	if c.partition.over() {
		<-c.closed
		return rdma.ErrClosed
	}
	return err
}

func (c *partitioned) Poll(cs []rdma.Completion) (int, error) {
	if c.partition.over() {
		return 0, nil
	}
	return c.Conn.Poll(cs)
}

func (c *partitioned) Post(wrs []rdma.WorkRequest) (int, error) {
	if c.partition.over() {
		return len(wrs), nil
	}
	return c.Conn.Post(wrs)
}

func (c *partitioned) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A life that does not hold all of F waits until the one before must have closed its fence, which may
// have heard all of F just before (mirror §4.8).
func TestStandbyBehindAPartition(t *testing.T) { synctest.Test(t, testStandbyBehindAPartition) }

func testStandbyBehindAPartition(t *testing.T) {
	a := newArbitrated(t)
	p := partition{make(chan struct{})}
	a.cfg.Members[1].Provider = wrapped{a.cfg.Members[1].Provider, p.wrap}
	old, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	a.cfg.Members[1].Provider = a.network(1)
	a.cutOff(true)
	time.AfterFunc(a.lease-time.Millisecond, func() { close(p.cut) })
	d, n := a.standby(t, 1)
	require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 2), 0), n.Flush()))
	late := c.Read(0, block, 0)
	c.Submit(late)
	time.Sleep(time.Second)
	require.NotEqual(t, backendtest.Pattern(block, 1), late.Got, "it would be stale")
	abandon(old)
	require.NoError(t, d.Close())
}

// A lease that was lost and is there again opens no fence before the arbiter says that no other life has
// begun meanwhile. If one has, the device ends for good (mirror §4.7).
func TestLeaseGainedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		legTimeout time.Duration
		taken      bool
	}{
		"another life has had the mirror, B is about to be let go": {time.Second, true},
		"another life has had the mirror, B may still come back":   {10 * time.Minute, true},
		"nobody has had the mirror":                                {10 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testLeaseGainedAgain(t, c.legTimeout, c.taken) })
		})
	}
}

func testLeaseGainedAgain(t *testing.T, legTimeout time.Duration, taken bool) {
	a := newArbitrated(t)
	a.cfg.LegTimeout = legTimeout
	p := partition{make(chan struct{})}
	a.cfg.Members[1].Provider = wrapped{a.cfg.Members[1].Provider, p.wrap}
	old, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	a.cfg.Members[1].Provider = a.network(1)
	a.cutOff(true)
	time.AfterFunc(a.lease-time.Millisecond, func() { close(p.cut) })
	if taken {
		d, n := a.standby(t, 1)
		require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 2), 0), n.Flush()))
		require.NoError(t, d.Close())
	}
	time.Sleep(a.lease + usualLease)
	late := c.Read(0, block, 0)
	c.Submit(late)
	synctest.Wait()
	require.False(t, late.Completed(), "the lease is over, and B is silent")
	a.mu.Lock()
	a.terms[0].cutLocked(false)
	a.mu.Unlock()
	time.Sleep(time.Minute)
	if !taken {
		require.NoError(t, c.Wait(late))
		require.Equal(t, backendtest.Pattern(block, 1), late.Got)
		abandon(old)
		return
	}
	require.Error(t, c.Wait(late), "it would be stale")
	require.ErrorContains(t, old.core.failed(), "another life of the mirror")
	require.True(t, old.Snapshot().Taken)
	began := time.Now()
	d, n := a.standby(t, 1)
	require.Less(t, time.Since(began), time.Second, "the one that has ended keeps nobody waiting")
	require.NoError(t, n.Do(n.Read(0, block, 0)))
	require.NoError(t, d.Close())
	require.Error(t, old.Close())
}
