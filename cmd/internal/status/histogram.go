package status

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"pmnbd/internal/latency"
)

// The classic buckets of a histogram are octaves of seconds: from 2^-18 s, or 4 µs, to 2^8 s, or
// 4 minutes. A scraper that asks for protocol buffers gets a native histogram as well, with all
// buckets of latency.
const (
	firstClassic = 2 * latency.PerOctave
	lastClassic  = 28 * latency.PerOctave
	// schema is that of native histograms with four buckets to an octave, and firstNative the
	// number that it gives to bucket 1.
	schema      = 2
	firstNative = 1 - 20*latency.PerOctave
)

// Durations sends a histogram of how long something took, in seconds. labels are those of With.
func Durations(s Scrape, name, help string, h *latency.Histogram, labels ...string) {
	s = s.With(labels...)
	desc := prometheus.NewDesc(name, help, s.names, nil)
	// The gauge has the labels as a metric wants them, in order.
	gauge, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, 0, s.values...)
	if err != nil {
		s.ch <- prometheus.NewInvalidMetric(desc, err)
		return
	}
	s.ch <- durations{desc, gauge, h}
}

type durations struct {
	desc   *prometheus.Desc
	labels prometheus.Metric
	h      *latency.Histogram
}

// Desc implements prometheus.Metric.
func (d durations) Desc() *prometheus.Desc { return d.desc }

// Write implements prometheus.Metric.
func (d durations) Write(m *dto.Metric) error {
	if err := d.labels.Write(m); err != nil {
		return err
	}
	m.Gauge = nil
	m.Histogram = &dto.Histogram{SampleCount: new(d.h.Count()), SampleSum: new(d.h.Sum().Seconds())}
	classic(m.Histogram, d.h)
	native(m.Histogram, d.h)
	return nil
}

// classic adds cumulative buckets.
func classic(to *dto.Histogram, h *latency.Histogram) {
	seen, next := uint64(0), 0
	for end := firstClassic; end <= lastClassic; end += latency.PerOctave {
		for ; next <= end; next++ {
			seen += h.In(next)
		}
		to.Bucket = append(to.Bucket, &dto.Bucket{UpperBound: new(latency.Bound(end)), CumulativeCount: new(seen)})
	}
}

// native adds sparse buckets: spans of those that are not empty, and the differences of their
// counts. What latency has in its first bucket is in the zero bucket.
func native(to *dto.Histogram, h *latency.Histogram) {
	to.Schema, to.ZeroThreshold, to.ZeroCount = new(int32(schema)), new(latency.Bound(0)), new(h.In(0))
	last, before := math.MinInt32, int64(0) // the number and the count of the bucket before
	for i := 1; i <= latency.Buckets+1; i++ {
		n := int64(h.In(i))
		if n == 0 {
			continue
		}
		number := firstNative + i - 1
		switch {
		case len(to.PositiveSpan) == 0:
			to.PositiveSpan = append(to.PositiveSpan, &dto.BucketSpan{Offset: new(int32(number)), Length: new(uint32(0))})
		case number != last+1:
			to.PositiveSpan = append(to.PositiveSpan, &dto.BucketSpan{Offset: new(int32(number - last - 1)), Length: new(uint32(0))})
		}
		*to.PositiveSpan[len(to.PositiveSpan)-1].Length++
		to.PositiveDelta = append(to.PositiveDelta, n-before)
		last, before = number, n
	}
	if len(to.PositiveSpan) == 0 && h.In(0) == 0 { // so that a scraper takes it for a native one
		to.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}}
	}
}
