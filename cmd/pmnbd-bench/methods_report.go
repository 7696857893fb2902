package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"

	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/endpoint"
	"pmnbd/persist"
)

// A way is a method on a target.
type way struct {
	Target      string `json:"target"`
	URI         string `json:"uri"`
	Method      string `json:"method"`
	Description string `json:"description,omitempty"`
	// Refused says why the method cannot be measured there.
	Refused string `json:"refused,omitempty"`

	at     endpoint.Endpoint
	name   string // of the target, for its key
	method persist.Method
	cells  []*methodCell // a shape each, in the order of shapes
}

// A methodCell is one way with one shape of barriers.
type methodCell struct {
	Target string `json:"target"`
	Method string `json:"method"`
	shape
	// P50 is the median of the rounds' medians.
	P50    float64 `json:"p50_us"`
	Rounds []round `json:"rounds"`
}

// A methodReport is everything that one run of methods measured.
type methodReport struct {
	PerCell float64       `json:"seconds_per_cell"`
	Rounds  int           `json:"rounds"`
	OS      string        `json:"os"`
	CPUs    int           `json:"cpus"`
	Ways    []way         `json:"ways"`
	Cells   []*methodCell `json:"cells"`
}

func newMethodReport(o methodOptions) *methodReport {
	r := &methodReport{PerCell: o.perCell.Seconds(), Rounds: o.rounds, OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU()}
	for _, t := range o.targets {
		for _, m := range measuredMethods {
			w := way{Target: t.label, URI: t.String(), Method: m.String(), at: t.Endpoint, name: t.name, method: m}
			for _, s := range shapes() {
				w.cells = append(w.cells, &methodCell{Target: t.label, Method: w.Method, shape: s})
			}
			r.Ways = append(r.Ways, w)
		}
	}
	return r
}

// finish computes the figures over all rounds, of the ways that were not refused.
func (r *methodReport) finish() {
	for i := range r.Ways {
		w := &r.Ways[i]
		if w.Refused != "" {
			continue
		}
		for _, c := range w.cells {
			c.P50 = median(c.medians())
			r.Cells = append(r.Cells, c)
		}
	}
}

// medians returns the medians of the rounds, in µs.
func (c *methodCell) medians() (m []float64) {
	for _, r := range c.Rounds {
		m = append(m, r.P50)
	}
	return m
}

// markdown prints two tables. The first has µs for the first method, and for the others the
// ratios to it, round by round: the rounds alternate, so those of one number met the same state
// of the host. The second table is for hosts that do other work, too.
func (r *methodReport) markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s; %s of %g s, alternating; median (least–most) of the rounds' medians. %v in µs, the others as ratios of it: less is faster.\n\n",
		r.OS, flags.Count(r.CPUs, "CPU"), flags.Count(r.Rounds, "round"), r.PerCell/float64(r.Rounds), measuredMethods[0])
	r.rows(&b, func(first, w *way, n int) string {
		if w == first {
			return spreadOf(w.cells[n].medians()).String()
		}
		return ratios(w.cells[n].medians(), first.cells[n].medians()).String()
	})
	b.WriteString("\nWhen least disturbed: the least of the rounds' 10th percentiles, µs.\n\n")
	r.rows(&b, func(_, w *way, n int) string { return number(w.cells[n].least()) })
	b.WriteByte('\n')
	for _, w := range r.Ways {
		if w.Refused != "" {
			fmt.Fprintf(&b, "* %s %s: %s\n", w.Target, w.Method, w.Refused)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// rows prints a row for each shape. value returns the text of way w in row n; first is the
// first way of the same target.
func (r *methodReport) rows(b *strings.Builder, value func(first, w *way, n int) string) {
	b.WriteString("| bytes × writes |")
	columns := 0
	for _, w := range r.Ways {
		if w.Refused == "" {
			fmt.Fprintf(b, " %s %s |", w.Target, w.Method)
			columns++
		}
	}
	b.WriteString("\n|-|" + strings.Repeat("-:|", columns) + "\n")
	for n, s := range shapes() {
		fmt.Fprintf(b, "| %d × %d |", s.Bytes, s.Writes)
		for i := range r.Ways {
			if w := &r.Ways[i]; w.Refused == "" {
				fmt.Fprintf(b, " %s |", value(&r.Ways[i-i%len(measuredMethods)], w, n))
			}
		}
		b.WriteByte('\n')
	}
}

// least returns the least of the rounds' 10th percentiles, in µs.
func (c *methodCell) least() float64 {
	v := math.Inf(1)
	for _, r := range c.Rounds {
		v = min(v, r.P10)
	}
	return v
}
