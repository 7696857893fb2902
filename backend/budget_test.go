package backend

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// take starts a Take and returns when the Take waits. The channel gets its error.
func take(b *Budget, n int, stop <-chan struct{}) <-chan error {
	waits, done := make(chan struct{}), make(chan error, 1)
	b.Pressure = func() { close(waits) }
	go func() { done <- b.Take(n, stop) }()
	<-waits
	b.Pressure = nil
	return done
}

func TestBudgetFirstComeFirstServed(t *testing.T) {
	b := NewBudget(4)
	require.True(t, b.TryTake(4))
	require.False(t, b.TryTake(1))
	large := take(b, 3, nil)
	small := take(b, 1, nil)
	require.True(t, b.Waiting())

	b.Give(1)
	require.Empty(t, small, "a small demand does not overtake")
	require.False(t, b.TryTake(1), "nor does one that would not wait")
	b.Give(2)
	require.NoError(t, <-large)
	require.Empty(t, small)
	b.Give(1)
	require.NoError(t, <-small)
	require.False(t, b.Waiting())
	b.Give(4)
	require.Equal(t, 4, b.Free())
	require.Equal(t, 4, b.Total())
}

func TestBudgetStop(t *testing.T) {
	b := NewBudget(2)
	require.True(t, b.TryTake(2))
	stop := make(chan struct{})
	large := take(b, 2, stop)
	small := take(b, 1, nil)
	b.Give(1)
	require.Empty(t, small)
	close(stop)
	require.ErrorIs(t, <-large, ErrStopped)
	require.NoError(t, <-small, "who stood behind is served")
	b.Give(2)
	require.Equal(t, 2, b.Free(), "nothing was taken by who gave up")
}

func TestBudgetTooMuch(t *testing.T) {
	b := NewBudget(2)
	require.ErrorIs(t, b.Take(3, nil), ErrTooLarge)
	require.Panics(t, func() { b.Give(1) })
	require.Equal(t, 3, b.free)
	b.free = 2
	b.Give(0)
	require.NoError(t, b.Take(2, nil))
}

// TestBudgetRace: goroutines that take and give up race with others that give. No unit is
// lost.
func TestBudgetRace(t *testing.T) {
	b := NewBudget(3)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 500 {
				stop := make(chan struct{})
				if (i+w)%3 == 0 {
					close(stop)
				}
				n := 1 + (i+w)%3
				if b.Take(n, stop) == nil {
					b.Give(n)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 3, b.Free())
	require.False(t, b.Waiting())
}
