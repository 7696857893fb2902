// Package latency counts how long things took, in buckets.
//
// It exists so that the packages on the path of a request can measure without a metrics library: a
// Histogram is an array of counters, and to note a duration costs a multiplication, two additions and
// no memory. The owner of a Histogram guards it. Whoever shows it takes a copy, adds up copies, and
// asks them for quantiles or buckets. Count and Requests are what front ends say of their requests. The
// package imports nothing of this module.
package latency

import (
	"encoding/json"
	"errors"
	"math"
	"math/bits"
	"time"
)

// The buckets are those of a native histogram of Prometheus with schema 2: four to an octave, and one
// boundary is 1 s. So a bucket's upper end is 19 % above its lower end.
const (
	// PerOctave is how many buckets there are between a duration and twice that.
	PerOctave = 4
	// Octaves below and above 1 s: buckets begin at 2^-20 s, a microsecond, and end at 2^12 s,
	// more than an hour.
	below, above = 20, 12
	// Buckets is how many buckets have two ends. Two more have what is shorter, and longer.
	Buckets = PerOctave * (below + above)
)

// Bound returns the upper end of bucket i, in seconds. Bucket 0 has what is at most Bound(0). The last
// one, Buckets+1, has no upper end.
func Bound(i int) float64 {
	if i > Buckets {
		return math.Inf(1)
	}
	return math.Exp2(float64(i)/PerOctave - below)
}

// A Histogram counts durations. The zero value is empty.
type Histogram struct {
	counts [Buckets + 2]uint64
	sum    time.Duration
}

// A duration is scaled to ticks of 2^-30 s, so that octaves of ticks are octaves of seconds:
// scale/2^64 is 2^30/10^9 - 1.
const (
	tickBits = 30
	scale    = 1360296554856532782
)

// steps are the boundaries inside an octave, for its ticks scaled to [2^31, 2^32): 2^(1/4), 2^(2/4)
// and 2^(3/4), times 2^31.
var steps = [PerOctave - 1]uint32{2553802834, 3037000500, 3611622603}

// Note counts one duration. A negative one counts as none.
func (h *Histogram) Note(d time.Duration) {
	d = max(d, 0) // else it would be a very long one
	h.counts[bucket(d)]++
	h.sum += d
}

// bucket returns the index of the bucket that d is in.
func bucket(d time.Duration) int {
	more, _ := bits.Mul64(uint64(d), scale)
	ticks := uint64(d) + more
	octave := bits.Len64(ticks) - 1 // ticks are in [2^octave, 2^(octave+1))
	i := octave - (tickBits - below)
	switch {
	case i < 0:
		return 0
	case i >= below+above:
		return Buckets + 1
	}
	m := uint32(ticks << (63 - octave) >> 32)
	i = 1 + i*PerOctave
	for _, s := range steps {
		if m >= s {
			i++
		}
	}
	return i
}

// Add adds the counts of o to h.
func (h *Histogram) Add(o *Histogram) {
	for i := range h.counts {
		h.counts[i] += o.counts[i]
	}
	h.sum += o.sum
}

// Since returns what h has counted since it was before. A histogram that has fewer counts than before
// is another one, which began anew: Since returns it as it is.
func (h *Histogram) Since(before *Histogram) Histogram {
	d := *h
	for i := range d.counts {
		if d.counts[i] < before.counts[i] {
			return *h
		}
		d.counts[i] -= before.counts[i]
	}
	d.sum -= before.sum
	return d
}

// Count returns how many durations h has counted.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// Sum returns the sum of the durations.
func (h *Histogram) Sum() time.Duration { return h.sum }

// In returns how many durations bucket i has, from 0 to Buckets+1.
func (h *Histogram) In(i int) uint64 { return h.counts[i] }

// Quantile returns an upper bound of the shortest q of the durations, for example the 99th percentile
// for 0.99: the end of the bucket that it is in, so it is at most 19 % too long. It returns 0 if h is
// empty, and the end of the last bucket for what is longer than that.
func (h *Histogram) Quantile(q float64) time.Duration {
	n := h.Count()
	if n == 0 {
		return 0
	}
	rank, seen := max(uint64(math.Ceil(q*float64(n))), 1), uint64(0)
	for i := range h.counts {
		if seen += h.counts[i]; seen >= rank {
			return time.Duration(Bound(min(i, Buckets)) * float64(time.Second))
		}
	}
	return 0
}

// A document is a Histogram in JSON. It has the buckets that are not empty.
type document struct {
	Count uint64  `json:"count"`
	Sum   float64 `json:"sum_seconds"`
	// Bucket i has Counts[i] durations of at most Bounds[i] seconds; -1 stands for no bound.
	Bounds []float64 `json:"le_seconds"`
	Counts []uint64  `json:"counts"`
}

// MarshalJSON implements json.Marshaler.
func (h Histogram) MarshalJSON() ([]byte, error) {
	d := document{Count: h.Count(), Sum: h.sum.Seconds(), Bounds: []float64{}, Counts: []uint64{}}
	for i, n := range h.counts {
		if n == 0 {
			continue
		}
		end := Bound(i)
		if i > Buckets {
			end = -1
		}
		d.Bounds, d.Counts = append(d.Bounds, end), append(d.Counts, n)
	}
	return json.Marshal(d)
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Histogram) UnmarshalJSON(b []byte) error {
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return err
	}
	if len(d.Bounds) != len(d.Counts) {
		return errors.New("a histogram with more bounds than counts, or fewer")
	}
	*h = Histogram{sum: time.Duration(math.Round(d.Sum * float64(time.Second)))}
	for i, end := range d.Bounds {
		at := Buckets + 1
		if end > 0 {
			at = int(math.Round(PerOctave * (math.Log2(end) + below)))
		}
		if at < 0 || at > Buckets+1 {
			return errors.New("a histogram with other buckets")
		}
		h.counts[at] += d.Counts[i]
	}
	return nil
}
