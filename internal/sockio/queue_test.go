package sockio

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func runs(q *Queue) []string {
	var out []string
	for _, s := range q.segs[q.head:] {
		out = append(out, string(s.p))
	}
	return out
}

func header(q *Queue, s string) { copy(q.Header(len(s)), s) }

func TestCoalescing(t *testing.T) {
	mem := []byte("0123456789")
	tests := map[string]struct {
		put  func(q *Queue)
		want []string
	}{
		"consecutive headers": {func(q *Queue) { header(q, "ab"); header(q, "c"); header(q, "d") }, []string{"abcd"}},
		"headers around data": {func(q *Queue) { header(q, "ab"); q.Data(mem[:2]); header(q, "c") }, []string{"ab", "01", "c"}},
		"adjacent data":       {func(q *Queue) { q.Data(mem[:2]); q.Data(mem[2:5]) }, []string{"01234"}},
		"data with a gap":     {func(q *Queue) { q.Data(mem[:2]); q.Data(mem[3:5]) }, []string{"01", "34"}},
		"data backwards":      {func(q *Queue) { q.Data(mem[2:4]); q.Data(mem[:2]) }, []string{"23", "01"}},
		"capacity ends":       {func(q *Queue) { q.Data(mem[:2:2]); q.Data(mem[2:4]) }, []string{"01", "23"}},
		"nothing":             {func(q *Queue) { q.Data(nil); q.Header(0); q.Data(mem[:0]) }, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var q Queue
			tt.put(&q)
			require.Equal(t, tt.want, runs(&q))
		})
	}
}

func TestHeadersSurviveGrowthAndWrapping(t *testing.T) {
	var q Queue
	var want, got []byte
	next := byte(0)
	put := func(n int) {
		h := q.Header(n)
		for i := range h {
			h[i] = next
			want = append(want, next)
			next++
		}
	}
	take := func(n int) {
		for _, s := range q.segs[q.head:] {
			got = append(got, s.p[:min(n, len(s.p))]...)
			if n -= min(n, len(s.p)); n == 0 {
				break
			}
		}
	}
	for i := range 3000 {
		put(1 + i%MaxHeader)
		if i%97 == 96 {
			put(MaxHeader)
			q.Data([]byte{1})
			want = append(want, 1)
		}
		if left := int(q.Queued() - q.Written()); left > 3*minRing/2 {
			take(left - 500)
			q.advance(left - 500)
		}
	}
	left := int(q.Queued() - q.Written())
	take(left)
	q.advance(left)
	require.Equal(t, want, got)
	require.True(t, q.Empty())
	require.Zero(t, q.used)
	require.LessOrEqual(t, len(q.ring), 4*minRing, "the ring is bounded by what was queued at once")
}

func TestHeaderTooLongPanics(t *testing.T) {
	require.Panics(t, func() { new(Queue).Header(MaxHeader + 1) })
}

// A header that would begin exactly at the end of the ring goes to its start.
func TestHeaderAtTheEndOfTheRing(t *testing.T) {
	var q Queue
	for range 8 {
		q.Header(16)
		q.Data(make([]byte, 1))
	}
	for range 4 * minRing / 16 {
		q.advance(17)
		require.Len(t, q.Header(16), 16)
		q.Data(make([]byte, 1))
	}
	require.Len(t, q.ring, minRing, "it did not grow")
}
