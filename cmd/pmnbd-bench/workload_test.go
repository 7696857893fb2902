package main

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A fake answers after delay, in an order of its own, and remembers what it was sent.
type fake struct {
	t       *testing.T
	sent    []request
	most    int // requests of one send
	pending []request
	newest  bool // answer the newest request first
	delay   time.Duration
	err     error // of every recv
}

func (f *fake) send(rs []request) error {
	f.most = max(f.most, len(rs))
	for _, r := range rs {
		for _, p := range f.pending {
			require.NotEqual(f.t, p.slot, r.slot, "a slot with two requests")
		}
		f.pending = append(f.pending, r)
		f.sent = append(f.sent, r)
	}
	return nil
}

func (f *fake) recv() (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	require.NotEmpty(f.t, f.pending, "waiting for a reply that nobody owes")
	i := 0
	if f.newest {
		i = len(f.pending) - 1
	}
	time.Sleep(f.delay)
	slot := f.pending[i].slot
	f.pending = append(f.pending[:i], f.pending[i+1:]...)
	return slot, nil
}

// buffered: as if replies came in pairs.
func (f *fake) buffered() bool { return len(f.pending)%2 == 1 && len(f.pending) > 1 }

func (f *fake) bound(time.Time) error { return nil }
func (f *fake) Close() error          { return nil }

func TestDrive(t *testing.T) {
	area := extent{off: 1 << 20, len: 16 * blockSize}
	for _, tc := range []struct {
		name   string
		work   workload
		newest bool
	}{
		{"writes", plain(1, 1, blockSize)[0], false},
		{"reads, many at a time", plain(8, 1, blockSize)[1], false},
		{"write and flush", plain(1, 1, blockSize)[2], false},
		{"write and flush, replies out of order", plain(4, 1, blockSize)[2], true},
		{"one send each", workload{cmds: []verb{cmdFUA}, depth: 4, block: blockSize, single: true}, false},
		{"sequential", workload{cmds: []verb{cmdWrite}, depth: 2, block: 2 * blockSize, sequential: true}, false},
	} {
		t.Run(tc.name, inBubble(func(t *testing.T) {
			f := &fake{t: t, newest: tc.newest, delay: 10 * time.Microsecond}
			l := load{conn: f, work: tc.work, area: area, rng: rand.New(rand.NewPCG(1, 1))}
			samples, err := l.drive(time.Millisecond, 5*time.Millisecond, nil)
			require.NoError(t, err)
			require.NotEmpty(t, samples)
			require.Empty(t, f.pending, "every request was answered")

			// Each slot goes through the workload's commands in turn.
			steps := make([]int, tc.work.depth)
			require.Equal(t, len(f.sent), l.done*len(tc.work.cmds))
			for i, r := range f.sent {
				require.Equal(t, tc.work.cmds[steps[r.slot]], r.cmd)
				steps[r.slot] = (steps[r.slot] + 1) % len(tc.work.cmds)
				if r.cmd == cmdFlush {
					require.Zero(t, r.len)
					continue
				}
				require.Equal(t, tc.work.block, r.len)
				require.Zero(t, r.off%blockSize)
				if tc.work.sequential {
					require.Equal(t, area.off+int64(i*r.len)%area.len, r.off)
				}
				require.GreaterOrEqual(t, r.off, area.off)
				require.LessOrEqual(t, r.off+int64(r.len), area.off+area.len)
			}
			for _, s := range steps {
				require.Zero(t, s, "no operation was left half done")
			}
			require.Less(t, len(samples), len(f.sent), "the warm-up is not measured")
			if tc.work.single {
				require.Equal(t, 1, f.most)
			}
		}))
	}
}

// inBubble runs test where time passes in the fake's replies and nowhere else: a slow
// machine measures as much as a fast one.
func inBubble(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

func TestDriveStopsAtAnError(t *testing.T) {
	lost := errors.New("lost")
	l := load{conn: &fake{t: t, err: lost}, work: plain(2, 1, blockSize)[0], area: extent{0, blockSize}, rng: rand.New(rand.NewPCG(1, 1))}
	_, err := l.drive(0, time.Hour, nil)
	require.ErrorIs(t, err, lost)
}

// The load generator's own cost is in every figure: it must not grow by garbage.
func TestDriveDoesNotAllocatePerOperation(t *testing.T) {
	l := load{conn: quiet{}, work: plain(1, 1, blockSize)[2], area: extent{0, 16 * blockSize}, rng: rand.New(rand.NewPCG(1, 1))}
	samples := make([]time.Duration, 0, 1<<20)
	operations := 0
	n := testing.AllocsPerRun(10, func() {
		var err error
		samples, err = l.drive(0, 3*time.Millisecond, samples[:0])
		require.NoError(t, err)
		operations += len(samples)
	})
	require.LessOrEqual(t, n, 2.0, "its slots and its batch")
	require.Greater(t, operations, 100, "in all runs together")
}

// A quiet conn answers at once and remembers nothing.
type quiet struct{}

func (quiet) send([]request) error  { return nil }
func (quiet) recv() (int, error)    { return 0, nil }
func (quiet) buffered() bool        { return false }
func (quiet) bound(time.Time) error { return nil }
func (quiet) Close() error          { return nil }

func TestFill(t *testing.T) {
	f := &fake{t: t}
	area := extent{off: 4096, len: 3*fillSize + 2*blockSize}
	require.NoError(t, fill(f, area))
	at := area.off
	for _, r := range f.sent[:len(f.sent)-1] {
		require.Equal(t, cmdWrite, r.cmd)
		require.Equal(t, at, r.off)
		require.LessOrEqual(t, r.len, fillSize)
		at += int64(r.len)
	}
	require.Equal(t, area.off+area.len, at)
	require.Equal(t, cmdFlush, f.sent[len(f.sent)-1].cmd)
}
