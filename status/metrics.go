package status

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// A Document is a snapshot of a process: a struct that embeds a Header and is shown as
// JSON. Metrics are the same snapshot, said to Prometheus: nothing is counted for them.
type Document interface {
	// Collect sends the document's metrics.
	Collect(chan<- prometheus.Metric)
}

// A Metric is the name and the meaning of a metric, and its labels.
type Metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Counter declares a metric that only grows, until the process ends.
func Counter(name, help string, labels ...string) Metric {
	return Metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// Gauge declares a metric that goes up and down.
func Gauge(name, help string, labels ...string) Metric {
	return Metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// Number is what a metric's value can be made of.
type Number interface{ ~int | ~uint64 | ~float64 }

// Send sends a value of the metric, with the values of its labels in their order.
func Send[N Number](ch chan<- prometheus.Metric, m Metric, value N, labels ...string) {
	for i := range labels {
		labels[i] = label(labels[i])
	}
	c, err := prometheus.NewConstMetric(m.desc, m.kind, float64(value), labels...)
	if err != nil {
		c = prometheus.NewInvalidMetric(m.desc, err)
	}
	ch <- c
}

// SendBool sends 1 for true and 0 for false.
func SendBool(ch chan<- prometheus.Metric, m Metric, value bool, labels ...string) {
	n := 0
	if value {
		n = 1
	}
	Send(ch, m, n, labels...)
}

// maxLabel bounds a label's value, in bytes: a name may have 4096 of them, and every
// one of its metrics says it.
const maxLabel = 128

// label is s as a label's value. What is too long or not UTF-8 is cut, and kept apart
// from others that were cut to the same.
func label(s string) string {
	if len(s) <= maxLabel && utf8.ValidString(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return strings.ToValidUTF8(s[:min(len(s), maxLabel-17)], "?") + "~" + hex.EncodeToString(sum[:8])
}

// A collector makes one snapshot for each scrape.
type collector struct{ snapshot func() Document }

// Describe implements prometheus.Collector. It says nothing: which metrics there are
// depends on the document.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) { c.snapshot().Collect(ch) }

// MetricsHandler answers with the metrics of snapshot, one for each scrape.
func MetricsHandler(log *zap.Logger, snapshot func() Document) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{snapshot})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: zap.NewStdLog(log)})
}
