package status

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// A Document is a snapshot of a process: a struct that embeds a Header and is shown as JSON.
// Its metrics are made of the same snapshot; nothing is counted for them alone.
type Document interface {
	// Collect sends the document's metrics, with Gauge, Counter and Truth.
	Collect(Scrape)
	// Health is how what the process serves is.
	Health() Health
}

// A Scrape takes the metrics of one document.
type Scrape struct {
	ch            chan<- prometheus.Metric
	names, values []string // labels
}

// With returns s for metrics that have these labels, too: a name, its value, and so on.
func (s Scrape) With(labels ...string) Scrape {
	for i, text := range labels {
		if i%2 == 0 {
			s.names = append(slices.Clip(s.names), text)
		} else {
			s.values = append(slices.Clip(s.values), label(text))
		}
	}
	return s
}

// Number is what a metric's value can be made of.
type Number interface{ ~int | ~uint64 | ~float64 }

// Gauge sends a metric that goes up and down. labels are those of With.
func Gauge[N Number](s Scrape, name, help string, value N, labels ...string) {
	s.With(labels...).send(prometheus.GaugeValue, name, help, float64(value))
}

// Counter sends a metric that only grows, until the process ends.
func Counter[N Number](s Scrape, name, help string, value N, labels ...string) {
	s.With(labels...).send(prometheus.CounterValue, name, help, float64(value))
}

// Truth sends a gauge that is 1 for true and 0 for false.
func Truth(s Scrape, name, help string, value bool, labels ...string) {
	n := 0
	if value {
		n = 1
	}
	Gauge(s, name, help, n, labels...)
}

func (s Scrape) send(kind prometheus.ValueType, name, help string, value float64) {
	desc := prometheus.NewDesc(name, help, s.names, nil)
	m, err := prometheus.NewConstMetric(desc, kind, value, s.values...)
	if err != nil {
		m = prometheus.NewInvalidMetric(desc, err)
	}
	s.ch <- m
}

// maxLabel bounds a label's value, in bytes. An export's name may have 4096 of them, and each
// of its metrics repeats it.
const maxLabel = 128

// label returns s as a label's value. It cuts a text that is too long or not UTF-8, and adds
// a hash, so that two texts that are cut alike stay two.
func label(s string) string {
	if len(s) <= maxLabel && utf8.ValidString(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return strings.ToValidUTF8(s[:min(len(s), maxLabel-17)], "?") + "~" + hex.EncodeToString(sum[:8])
}

// A collector makes one snapshot for each scrape.
type collector struct{ snapshot func() Document }

// Describe implements prometheus.Collector. It sends nothing: which metrics there are depends
// on the document.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) { c.snapshot().Collect(Scrape{ch: ch}) }

// MetricsHandler answers each scrape with the metrics of a new snapshot, and of more. log may be nil.
func MetricsHandler(log *zap.Logger, snapshot func() Document, more ...prometheus.Collector) http.Handler {
	if log == nil {
		log = zap.NewNop()
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{snapshot})
	registry.MustRegister(more...)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: zap.NewStdLog(log)})
}
