package compare

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"strconv"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/pmnbd-bench/internal/chart"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// A figure is a chart on the page.
type figure struct {
	Title, Note string
	SVG         template.HTML
}

// A row is a line of the table of all figures.
type row struct {
	Index int // of the subject
	Label string
	Texts []string
}

// A chapter is one pattern on the page.
type chapter struct {
	Title, Text string
	Rows        []row
	Figures     []figure
}

// A view is what the template shows.
type view struct {
	*Report
	CSS      template.CSS
	Legend   []legendEntry
	Overview []figure
	Chapters []chapter
	Facts    [][2]string
}

type legendEntry struct {
	Label  string
	Sample template.HTML
	Kind   string
}

// chartWidth and chartHeight are those of a chart, in CSS pixels. Two fit beside each other on a
// laptop, and one fits a telephone.
const chartWidth, chartHeight = 420, 270

// HTML returns the report as a page that needs nothing else: no script, no file, no network.
func (r *Report) HTML() ([]byte, error) {
	v := view{Report: r, CSS: chart.CSS(), Facts: r.facts()}
	for i, s := range r.Subjects {
		sample, err := chart.Sample(i)
		if err != nil {
			return nil, err
		}
		v.Legend = append(v.Legend, legendEntry{s.Label, sample, s.Kind})
	}
	for _, f := range []func() (chart.Chart, string){r.rateChart, r.latencyChart} {
		c, note := f()
		svg, err := c.SVG()
		if err != nil {
			return nil, err
		}
		v.Overview = append(v.Overview, figure{c.Title, note, svg})
	}
	for _, p := range r.Patterns {
		ch, err := r.chapter(p)
		if err != nil {
			return nil, err
		}
		v.Chapters = append(v.Chapters, ch)
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (r *Report) chapter(p Pattern) (chapter, error) {
	ch := chapter{Title: p.Title, Text: p.Text}
	for i, s := range r.Subjects {
		ch.Rows = append(ch.Rows, row{i, s.Label, r.cell(s.Label, p.Name).texts()})
	}
	for _, f := range []struct {
		note string
		make func(Pattern) chart.Chart
	}{
		{"of the operations took at most so long", r.distribution},
		{"to the right the slowest: each step is a tenth of the one before it", r.percentiles},
	} {
		c := f.make(p)
		svg, err := c.SVG()
		if err != nil {
			return ch, err
		}
		ch.Figures = append(ch.Figures, figure{c.Title, f.note, svg})
	}
	return ch, nil
}

// bounds returns the least and the most of what value returns for all cells that were measured.
func (r *Report) bounds(value func(*Cell) (least, most float64), in func(*Cell) bool) (float64, float64) {
	lo, hi := math.Inf(1), 0.0
	for _, c := range r.Cells {
		if c.Commits > 0 && in(c) {
			least, most := value(c)
			lo, hi = min(lo, least), max(hi, most)
		}
	}
	if hi == 0 {
		return 1, 10
	}
	return max(lo, 1e-3), max(hi, 1e-3)
}

func all(*Cell) bool { return true }

// overWriters returns the patterns that differ in the number of writers alone.
func (r *Report) overWriters() (ps []Pattern) {
	for _, p := range r.Patterns {
		if n, ok := cutRandom(p.Name); ok && n == p.Writers {
			ps = append(ps, p)
		}
	}
	return ps
}

func cutRandom(name string) (int, bool) {
	if len(name) <= len(random) || name[:len(random)] != random {
		return 0, false
	}
	n, err := strconv.Atoi(name[len(random):])
	return n, err == nil
}

// writersChart is a chart over the number of writers.
func (r *Report) writersChart(title string, y chart.Axis, point func(*Cell) chart.Point) chart.Chart {
	c := chart.Chart{Title: title, Width: chartWidth, Height: chartHeight, Marks: true, Y: y}
	c.X = chart.Axis{Label: "writers, each waits for its own fsync", Log: true}
	ps := r.overWriters()
	for i, p := range ps {
		at := float64(p.Writers)
		c.X.Ticks = append(c.X.Ticks, chart.Tick{At: at, Label: strconv.Itoa(p.Writers)})
		if i == 0 {
			c.X.Min = at / 1.5
		}
		c.X.Max = at * 1.5
	}
	for i, s := range r.Subjects {
		// Beside each other, so that no whisker hides another.
		aside := math.Pow(1.08, float64(i)-float64(len(r.Subjects)-1)/2)
		series := chart.Series{Name: s.Label}
		for _, p := range ps {
			if cell := r.cell(s.Label, p.Name); cell.Commits > 0 {
				q := point(cell)
				q.X = float64(p.Writers) * aside
				series.Points = append(series.Points, q)
			}
		}
		c.Series = append(c.Series, series)
	}
	return c
}

func isRandom(c *Cell) bool {
	_, ok := cutRandom(c.Pattern)
	return ok
}

func (r *Report) rateChart() (chart.Chart, string) {
	least, most := r.bounds((*Cell).rates, isRandom)
	return r.writersChart("Throughput over writers", chart.LogAxis("fsyncs per second, all writers", least, most, chart.Count), func(c *Cell) chart.Point {
		p := chart.Point{Y: c.Rate}
		p.Low, p.High = c.rates()
		return p
	}), "random 4 KiB + fsync; whiskers: the slowest and the fastest round; higher is better"
}

func (r *Report) latencyChart() (chart.Chart, string) {
	high := func(c *Cell) float64 {
		if c.P99 != nil {
			return *c.P99
		}
		return c.P90
	}
	least, most := r.bounds(func(c *Cell) (float64, float64) { return c.P50, high(c) }, isRandom)
	return r.writersChart("Latency over writers", chart.LogAxis("latency of a write + fsync", least, most, chart.Duration), func(c *Cell) chart.Point {
		return chart.Point{Y: c.P50, Low: c.P50, High: high(c)}
	}), "random 4 KiB + fsync; mark: median; whisker: up to the 99th percentile; lower is better"
}

// usual is the share of the operations that the distributions show, in percent: single outliers
// would press everything else to the left.
const usual = 99.9

// distribution shows which share of the operations took at most how long. All patterns have the same
// axis, so that a reader can compare them.
func (r *Report) distribution(p Pattern) chart.Chart {
	least, most := r.bounds(func(c *Cell) (float64, float64) { return quantile(c.latencies, 0), quantile(c.latencies, usual) }, all)
	c := chart.Chart{
		Title: "Distribution", Width: chartWidth, Height: chartHeight,
		X: chart.LogAxis("latency", least, most, chart.Duration),
		Y: chart.Axis{Label: "share of the operations", Max: 100},
	}
	for at := 0.0; at <= 100; at += 25 {
		c.Y.Ticks = append(c.Y.Ticks, chart.Tick{At: at, Label: fmt.Sprintf("%.0f %%", at)})
	}
	for _, s := range r.Subjects {
		series := chart.Series{Name: s.Label}
		if cell := r.cell(s.Label, p.Name); cell.Commits > 0 {
			for q := 0.0; q < usual; q += .5 {
				series.Points = append(series.Points, chart.Point{X: quantile(cell.latencies, q), Y: q})
			}
			series.Points = append(series.Points, chart.Point{X: quantile(cell.latencies, usual), Y: usual})
		}
		c.Series = append(c.Series, series)
	}
	return c
}

// percentiles shows the tail. A line ends where a single operation is left.
func (r *Report) percentiles(p Pattern) chart.Chart {
	least, most := r.bounds(func(c *Cell) (float64, float64) { return quantile(c.latencies, 0), c.Max }, all)
	c := chart.Chart{Title: "Percentiles", Width: chartWidth, Height: chartHeight, Y: chart.LogAxis("latency", least, most, chart.Duration)}
	end := 1.0
	for _, s := range r.Subjects {
		series := chart.Series{Name: s.Label}
		if cell := r.cell(s.Label, p.Name); cell.Commits > 0 {
			last := math.Log10(float64(cell.Commits))
			for nines := 0.0; nines <= last; nines += .05 {
				series.Points = append(series.Points, chart.Point{X: nines, Y: quantile(cell.latencies, 100*(1-math.Pow(10, -nines)))})
			}
			series.Points = append(series.Points, chart.Point{X: last, Y: cell.Max})
			end = max(end, last)
		}
		c.Series = append(c.Series, series)
	}
	c.X = chart.PercentAxis("percentile", end)
	return c
}

// facts are the conditions of the run.
func (r *Report) facts() [][2]string {
	h := r.Host
	machine := fmt.Sprintf("%s, %s, Linux %s, %s", h.CPU, flags.Count(h.CPUs, "CPU"), h.Kernel, h.OS)
	if h.Virtual {
		machine += ", a virtual machine"
	}
	busy := fmt.Sprintf("load average %.1f", h.Load)
	if h.Busy >= 0 {
		busy += fmt.Sprintf(", %.0f %% of the CPUs in use", 100*h.Busy)
	}
	all := [][2]string{
		{"Machine", machine},
		{"Before the run", busy},
		{"During the run", fmt.Sprintf("%.1f %% of the CPUs taken by the hypervisor", 100*h.Stolen)},
		{"Time", fmt.Sprintf("%g s for each pattern on each subject, in %s, alternating", r.PerCell, flags.Count(r.Rounds, "round"))},
		{"Area", "the first " + flags.Size(r.Area).Rounded() + " of each subject, filled with random bytes before"},
		{"Program", "pmnbd-bench compare " + r.Version},
	}
	return all
}
