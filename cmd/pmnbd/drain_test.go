package main

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/mem"
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

// A block device whose requests wait for their target does not keep an NBD client from being told, and nobody
// new comes meanwhile.
func TestEndClients(t *testing.T) {
	dev, err := mem.New(1 << 20)
	require.NoError(t, err)
	s := &initiator{}
	s.ublks.closing = make(chan struct{})
	s.ublks.devices = []ublkDevice{{&ublk.Device{}, "log"}, {&ublk.Device{}, "data"}} // neither ever ends
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
