package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/pmnbd-bench/internal/chart"
)

// chartsHelp is for scripts/bench-growth: the help of pmnbd-bench does not list the command.
const chartsHelp = `Draws the charts of docs/growth.md from the figures of scripts/bench-growth.

Usage:
  pmnbd-bench charts FILE DIR
`

// growth is what scripts/bench-growth measured.
type growth struct {
	On      string        `json:"on"`   // the machine
	Load    float64       `json:"load"` // before the run
	Rounds  int           `json:"rounds"`
	Seconds float64       `json:"seconds"` // for each point and operation in a round
	Points  []growthPoint `json:"points"`
}

// A growthPoint is one visit to a point. What does not belong to its operation is 0.
type growthPoint struct {
	Axis string  `json:"axis"`
	X    float64 `json:"x"` // in the axis's unit
	Op   string  `json:"op"`

	Rate float64 `json:"rate"` // operations per second
	P50  float64 `json:"p50"`  // µs
	CPU  float64 `json:"cpu"`  // of both ends, µs per operation

	Seconds float64 `json:"seconds"` // of a command, or a start
}

// An axisChart is the picture of one axis: panels beside each other.
type axisChart struct {
	axis, title, label string
	name               func(float64) string // writes a value of the axis
	panels             []panel
}

// A panel shows one figure of some operations.
type panel struct {
	label string
	name  func(float64) string
	value func(growthPoint) float64
	ops   []string
}

func cpu(p growthPoint) float64  { return p.CPU }
func rate(p growthPoint) float64 { return p.Rate }
func took(p growthPoint) float64 { return 1e6 * p.Seconds } // µs

// cpuPanel and ratePanel are of the operations of pmnbd-bench.
func cpuPanel() panel {
	return panel{"CPU of both ends for an operation", chart.Duration, cpu, []string{"write", "read", "write+flush"}}
}

func ratePanel() panel {
	return panel{"operations per second", chart.Count, rate, []string{"write", "read", "write+flush"}}
}

func axisCharts() []axisChart {
	count := chart.Count
	return []axisChart{
		{"connections", "Connections", "connections, each with 4 operations under way", count, []panel{cpuPanel(), ratePanel()}},
		{"lanes", "Lanes", "lanes, for 16 connections with 4 operations each", count, []panel{cpuPanel(), ratePanel()}},
		{"window", "Window", "size of the window", mebibytes, []panel{
			cpuPanel(), {"time until a new pmnbd serves", chart.Duration, took, []string{"adopt"}},
		}},
		{"ranges", "Ranges in a barrier", "writes of separate blocks before a FLUSH", count, []panel{
			{"CPU for a write and its share of a FLUSH", chart.Duration, cpu, []string{"flush"}},
			{"latency of the FLUSH", chart.Duration, func(p growthPoint) float64 { return p.P50 }, []string{"flush"}},
		}},
		{"size", "Size of a request", "bytes of a request, 4 of them under way", bytesName, []panel{
			cpuPanel(),
			{"bytes per second", func(v float64) string { return chart.Count(v) + "B" }, func(p growthPoint) float64 { return p.Rate * p.X }, []string{"write", "read", "write+flush"}},
		}},
		{"region", "Size of a region of class file", "size of the region, sparse", gibibytes, []panel{
			cpuPanel(), {"time of a command, or until ready", chart.Duration, took, []string{"create", "inspect", "serve", "attach", "remove"}},
		}},
	}
}

// bytesName writes a number of bytes: "512", "4K", "2M".
func bytesName(v float64) string {
	units := []string{"", "K", "M", "G", "T"}
	n := 0
	for ; v >= 1024 && n < len(units)-1; n++ {
		v /= 1024
	}
	return fmt.Sprintf("%g%s", v, units[n])
}

func mebibytes(v float64) string { return bytesName(v * (1 << 20)) }
func gibibytes(v float64) string { return bytesName(v * (1 << 30)) }

func benchCharts(call *command.Call) error {
	if err := call.Parse("FILE", "DIR"); err != nil {
		return err
	}
	path, dir := call.Flags.Arg(0), call.Flags.Arg(1)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var g growth
	if err := json.Unmarshal(data, &g); err != nil {
		return fmt.Errorf("%s has no figures of scripts/bench-growth: %w", path, err)
	}
	drawn := false
	for _, a := range axisCharts() {
		picture, err := g.picture(a)
		if err != nil {
			return fmt.Errorf("chart of %s: %w", a.axis, err)
		}
		if picture == nil {
			continue // it was not measured
		}
		if err := os.WriteFile(filepath.Join(dir, "growth-"+a.axis+".svg"), picture, 0o666); err != nil {
			return err
		}
		drawn = true
	}
	if !drawn {
		return fmt.Errorf("%s has no figures of scripts/bench-growth", path)
	}
	return nil
}

// The size of a panel, and the height of the title above, in CSS pixels.
const panelWidth, panelHeight, titleHeight = 450, 290, 26

// picture draws a chart as an SVG file. It is nil if the axis was not measured.
func (g *growth) picture(a axisChart) ([]byte, error) {
	var panels []string
	for i, p := range a.panels {
		c := chart.Chart{Title: a.title + ": " + p.label, Width: panelWidth, Height: panelHeight, Marks: true}
		if c.Series = g.series(a.axis, p); len(c.Series) == 0 {
			return nil, nil
		}
		c.X, c.Y = g.xAxis(a), yAxis(p, c.Series)
		svg, err := c.Picture()
		if err != nil {
			return nil, err
		}
		at := fmt.Sprintf(`<svg x="%d" y="%d" `, i*panelWidth, titleHeight)
		panels = append(panels, strings.Replace(string(svg), "<svg ", at, 1))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n",
		len(panels)*panelWidth, titleHeight+panelHeight+20, html.EscapeString("How cost grows: "+a.title))
	fmt.Fprintf(&b, `<text x="10" y="18" font-size="15" font-weight="bold" style="fill: var(--ink)">%s</text>`+"\n", html.EscapeString(a.title))
	for _, p := range panels {
		b.WriteString(p)
	}
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

// series returns a line for each operation: the median of the rounds at each point, with whiskers
// from the least to the most.
func (g *growth) series(axis string, p panel) (all []chart.Series) {
	for _, op := range p.ops {
		at := make(map[float64][]float64)
		for _, q := range g.Points {
			if v := p.value(q); q.Axis == axis && q.Op == op && v > 0 {
				at[q.X] = append(at[q.X], v)
			}
		}
		s := chart.Series{Name: op}
		for x, v := range at {
			s.Points = append(s.Points, chart.Point{X: x, Y: median(v), Low: slices.Min(v), High: slices.Max(v)})
		}
		slices.SortFunc(s.Points, func(a, b chart.Point) int { return int(math.Copysign(1, a.X-b.X)) })
		if len(s.Points) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// xAxis has a tick at each point that was measured.
func (g *growth) xAxis(a axisChart) chart.Axis {
	axis := chart.Axis{Label: a.label, Log: true, Min: math.Inf(1)}
	for _, p := range g.Points {
		if p.Axis != a.axis {
			continue
		}
		axis.Min, axis.Max = min(axis.Min, p.X), max(axis.Max, p.X)
		if !slices.ContainsFunc(axis.Ticks, func(t chart.Tick) bool { return t.At == p.X }) {
			axis.Ticks = append(axis.Ticks, chart.Tick{At: p.X, Label: a.name(p.X)})
		}
	}
	// Marks at the ends need room.
	room := math.Pow(axis.Max/axis.Min, 0.04)
	axis.Min, axis.Max = axis.Min/room, axis.Max*room
	return axis
}

// yAxis holds all whiskers, and at least a decade, so that a line that hardly rises looks flat.
func yAxis(p panel, all []chart.Series) chart.Axis {
	least, most := math.Inf(1), 0.0
	for _, s := range all {
		for _, q := range s.Points {
			least, most = min(least, q.Low), max(most, q.High)
		}
	}
	if middle := math.Sqrt(least * most); most < 10*least {
		least, most = middle/math.Sqrt(10), middle*math.Sqrt(10)
	}
	return chart.LogAxis(p.label, least, most, p.name)
}
