package compare

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every operation of every pattern stays in its writer's part and has no more writes than a lane takes.
func TestPatterns(t *testing.T) {
	for _, p := range Patterns() {
		t.Run(p.Name, func(t *testing.T) {
			require.LessOrEqual(t, p.Writers, maxWriters)
			var parts []extent
			for i := range p.Writers {
				in := part(MinArea, i, p.Writers)
				require.GreaterOrEqual(t, in.off, int64(0))
				require.LessOrEqual(t, in.off+in.len, int64(MinArea))
				if i > 0 {
					require.LessOrEqual(t, parts[i-1].off+parts[i-1].len, in.off, "parts do not overlap")
				}
				parts = append(parts, in)
				s := p.stream(in, rand.New(rand.NewPCG(1, uint64(i))))
				for range 1000 {
					op, _ := s.next()
					require.NotEmpty(t, op)
					require.LessOrEqual(t, len(op), most)
					for _, e := range op {
						require.Zero(t, e.off%block)
						require.Positive(t, e.len)
						require.LessOrEqual(t, e.len, int64(fillPiece), "the payload has so much")
						require.GreaterOrEqual(t, e.off, in.off)
						require.LessOrEqual(t, e.off+e.len, in.off+in.len)
					}
				}
			}
		})
	}
}

func TestAppends(t *testing.T) {
	s := &appends{part: extent{1 << 20, 3 * block}, op: make([]extent, 1)}
	for _, at := range []int64{0, 1, 2, 0, 1} {
		op, counts := s.next()
		require.True(t, counts)
		require.Equal(t, []extent{{1<<20 + at*block, block}}, op)
	}
}

// A commit begins with the last page of the one before it, unless the log begins again. Checkpoints
// come in time, and do not count.
func TestWAL(t *testing.T) {
	s := newWAL(part(MinArea, 0, 1), rand.New(rand.NewPCG(1, 2))).(*wal)
	last, commits, sizes := int64(0), 0, map[int64]int{}
	for range 20 * (commitsPerCheckpoint + 1) {
		op, counts := s.next()
		if !counts {
			require.Len(t, op, pagesPerCheckpoint)
			require.Equal(t, commitsPerCheckpoint, commits)
			commits = 0
			for _, e := range op {
				require.GreaterOrEqual(t, e.off, s.tables.off, "beside the log")
			}
			continue
		}
		commits++
		require.Len(t, op, 1)
		sizes[op[0].len/page]++
		require.Contains(t, []int64{0, last}, op[0].off)
		last = op[0].off + op[0].len - page
		require.LessOrEqual(t, op[0].off+op[0].len, s.log.off+s.log.len)
	}
	require.Len(t, sizes, 3)
	require.Greater(t, sizes[1], sizes[2])
	require.Greater(t, sizes[2], sizes[largestCommit])
}
