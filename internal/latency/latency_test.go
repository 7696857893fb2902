package latency

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each duration is in the bucket between whose ends it lies, the upper one included.
func TestBuckets(t *testing.T) {
	for name, c := range map[string]struct {
		d    time.Duration
		want float64 // the upper end, in seconds
	}{
		"nothing":         {0, math.Exp2(-20)},
		"a nanosecond":    {1, math.Exp2(-20)},
		"a microsecond":   {time.Microsecond, math.Exp2(-19.75)},
		"a second":        {time.Second, 1},
		"more":            {time.Second + 2, math.Exp2(0.25)},
		"the 46 s":        {46 * time.Second, math.Exp2(5.75)},
		"an hour":         {time.Hour, math.Exp2(12)},
		"too long":        {4097 * time.Second, math.Inf(1)},
		"as long as ever": {math.MaxInt64, math.Inf(1)},
	} {
		require.Equal(t, c.want, Bound(bucket(c.d)), name)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		d := time.Duration(math.Exp2(r.Float64() * 50))
		i, s := bucket(d), d.Seconds()
		slack := 2e-9 + s*1e-8 // ticks are whole, and steps have 31 bits
		require.LessOrEqual(t, s, Bound(i)+slack, "%v", d)
		if i > 0 {
			require.Greater(t, s, Bound(i-1)-slack, "%v", d)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	require.Zero(t, h.Quantile(0.5))
	for i := range 1000 {
		h.Note(time.Duration(i+1) * time.Microsecond)
	}
	require.EqualValues(t, 1000, h.Count())
	require.Equal(t, 500500*time.Microsecond, h.Sum())
	for q, want := range map[float64]time.Duration{0: time.Microsecond, 0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: time.Millisecond} {
		got := h.Quantile(q)
		require.GreaterOrEqual(t, got, want)
		require.LessOrEqual(t, float64(got), 1.2*float64(want))
	}
	before := h
	h.Note(3 * time.Hour)
	h.Note(-time.Second)
	last := h.Since(&before)
	require.EqualValues(t, 2, last.Count())
	require.EqualValues(t, 1, last.In(0))
	require.EqualValues(t, 1, last.In(Buckets+1))
	require.Equal(t, 3*time.Hour, last.Sum(), "a negative one counts as none")
	require.Equal(t, 4096*time.Second, last.Quantile(1))
	require.Equal(t, before, before.Since(&h), "it began anew")
	before.Add(&last)
	require.Equal(t, h, before)
}

func TestJSON(t *testing.T) {
	var h, again Histogram
	for i := range Buckets + 2 {
		h.Note(time.Duration(min(Bound(i)*0.99, 5000) * float64(time.Second)))
	}
	b, err := json.Marshal(struct{ H Histogram }{h}) // by value
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &struct{ H *Histogram }{&again}))
	require.Equal(t, h.counts, again.counts)
	require.Equal(t, h.sum, again.sum)

	b, err = json.Marshal(Histogram{})
	require.NoError(t, err)
	require.JSONEq(t, `{"count": 0, "sum_seconds": 0, "le_seconds": [], "counts": []}`, string(b))
	for name, wrong := range map[string]string{
		"no histogram": `7`, "more bounds": `{"le_seconds": [1]}`, "more counts": `{"counts": [1]}`,
		"too small": `{"le_seconds": [1e-9], "counts": [1]}`, "too large": `{"le_seconds": [1e9], "counts": [1]}`,
	} {
		require.Error(t, json.Unmarshal([]byte(wrong), &h), name)
	}
}

func TestNoteAllocatesNothing(t *testing.T) {
	var h Histogram
	require.Zero(t, testing.AllocsPerRun(100, func() { h.Note(time.Millisecond) }))
}

func BenchmarkNote(b *testing.B) {
	var h Histogram
	d := time.Microsecond
	for b.Loop() {
		h.Note(d)
		d = d*5/4 + 1
		if d > time.Hour {
			d = time.Microsecond
		}
	}
}
