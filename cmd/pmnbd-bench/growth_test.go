package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCharts(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "growth.json")
	require.NoError(t, os.WriteFile(data, []byte(`{"on": "a machine", "rounds": 2, "points": [
		{"axis": "ranges", "x": 100, "op": "flush", "rate": 10, "p50": 900, "cpu": 8},
		{"axis": "ranges", "x": 1, "op": "flush", "rate": 10, "p50": 40, "cpu": 60},
		{"axis": "ranges", "x": 1, "op": "flush", "rate": 10, "p50": 60, "cpu": 70},
		{"axis": "ranges", "x": 1, "op": "flush", "rate": 0, "p50": 0, "cpu": null}
	]}`), 0o600))
	code, _, stderr := runs(t, "charts", data, dir)
	require.Zero(t, code, stderr)
	drawn, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "growth-ranges.svg")}, drawn, "only what was measured")
	svg, err := os.ReadFile(drawn[0])
	require.NoError(t, err)
	require.Contains(t, string(svg), ">Ranges in a barrier<")
	require.Contains(t, string(svg), ">latency of the FLUSH<")

	code, _, stderr = runs(t, "charts", filepath.Join(dir, "none"), dir)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "none")
}

// The median of the rounds, with the least and the most; a visit in which nothing ended counts
// nothing.
func TestGrowthSeries(t *testing.T) {
	g := growth{}
	for _, v := range []float64{30, 10, 0, 20} {
		g.Points = append(g.Points, growthPoint{Axis: "lanes", X: 2, Op: "read", CPU: v}, growthPoint{Axis: "window", X: 2, Op: "read", CPU: 1})
	}
	g.Points = append(g.Points, growthPoint{Axis: "lanes", X: 1, Op: "read", CPU: 7})
	all := g.series("lanes", cpuPanel())
	require.Len(t, all, 1)
	require.Equal(t, "read", all[0].Name)
	require.Len(t, all[0].Points, 2)
	require.EqualValues(t, 1, all[0].Points[0].X)
	p := all[0].Points[1]
	require.Equal(t, [4]float64{2, 20, 10, 30}, [4]float64{p.X, p.Y, p.Low, p.High})
}

func TestBytesName(t *testing.T) {
	for v, want := range map[float64]string{512: "512", 4096: "4K", 32 << 20: "32M", 1 << 40: "1T"} {
		require.Equal(t, want, bytesName(v))
	}
	require.Equal(t, "256M", mebibytes(256))
	require.Equal(t, "1T", gibibytes(1024))
}
