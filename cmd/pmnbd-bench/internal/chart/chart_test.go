package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func example() Chart {
	return Chart{
		Title: `fsyncs per second <of> "two"`, Width: 440, Height: 280, Marks: true,
		X: LogAxis("writers", 1, 64, Count),
		Y: LogAxis("fsyncs per second", 900, 40_000, Count),
		Series: []Series{
			{Name: "memory <region>", Points: []Point{{X: 1, Y: 10_000, Low: 9000, High: 12_000}, {X: 64, Y: 40_000}}},
			{Name: "disk", Points: []Point{{X: 1, Y: 900, Low: 500, High: 950}, {X: 64, Y: 30_000}}},
			{Name: "nothing"},
		},
	}
}

// wellFormed reads all of a document.
func wellFormed(t *testing.T, doc string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(doc)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else {
			require.NoError(t, err, doc)
		}
	}
}

func TestSVG(t *testing.T) {
	svg, err := example().SVG()
	require.NoError(t, err)
	wellFormed(t, string(svg))
	require.NotContains(t, svg, "http", "nothing from elsewhere")
	require.NotRegexp(t, `#[0-9A-Fa-f]{6}`, svg, "every colour is a variable")
	for _, want := range []string{
		"var(--line0)", "var(--line1)", "var(--ink)", "var(--grid)", "stroke-dasharray", ">writers<", ">10k\u00a0<",
		`aria-label="fsyncs per second &lt;of&gt; &#34;two&#34;"`,
	} {
		require.Contains(t, svg, want)
	}
	again, err := example().SVG()
	require.NoError(t, err)
	require.Equal(t, svg, again, "the same values make the same picture")
	require.Contains(t, CSS(), "--line0: ")
}

func TestPicture(t *testing.T) {
	file, err := example().Picture()
	require.NoError(t, err)
	wellFormed(t, string(file))
	require.Contains(t, string(file), ">memory &lt;region&gt;<", "it has a legend")
	require.Contains(t, string(file), "prefers-color-scheme: dark")
	require.Equal(t, 1, strings.Count(string(file), "http"), "of its namespace")

	for i := range 2 * Colours {
		sample, err := Sample(i)
		require.NoError(t, err)
		wellFormed(t, string(sample))
	}
}

func TestLogAxis(t *testing.T) {
	for _, c := range []struct {
		name        string
		least, most float64
		min, max    float64
		labels      string
	}{
		{"decades", 3, 40_000, 2, 50_000, "10 µs, 100 µs, 1 ms, 10 ms"},
		{"short", 110, 1900, 100, 2000, "100 µs, 200 µs, 500 µs, 1 ms, 2 ms"},
		{"one value", 100, 100, 100, 200, "100 µs, 200 µs"},
		{"exact ends", 1, 1000, 1, 1000, "1 µs, 10 µs, 100 µs, 1 ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := LogAxis("latency", c.least, c.most, Duration)
			require.InDelta(t, c.min, a.Min, 1e-6)
			require.InDelta(t, c.max, a.Max, 1e-6)
			var labels []string
			for _, tick := range a.Ticks {
				if tick.Label != "" && tick.At >= a.Min*.999 && tick.At <= a.Max*1.001 {
					labels = append(labels, tick.Label)
				}
			}
			require.Equal(t, c.labels, strings.Join(labels, ", "))
		})
	}
}

func TestPercentAxis(t *testing.T) {
	var labels []string
	for _, tick := range PercentAxis("percentile", 4).Ticks {
		labels = append(labels, tick.Label)
	}
	require.Equal(t, []string{"", "90 %", "99 %", "99.9 %", "99.99 %", "50 %", "", ""}, labels)
	require.InDelta(t, 3, Nines(.999), 1e-9)
}

func TestNumbers(t *testing.T) {
	for us, want := range map[float64]string{
		0: "0", .25: "250 ns", 1: "1 µs", 9.996: "10 µs", 85.04: "85 µs", 12.34: "12.3 µs", 999.4: "999 µs", 999.6: "1 ms", 1234: "1.23 ms", 2e6: "2 s", 61e6: "61 s",
	} {
		require.Equal(t, want, Duration(us), us)
	}
	for n, want := range map[float64]string{0: "0", 1: "1", 999: "999", 999.7: "1k", 12_345: "12.3k", 1.5e6: "1.5M"} {
		require.Equal(t, want, Count(n), n)
	}
}
