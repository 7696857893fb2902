package remote

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
	"pmnbd/rdma/rdmafake"
)

// A slow network that moves is not a lost one: heartbeats wait behind data, and what comes
// meanwhile shows that the target lives.
func TestSlowNetworkIsNotLost(t *testing.T) {
	for _, tt := range []struct {
		name           string
		bytesPerSecond int
		writes, reads  int // of 256 KiB
	}{
		{"writes at 10 Mbit/s", 1_250_000, 160, 0},
		{"writes at 1 Mbit/s", 125_000, 48, 0},
		{"reads at 1 Mbit/s", 125_000, 0, 16},
		{"both at 1 Mbit/s", 125_000, 16, 16},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := rdmafake.New(rdmafake.Config{})
				p := newPair(t, network, "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second})
				cfg := p.config(t)
				cfg.LossTimeout, cfg.Window = 0, 64<<20
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				c := backendtest.NewClient(t, d)
				undo := crawl(network, tt.bytesPerSecond)
				var all []*backendtest.Request
				for i := range tt.writes {
					w := c.Write(uint64(i%32)<<18, backendtest.Pattern(256<<10, uint32(i)), 0)
					all = append(all, w)
					c.Submit(w)
				}
				for i := range tt.reads {
					r := c.Read(uint64(i)<<18, 256<<10, 0)
					all = append(all, r)
					c.Submit(r)
				}
				flush := c.Flush()
				c.Submit(flush)
				for _, r := range append(all, flush) {
					for !r.Completed() && d.Snapshot().Recoveries == 0 && d.Snapshot().State == StateOpen {
						time.Sleep(time.Second)
					}
				}
				s := d.Snapshot()
				require.Equal(t, StateOpen, s.State, s.Cause)
				require.Zero(t, s.Recoveries)
				require.NoError(t, c.Wait(append(all, flush)...))
				undo()
				require.NoError(t, d.Close())
			})
		})
	}
}

// What is posted and not known to be complete is bounded in bytes: a heartbeat waits for it.
func TestPostedAheadIsBounded(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	network := p.provider.(*rdmafake.Provider)
	var ahead atomic.Int64
	p.provider = wrapped{network, func(c rdma.Conn) rdma.Conn { return &weighedConn{Conn: c, ahead: &ahead} }}
	cfg := p.config(t)
	cfg.Window = 64 << 20
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	network.Pause()
	for i := range 48 {
		c.Submit(c.Write(uint64(i%32)<<18, backendtest.Pattern(256<<10, uint32(i)), 0))
	}
	flush := c.Flush()
	c.Submit(flush)
	// Whoever posts may still be at it.
	require.Eventually(t, func() bool { return ahead.Load() == maxAhead }, patience, tick, "as much as is allowed")
	for !flush.Completed() {
		network.Step()
		require.LessOrEqual(t, ahead.Load(), int64(maxAhead))
	}
	require.NoError(t, c.Wait(flush))
	require.Equal(t, backendtest.Pattern(256<<10, 47), p.region.Data()[15<<18:16<<18])
	network.Resume()
	require.NoError(t, d.Close())
}

// A weighedConn counts the bytes of Writes that were posted, and of which no completion at
// or behind them was polled.
type weighedConn struct {
	rdma.Conn
	mu      sync.Mutex
	posted  int64
	marks   []int64 // what was posted, at each request that completes
	retired int64
	ahead   *atomic.Int64
}

func (c *weighedConn) Post(wrs []rdma.WorkRequest) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.Conn.Post(wrs)
	for _, wr := range wrs[:n] {
		if wr.Op == rdma.OpWrite {
			c.posted += int64(wr.Local.Len)
		}
		if wr.Signaled || wr.Op == rdma.OpRead {
			c.marks = append(c.marks, c.posted)
		}
	}
	c.ahead.Store(c.posted - c.retired)
	return n, err
}

func (c *weighedConn) Poll(cs []rdma.Completion) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.Conn.Poll(cs)
	for _, done := range cs[:n] {
		if done.Op != rdma.OpRecv {
			c.retired, c.marks = c.marks[0], c.marks[1:]
		}
	}
	c.ahead.Store(c.posted - c.retired)
	return n, err
}

// A slow TCP link ends neither the session nor the lease. A heartbeat waits behind the Writes that the
// device has already posted. This link takes 13 s to carry them, and the lease is 10 s. Both run in real
// time, so the lease is long: a busy machine may keep the test from running for seconds.
func TestSlowLinkOverTCP(t *testing.T) {
	const rate = maxAhead / 13 // bytes per second
	const size = 256 << 10
	p := newPair(t, iwarp.New(iwarp.Config{}), "127.0.0.1:0", region.PathMemfd, target.Config{Heartbeat: 100 * time.Millisecond, Lease: 10 * time.Second})
	p.addr = slowLink(t, p.addr, rate)
	cfg := p.config(t)
	cfg.LossTimeout, cfg.Window = 0, 64<<20
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	for i := range 5 * maxAhead / 4 / size {
		c.Submit(c.Write(uint64(i)*size, backendtest.Pattern(size, uint32(i)), 0))
	}
	flush := c.Flush()
	c.Submit(flush)
	expired := false
	require.Eventually(t, func() bool {
		for _, s := range p.server.Snapshot() {
			expired = expired || s.LeaseLeft == 0
		}
		return flush.Completed() || expired || d.Snapshot().Recoveries > 0
	}, 4*patience, tick)
	require.False(t, expired, "the lease")
	require.Zero(t, d.Snapshot().Recoveries)
	require.NoError(t, c.Wait(flush))
	require.NoError(t, d.Close())
}

// slowLink listens, and carries what comes to addr, so many bytes a second and with little
// memory of its own.
func slowLink(t *testing.T, addr string, bytesPerSecond int) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	carry := func(to, from *net.TCPConn, pace int) {
		defer func() { _ = to.CloseWrite() }()
		buf := make([]byte, 32<<10)
		next := time.Now()
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			if pace > 0 {
				// The time that these bytes take. If the last ones were late, this is shorter.
				next = next.Add(time.Duration(n) * time.Second / time.Duration(pace))
				time.Sleep(time.Until(next))
			}
		}
	}
	running.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", addr)
			if err != nil {
				_ = a.Close()
				continue
			}
			client, server := a.(*net.TCPConn), b.(*net.TCPConn)
			running.Go(func() { // a failed test does not close its device, and so not the connection
				<-t.Context().Done()
				_ = client.Close()
				_ = server.Close()
			})
			_ = client.SetReadBuffer(64 << 10)
			running.Go(func() { carry(server, client, bytesPerSecond) })
			running.Go(func() {
				carry(client, server, 0)
				_ = client.Close()
				_ = server.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}
