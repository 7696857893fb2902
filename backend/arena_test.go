package backend

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArena(t *testing.T) {
	a, err := NewArena(3)
	require.NoError(t, err)
	require.Len(t, a.Mem(), 3*ChunkSize)

	got, ok := a.TryGet(nil, 2)
	require.True(t, ok)
	require.Len(t, got, 2)
	require.Equal(t, 1, a.Budget().Free())
	_, ok = a.TryGet(got, 2)
	require.False(t, ok)

	c := got[0]
	require.Equal(t, 1, c.Refs())
	require.Same(t, c, a.Chunk(c.Off()))
	require.Same(t, c, a.Chunk(c.Off()+ChunkSize-1))
	s := Span{Chunk: c, Off: 100, Len: 8}
	copy(s.Bytes(), "pmnbd")
	require.Equal(t, "pmnbd", string(a.Mem()[s.ArenaOff():][:5]))
	require.Equal(t, 8, cap(s.Bytes()), "a span cannot be appended to")
	require.Equal(t, ChunkSize, cap(c.Bytes()))

	c.Retain()
	require.False(t, c.Release(), "one reference is left")
	require.Equal(t, 1, a.Budget().Free())
	require.ErrorContains(t, a.Close(), "chunks that are still held (2)")
	require.True(t, c.Release())
	require.Equal(t, 2, a.Budget().Free())
	require.Panics(t, func() { c.Release() })
	again, ok := a.TryGet(nil, 1)
	require.True(t, ok)
	require.Same(t, c, again[0], "last in, first out")
	c.Release()
	got[1].Release()
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
}

func TestArenaRetainOfFreeChunkPanics(t *testing.T) {
	a, err := NewArena(1)
	require.NoError(t, err)
	require.Panics(t, a.chunks[0].Retain)
	a.chunks[0].refs.Store(0)
	require.NoError(t, a.Close())
}

func TestArenaGetWaits(t *testing.T) {
	a, err := NewArena(2)
	require.NoError(t, err)
	held, _ := a.TryGet(nil, 2)

	stop := make(chan struct{})
	close(stop)
	got, err := a.Get(nil, 1, stop)
	require.ErrorIs(t, err, ErrStopped)
	require.Empty(t, got)
	_, err = a.Get(nil, 3, nil)
	require.ErrorIs(t, err, ErrTooLarge)

	waits := make(chan struct{})
	a.Budget().Pressure = func() { close(waits) }
	done := make(chan []*Chunk)
	go func() {
		got, err := a.Get(nil, 2, nil)
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	<-waits
	held[0].Release()
	held[1].Release()
	got = <-done
	require.Len(t, got, 2)
	got[0].Release()
	got[1].Release()
	require.NoError(t, a.Close())
}

func TestArenaAllocatesNothing(t *testing.T) {
	a, err := NewArena(4)
	require.NoError(t, err)
	buf := make([]*Chunk, 0, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		got, _ := a.TryGet(buf, 4)
		for _, c := range got {
			c.Retain()
			c.Release()
			c.Release()
		}
	}))
	require.NoError(t, a.Close())
}
