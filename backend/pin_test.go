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
	a.limitPins(pins)
	t.Cleanup(func() {
		require.Equal(t, pins, a.Pins().Free())
		require.NoError(t, a.Close())
	})
	return a
}

// The first pin of a chunk takes a unit and the last gives it back, no matter which connection holds them.
func TestPins(t *testing.T) {
	a := limited(t, 3, 1)
	got, ok := a.TryGet(nil, 2)
	require.True(t, ok)
	c, other := got[0], got[1]
	require.True(t, c.tryPin())
	require.True(t, c.tryPin())
	require.Zero(t, a.Pins().Free())
	require.False(t, other.tryPin())
	c.unpin()
	require.False(t, other.tryPin(), "one is left")
	require.Equal(t, 1, a.Budget().Free(), "receiving has a budget of its own")
	c.Release()
	c.unpin() // after the last reference
	require.True(t, other.tryPin())
	other.Release()
	other.unpin()
	require.Panics(t, other.unpin)
	other.pins.Store(0)
}

func TestPinWaits(t *testing.T) {
	a := limited(t, 3, 1)
	got, ok := a.TryGet(nil, 2)
	require.True(t, ok)
	held, waiting := got[0], got[1]
	require.True(t, held.tryPin())
	stop := make(chan struct{})
	close(stop)
	require.ErrorIs(t, waiting.pin(stop), ErrStopped)
	require.False(t, a.Waiting())

	waits := make(chan struct{})
	a.Pins().Pressure = func() { waits <- struct{}{} }
	done := make(chan error, 1)
	go func() { done <- waiting.pin(nil) }()
	<-waits
	require.True(t, a.Waiting())
	held.Release()
	held.unpin()
	require.NoError(t, <-done)
	require.NoError(t, waiting.pin(nil), "it is pinned: nothing to wait for")
	waiting.unpin()
	waiting.Release()
	waiting.unpin()
}

// TestPinsRace: goroutines pin the same chunks, and publish into them, while others wait for
// pins. The bound holds, and no pin is lost.
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
				if err := c.pin(nil); err != nil {
					t.Error(err)
				}
				c.repin()
				c.unpin()
				if c.pins.Load() < 1 {
					t.Error("pinned, and not counted")
				}
				c.unpin()
			}
		})
	}
	wg.Wait()
	for _, c := range chunks {
		require.Zero(t, c.pins.Load())
		c.Release()
	}
}
