package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i+1) * time.Microsecond
	}
	for _, tc := range []struct {
		name   string
		sorted []time.Duration
		p      float64
		want   float64
	}{
		{"of none", nil, 50, 0},
		{"of one", []time.Duration{1500}, 99, 1.5},
		{"median of two is the lower", []time.Duration{1000, 2000}, 50, 1},
		{"p50 of 1..100", hundred, 50, 50},
		{"p99 of 1..100", hundred, 99, 99},
		{"p100 of 1..100", hundred, 100, 100},
		{"p0 of 1..100", hundred, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, percentile(tc.sorted, tc.p))
		})
	}
}

func sample() *report {
	r := &report{PerCell: 2, Rounds: 2, works: plain(1, 1, blockSize)}
	r.add(target{label: "memory region"})
	r.add(target{label: "disk", dir: "/x"})
	for i, c := range r.Cells {
		d := time.Duration(i+1) * 10 * time.Microsecond
		c.add([]time.Duration{3 * d, d, 2 * d}, time.Second)
		c.add([]time.Duration{500 * time.Microsecond, d}, time.Second)
		c.finish()
	}
	return r
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().table(&b))
	require.Equal(t, `4096 bytes, depth 1, connections 1, 2 s per cell in 2 rounds, alternating; latencies in µs

                                       write                           read                    write+flush
target               p50       p99     ops/s        p50       p99     ops/s        p50       p99     ops/s
memory region       20.0       500      2.50       40.0       500      2.50       60.0       500      2.50
disk                80.0       500      2.50          -         -         -        100       500      2.50

disk: write is pwrite into the page cache, write+flush is pwrite and fdatasync; a read would measure the page cache.
`, b.String())
}

func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	require.NoError(t, save(sample(), path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var got report
	require.NoError(t, json.Unmarshal(data, &got))
	require.Len(t, got.Cells, 5)
	require.Equal(t, []round{
		{Seconds: 1, Ops: 3, P10: 10, P50: 20, P99: 30, Max: 30},
		{Seconds: 1, Ops: 2, P10: 10, P50: 10, P99: 500, Max: 500},
	}, got.Cells[0].Rounds)
	require.Equal(t, 2.5, got.Cells[0].Rate)
}

// Ratios are those of the rounds, so that a bad moment spoils one round and not
// the median.
func TestMarkdown(t *testing.T) {
	r := &report{PerCell: 4, Rounds: 4, OS: "linux/amd64", CPUs: 2, Load: 1.5, suite: true, works: plain(32, 1, blockSize)[:1]}
	r.add(target{label: "a"})
	r.add(target{label: "b"})
	for n, ops := range [][2]int{{3000, 1000}, {4000, 1000}, {100, 50}, {0, 50}} {
		for i, c := range r.Cells {
			c.add(make([]time.Duration, ops[i]), time.Second)
			c.Rounds[n].CPU, c.Rounds[n].Front, c.Rounds[n].Switches = float64(1+3*i), float64(1+i), float64(5-i)
			c.Rounds[n].P50 = float64(20 * (i + 1))
		}
	}
	r.addRatios()
	var b bytes.Buffer
	require.NoError(t, r.markdown(&b))
	require.Contains(t, b.String(), "a to b. linux/amd64, 2 CPUs, a load of 1.50 before the run; 4 rounds of 1 s, alternating")
	require.Contains(t, b.String(), "| write | 3.00 (2.00–4.00) | 0.25 | 0.50 | 1.00, 4.00 | 5.00, 4.00 | 20.0, 40.0 |\n")
	require.NotContains(t, b.String(), "floor")
	require.NotContains(t, b.String(), "one hop")
}

// The floor and the server without a network are measured in their rows only, and compared
// round by round.
func TestMarkdownBesides(t *testing.T) {
	r := &report{PerCell: 2, Rounds: 2, suite: true, works: suite()}
	for _, label := range []string{"a", "b", labelFloor, labelOneHop} {
		r.add(target{label: label})
	}
	require.Equal(t, 2*len(suite())+4+2, len(r.Cells))
	p50 := map[string][2]float64{"a": {30, 60}, "b": {20, 80}, labelFloor: {10, 40}, labelOneHop: {1, 1}}
	ops := map[string]int{"a": 300, "b": 100, labelFloor: 900, labelOneHop: 200}
	for _, c := range r.Cells {
		for n := range 2 {
			c.add(make([]time.Duration, ops[c.Target]), time.Second)
			c.Rounds[n].P50, c.Rounds[n].CPU = p50[c.Target][n], float64(ops[c.Target])
		}
	}
	r.addRatios()
	var b bytes.Buffer
	require.NoError(t, r.markdown(&b))
	for _, row := range []string{"write qd1", "read qd1", "write+flush qd1", "fua qd1"} {
		require.Contains(t, b.String(), "| "+row+" | 25.0 (10.0–40.0) | 2.25 (1.50–3.00) | 2.00 (2.00–2.00) |\n")
	}
	for _, row := range []string{"read qd32", "read qd32 single"} {
		require.Contains(t, b.String(), "| "+row+" | 1.50 (1.50–1.50) | 1.50 |\n")
	}
	require.Equal(t, 1, strings.Count(b.String(), "a ÷ floor"))
	require.Equal(t, 1, strings.Count(b.String(), "a to one hop"))
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
	require.Zero(t, median(nil))
}
