package target

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"pmnbd/internal/logtest"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma/rdmafake"
)

// The log has one line of each kind, whatever strangers do and however often.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	s := newSite(t)
	s.server.logTo(logtest.On(core)) // no connection exists yet
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

// A connection that only asks for the epoch is an initiator that starts. People need no
// log line about it.
func TestProbesAreNoBreach(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: "log", CreateSize: size, AllowVolatile: true})
	require.NoError(t, err)
	s := &site{p: rdmafake.New(rdmafake.Config{}), server: New(Config{Log: logtest.On(core)}, []*region.Region{r})}
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
