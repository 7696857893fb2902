package status

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"pmnbd/internal/latency"
)

// A measured document has two histograms.
type measured struct{ some, none *latency.Histogram }

func (d measured) Collect(s Scrape) {
	Durations(s, "test_duration_seconds", "How long.", d.some, "what", "some")
	Durations(s, "test_duration_seconds", "How long.", d.none, "what", "none")
}

// A scraper gets classic buckets, and one that asks for protocol buffers native ones as well.
func TestDurations(t *testing.T) {
	var some latency.Histogram
	for _, d := range []time.Duration{0, time.Microsecond, time.Second, time.Second, 46 * time.Second, 3 * time.Hour} {
		some.Note(d)
	}
	scrape := func(accept string) (*httptest.ResponseRecorder, http.Header) {
		answer, req := httptest.NewRecorder(), httptest.NewRequest("GET", MetricsPath, nil)
		req.Header.Set("Accept", accept)
		MetricsHandler(nil, func() Document { return measured{&some, &latency.Histogram{}} }).ServeHTTP(answer, req)
		require.Equal(t, 200, answer.Code, answer.Body.String())
		return answer, answer.Header()
	}
	text, _ := scrape("text/plain")
	for _, line := range []string{
		"# TYPE test_duration_seconds histogram\n",
		`test_duration_seconds_bucket{what="some",le="3.814697265625e-06"} 2` + "\n",
		`test_duration_seconds_bucket{what="some",le="0.5"} 2` + "\n",
		`test_duration_seconds_bucket{what="some",le="1"} 4` + "\n",
		`test_duration_seconds_bucket{what="some",le="64"} 5` + "\n",
		`test_duration_seconds_bucket{what="some",le="256"} 5` + "\n",
		`test_duration_seconds_bucket{what="some",le="+Inf"} 6` + "\n",
		`test_duration_seconds_sum{what="some"} 10848.000001` + "\n",
		`test_duration_seconds_count{what="none"} 0` + "\n",
	} {
		require.Contains(t, text.Body.String(), line)
	}
	problems, err := promlint.New(text.Body).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)

	proto, header := scrape(string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	var family dto.MetricFamily
	require.NoError(t, expfmt.NewDecoder(proto.Body, expfmt.ResponseFormat(header)).Decode(&family))
	for _, m := range family.Metric {
		h := m.Histogram
		require.EqualValues(t, 2, h.GetSchema())
		require.NotEmpty(t, h.PositiveSpan, "it is a native one")
		if m.Label[0].GetValue() == "none" {
			continue
		}
		const least = -1000 // stands for the zero bucket
		// Bucket i of a native histogram ends at 2^(i/4) s.
		got, number, count, next := map[int]int64{least: int64(h.GetZeroCount())}, 0, int64(0), 0
		for _, span := range h.PositiveSpan {
			number += int(span.GetOffset())
			for range span.GetLength() {
				count += h.PositiveDelta[next]
				got[number] += count
				next++
				number++
			}
		}
		require.Equal(t, map[int]int64{least: 1, -79: 1, 0: 2, 23: 1, 49: 1}, got, "0; 1 µs; twice 1 s; 46 s; too long")
		require.Len(t, h.PositiveDelta, next)
	}
}
