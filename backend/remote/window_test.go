package remote

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/rdma/rdmafake"
)

// smallest opens a session with the smallest window.
func (p *pair) smallest(t *testing.T) *Device {
	cfg := p.config(t)
	cfg.Window = MinWindow
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return d
}

// The window holds as many unflushed bytes as it was given, and what connections
// receive into is there all the same.
func TestWindowIsExact(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.smallest(t)
	c := backendtest.NewClient(t, d)
	arena := d.Arenas().Write
	release := p.sync.block()
	defer release()
	for i := range MinWindow / backend.ChunkSize {
		c.Submit(c.Write(uint64(i)*backend.ChunkSize, backendtest.Pattern(backend.ChunkSize, uint32(i)), 0))
	}
	require.EqualValues(t, MinWindow, d.Unflushed())
	s := d.Snapshot().Window
	require.EqualValues(t, MinWindow, s.Used)
	require.EqualValues(t, MinWindow, s.Limit)
	room := backend.NewAdmission(d.Arenas())
	_, ok := room.TryReserve(nil, nil, 1)
	require.False(t, ok)
	free, ok := arena.TryGet(nil, d.cfg.Connections)
	require.True(t, ok)
	_, ok = room.TryReserve(free[0], nil, 0)
	require.False(t, ok)
	for _, ch := range free {
		ch.Release()
	}
	release()
	require.NoError(t, c.Do(c.Flush()))
	backendtest.AllBack(t, d)
	require.Zero(t, d.Snapshot().Window.Used)
	require.NoError(t, d.Close())
}

// Who waits while nothing is dirty, and half of the window is held for payloads that
// still come, has a barrier as soon as there is something that one can free.
func TestWaitBeforeTheWritesThatItWaitsFor(t *testing.T) {
	const half = MinWindow / backend.ChunkSize / 2
	p := fake(t, rdmafake.Config{})
	d := p.smallest(t)
	c := backendtest.NewClient(t, d)
	arena := d.Arenas().Write
	room := backend.NewAdmission(d.Arenas())
	coming, ok := room.TryReserve(nil, nil, half)
	require.True(t, ok)
	var writes []*backendtest.Request
	for i := range half {
		writes = append(writes, c.Write(uint64(i)*block, backendtest.Pattern(block, uint32(i)), 0))
	}
	waits, pressure := make(chan struct{}), arena.Pins().Pressure
	arena.Pins().Pressure = func() { pressure(); close(waits) }
	got := make(chan error)
	go func() {
		room := backend.NewAdmission(d.Arenas())
		chunks, err := room.Reserve(nil, nil, 1, nil)
		for _, ch := range chunks {
			ch.Release()
		}
		room.Unpin()
		got <- err
	}()
	<-waits
	c.Submit(writes...)
	require.NoError(t, <-got)
	for _, ch := range coming {
		ch.Release()
	}
	room.Unpin()
	require.NoError(t, c.Do(c.Flush()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// TestReadMemory: two of the largest reads fit beside a chunk for each connection, though
// such a read fills no whole number of chunks.
func TestReadMemory(t *testing.T) {
	cfg := fake(t, rdmafake.Config{}).config(t)
	cfg.Window = 5<<20 + 2*backend.ChunkSize
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.EqualValues(t, 5*backend.ChunkSize+backend.ChunkSize/2, d.Info().MaxRequest)
	require.Equal(t, cfg.Connections+2*6, d.Arenas().Read.Budget().Total())
	require.NoError(t, d.Close())
}
