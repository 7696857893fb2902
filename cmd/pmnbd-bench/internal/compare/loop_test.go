package compare

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// steady makes operations that all count.
type steady struct{}

func (steady) next() ([]extent, bool) { return []extent{{0, block}}, true }

// inTime runs a worker whose n-th operation takes so long, in a bubble in which nothing else takes time.
func inTime(t *testing.T, warm, measured time.Duration, takes func(n int) time.Duration) (w *worker, operations int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w = &worker{stream: steady{}, latencies: newHistogram()}
		from := time.Now().Add(warm)
		s := span{from: from, until: from.Add(measured), stop: new(atomic.Bool)}
		require.NoError(t, w.alone(func([]extent) error {
			time.Sleep(takes(operations))
			operations++
			return nil
		}, s))
	})
	return w, operations
}

// The percentiles are those of the distribution that was measured: 1 to 1000 µs, each as often.
func TestPercentiles(t *testing.T) {
	us := func(n int) time.Duration { return time.Duration(n%1000+1) * time.Microsecond }
	const cycle = 500_500 * time.Microsecond // of a thousand operations
	w, _ := inTime(t, 0, 10*cycle, us)
	require.EqualValues(t, 10_000, w.commits)
	require.Equal(t, 10*cycle, w.busy)

	c := &Cell{latencies: newHistogram(), writers: 1}
	require.NoError(t, c.add([]*worker{w}))
	c.finish()
	near := func(want, got float64) {
		t.Helper()
		require.InEpsilon(t, want, got, .001)
	}
	near(500, c.P50)
	near(900, c.P90)
	near(990, *c.P99)
	near(999, *c.P999)
	near(1000, c.Max)
	near(500.5, c.Mean)
	near(10_000/(10*cycle).Seconds(), c.Rate)
	near(c.Rate, c.Rounds[0].Rate)
}

func TestWhatCounts(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name           string
		warm, measured time.Duration
		takes          func(n int) time.Duration
		commits        int64
		operations     int
		max, busy      time.Duration
	}{
		{"the warm-up does not", 10 * ms, 20 * ms, func(int) time.Duration { return ms }, 20, 30, ms, 20 * ms},
		// To leave out what lasts beyond the end would leave out the slow ones.
		{"a slow end does", 0, 20 * ms, func(n int) time.Duration {
			if n == 19 {
				return time.Second
			}
			return ms
		}, 20, 20, time.Second, 19*ms + time.Second},
		// Nor may an operation that began in the warm-up press the next one out.
		{"one at least", 0, 0, func(int) time.Duration { return ms }, 1, 1, ms, ms},
		{"one at least, after a slow warm-up", 10 * ms, 10 * ms, func(n int) time.Duration { return time.Second }, 1, 2, time.Second, time.Second},
		{"one that is too long, as the longest", 0, 1, func(n int) time.Duration { return time.Hour }, 1, 1, longest, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, operations := inTime(t, c.warm, c.measured, c.takes)
			require.Equal(t, c.commits, w.commits)
			require.Equal(t, c.operations, operations)
			require.Equal(t, c.busy, w.busy)
			require.InEpsilon(t, float64(c.max), float64(w.latencies.Max()), .001)
		})
	}
}

// What does not count as an operation counts as time.
func TestCheckpointsTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{stream: newWAL(part(MinArea, 0, 1), newRandom(0, 0)), latencies: newHistogram()}
		s := span{from: time.Now(), until: time.Now().Add(time.Second), stop: new(atomic.Bool)}
		require.NoError(t, w.alone(func([]extent) error { time.Sleep(time.Millisecond); return nil }, s))
		require.Equal(t, time.Second, w.busy)
		require.EqualValues(t, 1000-1000/(commitsPerCheckpoint+1), w.commits)
	})
}

func TestAloneEnds(t *testing.T) {
	lost := errors.New("lost")
	s := span{until: time.Now().Add(time.Hour), stop: new(atomic.Bool)}
	w := &worker{stream: steady{}, latencies: newHistogram()}
	require.ErrorIs(t, w.alone(func([]extent) error { return lost }, s), lost)
	require.ErrorIs(t, w.alone(func([]extent) error { s.stop.Store(true); return nil }, s), errInterrupted)
}

// The client's own cost is in every figure: it must not grow by garbage.
func TestOperationsDoNotAllocate(t *testing.T) {
	for _, p := range Patterns() {
		w := &worker{stream: p.stream(part(MinArea, 0, 1), newRandom(0, 0)), latencies: newHistogram()}
		s := span{stop: new(atomic.Bool)}
		now := time.Now()
		require.NoError(t, w.count(s, now, now, true))
		require.Zero(t, testing.AllocsPerRun(100, func() {
			_, counts := w.stream.next()
			require.NoError(t, w.count(s, now, now.Add(time.Millisecond), counts))
		}), p.Name)
	}
}
