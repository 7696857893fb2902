package main

import (
	"context"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/backend/mem"
	"pmnbd/cmd/internal/reload"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/nbd"
	"pmnbd/nbd/client"
	"pmnbd/ublk"
)

// Who ends a drain early is told what to do only where there is something to do.
func TestNotDrained(t *testing.T) {
	require.EqualError(t, notDrained("not drained in 1s", 4096),
		"not drained in 1s: 4096 bytes that were acknowledged are not flushed: start pmnbd again on this host before it reboots, or they are lost")
	none := notDrained("interrupt while draining", 0)
	require.ErrorContains(t, none, "interrupt while draining: nothing is lost")
	require.NotContains(t, none.Error(), "reboots")
}

// TestTurn: a reload, an order and an attach --ublk that wait for another one end with their context. So a process that
// is to end does not wait for that other one.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &initiator{ordering: make(chan struct{}, 1)}
		s.shown.fill = func(*report.Document) {}
		s.reloader = reload.New(zaptest.NewLogger(t), s.reload)
		end, err := s.turn(t.Context())
		require.NoError(t, err)
		asked := make(chan error)
		go func() { asked <- s.reloader.Command().Run(t.Context(), nil, nil) }()
		synctest.Wait()
		if ended := s.reloader.Close(); ended != nil { // what drain does first; nil: the reload has ended already
			<-ended
		}
		require.ErrorIs(t, <-asked, context.Canceled)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.carryOut(ctx, &order{})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, s.attachUblk(ctx, url.Values{}, nil), context.Canceled)
		end()
		_, err = s.carryOut(t.Context(), &order{})
		require.ErrorContains(t, err, "no export is called", "it is its turn")
	})
}

// A block device whose requests wait for their target does not keep an NBD client from being told, and nobody
// new comes meanwhile.
func TestEndClients(t *testing.T) {
	dev, err := mem.New(1 << 20)
	require.NoError(t, err)
	s := &initiator{}
	s.ublks.closing = make(chan struct{})
	s.ublks.devices = []ublkDevice{{Device: &ublk.Device{}, export: "log"}, {Device: &ublk.Device{}, export: "data"}} // neither ever ends
	s.nbd, err = nbd.New(nbd.Config{}, nbd.Export{Name: "other", Device: dev})
	require.NoError(t, err)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	served := make(chan error)
	go func() { served <- s.nbd.Serve(l) }()
	nc, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	c, err := client.New(nc, client.Config{Export: "other"})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	require.NoError(t, c.Socket().SetReadDeadline(time.Now().Add(time.Minute))) // far longer than it takes

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.endClients(ctx) }()
	_, _, err = c.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-served)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled, "of the block devices")
	require.NoError(t, dev.Close())
}

// TestDrainWaitsForOpens: a drain ends the opening of a block device, and waits for it before it closes the exports. After
// half its time it closes them, which may be what the block device waits for, and waits on.
func TestDrainWaitsForOpens(t *testing.T) {
	for name, takes := range map[string]time.Duration{"at once": 0, "soon": time.Second, "after half the time": 40 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &initiator{log: zaptest.NewLogger(t)}
				s.cfg.drainTimeout = time.Minute
				s.reloader = reload.New(s.log, s.reload)
				s.ublks.closing = make(chan struct{})
				dev, err := mem.New(1 << 20)
				require.NoError(t, err)
				s.nbd, err = nbd.New(nbd.Config{}, nbd.Export{Name: "other", Device: dev})
				require.NoError(t, err)
				ended := false
				var stop func()
				stop, err = s.ublks.whileOpen(func() { time.AfterFunc(takes, func() { ended = true; stop() }) })
				require.NoError(t, err)
				began := time.Now()
				require.NoError(t, s.drain(nil))
				require.True(t, ended)
				require.Equal(t, takes, time.Since(began))
				require.NoError(t, dev.Close())
			})
		})
	}
}
