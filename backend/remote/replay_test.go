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
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A start waits as long as something of its replay moves, and not much longer. What it gives
// up is there for the next one.
func TestStartWaitsForWhatMoves(t *testing.T) {
	const bound = 20 * time.Second
	for _, tt := range []struct {
		name  string
		do    func(network *rdmafake.Provider, p *pair, narrow *atomic.Bool) (undo func())
		lasts time.Duration // at least; 0: the start ends after bound
	}{
		{"a network of 1 Mbit/s", func(network *rdmafake.Provider, _ *pair, _ *atomic.Bool) func() {
			return crawl(network, 125_000)
		}, 45 * time.Second},
		{"a slow disk", func(_ *rdmafake.Provider, p *pair, _ *atomic.Bool) func() {
			release := p.sync.blockData()
			time.AfterFunc(time.Hour, release)
			return release
		}, time.Hour - time.Minute},
		{"no answer", func(network *rdmafake.Provider, _ *pair, _ *atomic.Bool) func() {
			network.Pause()
			return network.Resume
		}, 0},
		{"sessions, and no data", func(_ *rdmafake.Provider, _ *pair, narrow *atomic.Bool) func() {
			narrow.Store(true)
			return func() { narrow.Store(false) }
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := rdmafake.New(rdmafake.Config{})
				var narrow atomic.Bool
				p := newPair(t, wrapped{network, func(c rdma.Conn) rdma.Conn { return &narrowConn{Conn: c, closed: &narrow} }},
					"", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second})
				cfg := p.config(t)
				cfg.WindowDir, cfg.LossTimeout = inMemory(t), 0
				h := &host{&farm{t: t, region: p.region}, cfg}
				d, c := h.run()
				network.Pause()
				for i := range 24 {
					require.NoError(t, c.Do(c.Write(uint64(i)<<18, backendtest.Pattern(256<<10, uint32(i)), 0)))
				}
				h.kill(d)
				network.Resume()
				h.cfg.OpenTimeout = bound
				undo := tt.do(network, p, &narrow)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), max(3*bound, 2*tt.lasts))
				defer cancel()
				d, err := Dial(ctx, h.cfg)
				took := time.Since(began)
				undo()
				if tt.lasts == 0 {
					require.ErrorIs(t, err, rdma.ErrTimeout)
					require.Less(t, took, 3*bound)
					d, err = Dial(t.Context(), h.cfg)
				} else {
					require.Greater(t, took, tt.lasts)
				}
				require.NoError(t, err)
				require.NoError(t, d.Close())
				require.Equal(t, backendtest.Pattern(256<<10, 23), p.region.Data()[23<<18:24<<18])
			})
		})
	}
}

// crawl makes a network carry so many bytes a second, and 64 as the least, until it is undone.
func crawl(network *rdmafake.Provider, bytesPerSecond int) (undo func()) {
	network.Pause()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			n := network.Step()
			time.Sleep(time.Duration(max(n, 64)) * time.Second / time.Duration(bytesPerSecond))
		}
	})
	return func() {
		stop()
		running.Wait()
		network.Resume()
	}
}
