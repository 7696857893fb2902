package target

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma/rdmafake"
)

// Whatever strangers do, and however often, the log has a line of each kind.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	s := newSite(t)
	s.server.logTo(zap.New(core)) // before there is a connection
	for range 20 {
		s.server.Stranger("192.0.2.1:1", errors.New("not MPA"))
		p := s.connect(t)
		p.refused(alice, 7)
		p.send([]byte("garbage"))
		_, err := p.receive()
		require.Error(t, err)
	}
	s.stop()
	require.Len(t, logs.FilterMessage("connection refused").All(), 1)
	require.LessOrEqual(t, logs.Len(), 3, logs.All())
}

// Who asks for the epoch and goes is an initiator that starts, and no line for people.
func TestProbesAreNoBreach(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: "log", CreateSize: size, AllowVolatile: true})
	require.NoError(t, err)
	s := &site{p: rdmafake.New(rdmafake.Config{}), server: New(Config{Log: zap.New(core)}, []*region.Region{r})}
	l, err := s.p.Listen(t.Context(), "")
	require.NoError(t, err)
	s.addr = l.Addr()
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()
	p := s.connect(t)
	require.Equal(t, wire.CodeEpoch, p.refused(alice, 0).Code)
	require.NoError(t, p.conn.Close())
	require.NoError(t, s.server.Close())
	require.NoError(t, <-served)
	require.NoError(t, r.Close())
	require.Empty(t, lines.All())
}
