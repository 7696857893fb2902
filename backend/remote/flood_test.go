package remote

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
)

// silentFlood opens a thousand connections a second to addr, as many with an MPA request
// as without, and says nothing on them. It keeps the first and the newest of them open.
// It returns when the first have been there, and goes on until the test ends.
func silentFlood(t *testing.T, addr string) {
	const (
		mpaRequest = "MPA ID Req Frame\x40\x01\x00\x00" // revision 1, with CRC (RFC 5044 §7.1)
		first      = 512                                // the target has fewer places
		newest     = 512
	)
	over, begun := make(chan struct{}), make(chan struct{})
	var flooding sync.WaitGroup
	flooding.Go(func() {
		var open []net.Conn
		defer func() {
			for _, nc := range open {
				_ = nc.Close()
			}
		}()
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-pace.C:
			case <-over:
				return
			}
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				n--
				continue // the target is busy with the others
			}
			_, _ = nc.Write([]byte(mpaRequest[:n%2*len(mpaRequest)])) // it may have been ended already
			switch {
			case n < first+newest:
				open = append(open, nc)
			default:
				i := first + n%newest
				_ = open[i].Close()
				open[i] = nc
			}
			if n == first {
				close(begun)
			}
		}
	})
	t.Cleanup(func() {
		close(over)
		flooding.Wait()
	})
	<-begun
}

// A session that is lost comes back while strangers flood the target's port from the
// same address.
func TestSessionComesBackInAFlood(t *testing.T) {
	for name, key := range map[string]wire.Key{"without a key": nil, "with a key": secretKey} {
		t.Run(name, func(t *testing.T) {
			serve := target.Config{OpenTimeout: time.Hour, ProofTimeout: time.Hour}
			if key != nil {
				serve.Keys = target.Keys{(&pair{}).config(t).ID: {key}}
			}
			p := newPair(t, iwarp.New(iwarp.Config{}), "127.0.0.1:0", region.PathMemfd, serve)
			cfg := p.config(t)
			cfg.Lanes, cfg.LossTimeout = 2, 0
			if key != nil {
				cfg.Target, cfg.Key = targetName, func(string) []byte { return key }
			}
			d, err := Dial(context.Background(), cfg)
			require.NoError(t, err)
			c := backendtest.NewClient(t, d)
			silentFlood(t, p.addr)
			for i := range uint64(3) {
				before := d.Snapshot().Recoveries
				require.NoError(t, c.Do(c.Write(i<<20, backendtest.Pattern(block, uint32(i)), 0)))
				d.legs[0].lanes[i%2].abort(rdma.ErrLost)
				require.NoError(t, c.Do(c.Flush()))
				require.Greater(t, d.Snapshot().Recoveries, before)
				require.Equal(t, backendtest.Pattern(block, uint32(i)), p.region.Data()[i<<20:][:block])
			}
			require.NoError(t, d.Close())
		})
	}
}
