package pmemsim

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const size = 64 * Line

// opened returns memory full of zeroes.
func opened(t *testing.T, caches bool) *Memory {
	path := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(path, make([]byte, size), 0o600))
	m, err := Open(path, caches)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
	})
	return m
}

// ones lists the lines that are all ones. It fails the test if a line is torn.
func ones(t *testing.T, b []byte) (lines []int) {
	for off := 0; off < len(b); off += Line {
		line := b[off : off+Line]
		if n := bytes.Count(line, []byte{1}); n == Line {
			lines = append(lines, off/Line)
		} else {
			require.Zero(t, n)
		}
	}
	return lines
}

func fill(b []byte) { copy(b, bytes.Repeat([]byte{1}, len(b))) }

func all(int) bool  { return true }
func none(int) bool { return false }

// What was written back survives the power failure. Of the rest, what chance picks does.
func TestPower(t *testing.T) {
	every := make([]int, size/Line)
	for i := range every {
		every[i] = i
	}
	for _, c := range []struct {
		name   string
		caches bool
		do     func(*Memory)
		end    func(*Memory)
		want   []int
	}{
		{"nothing written back", false, func(*Memory) {}, func(m *Memory) { m.PowerOff(none) }, nil},
		{"part of a line", false, func(m *Memory) { m.Lines(3*Line+1, 1) }, func(m *Memory) { m.PowerOff(none) }, []int{3}},
		{"across two lines", false, func(m *Memory) { m.Lines(4*Line-1, 2) }, func(m *Memory) { m.PowerOff(none) }, []int{3, 4}},
		{"nothing of nothing", false, func(m *Memory) { m.Lines(0, 0) }, func(m *Memory) { m.PowerOff(none) }, nil},
		{"native FLUSH", false, func(m *Memory) { m.Flushed(5*Line+60, 8) }, func(m *Memory) { m.PowerOff(none) }, []int{5, 6}},
		{"evicted before", false, func(m *Memory) { m.Evict(func(n int) bool { return n == 7 }) }, func(m *Memory) { m.PowerOff(none) }, []int{7}},
		{"evicted at the end", false, func(*Memory) {}, func(m *Memory) { m.PowerOff(func(n int) bool { return n == 9 }) }, []int{9}},
		{"caches outlive the power", true, func(*Memory) {}, func(m *Memory) { m.PowerOff(none) }, every},
		{"the process alone ends", false, func(*Memory) {}, func(m *Memory) { m.Kill() }, every},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := opened(t, c.caches)
			fill(m.live)
			c.do(m)
			c.end(m)
			// A store of a process that no longer runs.
			clear(m.live)
			m.Lines(0, size)
			m.Evict(all)
			m.PowerOff(all)
			m.Kill()
			require.Equal(t, c.want, ones(t, m.Restart()))
			require.Equal(t, c.want, ones(t, m.live))
		})
	}
}

// An adapter that places past the caches makes its own bytes durable, and no store beside
// them.
func TestPushed(t *testing.T) {
	m := opened(t, false)
	fill(m.live)
	m.Pushed(2*Line+8, Line)
	m.PowerOff(none)
	m.Pushed(0, Line)
	found := m.Restart()
	require.Equal(t, Line, bytes.Count(found, []byte{1}))
	require.Equal(t, Line, bytes.Count(found[2*Line+8:3*Line+8], []byte{1}))
}

// A process that ends leaves its stores in the caches. A later power failure takes them.
func TestKillThenPower(t *testing.T) {
	m := opened(t, false)
	fill(m.live)
	m.Lines(0, Line)
	m.Kill()
	require.Len(t, ones(t, m.Restart()), size/Line)
	m.PowerOff(none)
	require.Equal(t, []int{0}, ones(t, m.Restart()))
}

func TestTrap(t *testing.T) {
	m := opened(t, false)
	fill(m.live)
	m.Trap(2, func() { m.PowerOff(none) })
	m.Lines(0, 1)
	m.Lines(Line, size-Line)
	require.Equal(t, []int{0}, ones(t, m.Restart()), "the trap sprang before the second line")
	m.Trap(1, func() { t.Error("the trap sprang after its removal") })
	m.Trap(0, nil)
	m.Lines(0, size)
}

func TestForeignMemory(t *testing.T) {
	m := opened(t, false)
	require.Panics(t, func() { m.Lines(0, size+1) })
}

// A seed always picks the same lines, and about as many as it should.
func TestSeeded(t *testing.T) {
	count := func(c Chance) (n int) {
		for i := range 10000 {
			if c(i) {
				n++
			}
		}
		return n
	}
	require.Equal(t, count(Seeded(1, 128)), count(Seeded(1, 128)))
	require.InDelta(t, 5000, count(Seeded(1, 128)), 300)
	require.InDelta(t, 5000, count(Seeded(2, 128)), 300)
	require.Zero(t, count(Seeded(1, 0)))
	same := 0
	a, b := Seeded(1, 128), Seeded(2, 128)
	for i := range 10000 {
		if a(i) == b(i) {
			same++
		}
	}
	require.InDelta(t, 5000, same, 300)
}

// Durable is what the next process is sure to find: on a machine that is off, exactly what it finds.
func TestDurable(t *testing.T) {
	durable := func(m *Memory) (lines []int) {
		m.Durable(func(medium []byte) { lines = ones(t, medium) })
		return lines
	}
	m := opened(t, false)
	fill(m.live[:3*Line])
	require.Empty(t, durable(m))
	m.Lines(Line, Line)
	require.Equal(t, []int{1}, durable(m))
	m.PowerOff(func(line int) bool { return line == 2 })
	require.Equal(t, []int{1, 2}, durable(m))
	m.Restart()
	require.Equal(t, []int{1, 2}, durable(m))
	fill(m.live[:Line])
	m.Kill()
	require.Equal(t, []int{0, 1, 2}, durable(m))
	m = opened(t, true)
	fill(m.live[:Line])
	require.Equal(t, []int{0}, durable(m), "the caches survive")
}
