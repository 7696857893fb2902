package backend

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func limited(t *testing.T, chunks, pins int) *Arena {
	a, err := NewArena(chunks)
	require.NoError(t, err)
	a.LimitPins(pins)
	t.Cleanup(func() {
		require.Equal(t, pins, a.Pins().Free())
		require.NoError(t, a.Close())
	})
	return a
}

// The first pin of a chunk takes a unit and the last gives it back, whoever's they are.
func TestPins(t *testing.T) {
	a := limited(t, 3, 1)
	got, ok := a.TryGet(nil, 2)
	require.True(t, ok)
	c, other := got[0], got[1]
	require.True(t, c.TryPin())
	require.True(t, c.TryPin())
	require.Zero(t, a.Pins().Free())
	require.False(t, other.TryPin())
	_, ok = a.TryGetPinned(nil, 1)
	require.False(t, ok)
	c.Unpin()
	require.False(t, other.TryPin(), "one is left")
	require.Equal(t, 1, a.Budget().Free(), "receiving has a budget of its own")
	c.Release()
	c.Unpin() // after the reference
	require.True(t, other.TryPin())
	other.Release()
	other.Unpin()
	require.Panics(t, other.Unpin)
	other.pins.Store(0)
}

func TestPinWaits(t *testing.T) {
	a := limited(t, 4, 2)
	held, ok := a.TryGetPinned(nil, 2)
	require.True(t, ok)
	receiving, ok := a.TryGet(nil, 1)
	require.True(t, ok)
	stop := make(chan struct{})
	close(stop)
	require.ErrorIs(t, receiving[0].Pin(stop), ErrStopped)
	_, err := a.GetPinned(nil, 1, stop)
	require.ErrorIs(t, err, ErrStopped)
	require.False(t, a.Waiting())

	waits := make(chan struct{})
	a.Pins().Pressure = func() { waits <- struct{}{} }
	done := make(chan error, 1)
	go func() { done <- receiving[0].Pin(nil) }()
	<-waits
	require.True(t, a.Waiting())
	held[0].Release()
	held[0].Unpin()
	require.NoError(t, <-done)
	require.NoError(t, receiving[0].Pin(nil), "it is pinned: nothing to wait for")
	receiving[0].Unpin()

	go func() {
		got, err := a.GetPinned(nil, 1, nil)
		for _, c := range got {
			c.Release()
			c.Unpin()
		}
		done <- err
	}()
	<-waits
	for _, c := range []*Chunk{held[1], receiving[0]} {
		c.Release()
		c.Unpin()
	}
	require.NoError(t, <-done)
}

// Pins and chunks are not lost when chunks lack, and pins do not.
func TestGetPinnedWithoutChunks(t *testing.T) {
	a := limited(t, 1, 1)
	held, ok := a.TryGet(nil, 1)
	require.True(t, ok)
	_, ok = a.TryGetPinned(nil, 1)
	require.False(t, ok)
	stop := make(chan struct{})
	close(stop)
	_, err := a.GetPinned(nil, 1, stop)
	require.ErrorIs(t, err, ErrStopped)
	held[0].Release()
	require.NoError(t, a.Close())
}

// Where no window is, pins cost nothing and limit nothing.
func TestPinsWithoutALimit(t *testing.T) {
	a, err := NewArena(2)
	require.NoError(t, err)
	require.Nil(t, a.Pins())
	got, ok := a.TryGetPinned(nil, 1)
	require.True(t, ok)
	got, err = a.GetPinned(got, 1, nil)
	require.NoError(t, err)
	for _, c := range got {
		require.True(t, c.TryPin())
		c.Unpin()
		c.Release()
		c.Unpin()
	}
	require.False(t, a.Waiting())
	require.NoError(t, a.Close())
}

// TestPinsRace: several pin one chunk, and publish into it, while others wait for the
// pins; the bound holds, and nothing is lost.
func TestPinsRace(t *testing.T) {
	const limit = 2
	a := limited(t, 4, limit)
	chunks, ok := a.TryGet(nil, 4)
	require.True(t, ok)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 2000 {
				c := chunks[(w+i)%len(chunks)]
				if err := c.Pin(nil); err != nil {
					t.Error(err)
				}
				c.repin()
				c.Unpin()
				if c.pins.Load() < 1 {
					t.Error("pinned, and not counted")
				}
				c.Unpin()
			}
		})
	}
	wg.Wait()
	for _, c := range chunks {
		require.Zero(t, c.pins.Load())
		c.Release()
	}
}

func TestPinsAllocateNothing(t *testing.T) {
	a := limited(t, 4, 4)
	buf := make([]*Chunk, 0, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		got, _ := a.TryGetPinned(buf, 4)
		for _, c := range got {
			_ = c.TryPin()
			c.Release()
			c.Unpin()
			c.Unpin()
		}
	}))
}
