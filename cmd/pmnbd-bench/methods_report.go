package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"pmnbd/cmd/internal/flags"
	"pmnbd/persist"
)

// A way is a method on a target.
type way struct {
	Target      string `json:"target"`
	URI         string `json:"uri"`
	Method      string `json:"method"`
	Description string `json:"description,omitempty"`
	// Refused is why the method cannot be measured there.
	Refused string `json:"refused,omitempty"`

	at     flags.Endpoint
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

// A methodReport is everything that one run of methods found.
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
			w := way{Target: t.label, URI: t.String(), Method: m.String(), at: t.Endpoint, method: m}
			for _, s := range shapes() {
				w.cells = append(w.cells, &methodCell{Target: t.label, Method: w.Method, shape: s})
			}
			r.Ways = append(r.Ways, w)
		}
	}
	return r
}

// finish works out the figures over all rounds. A way that was refused has no cells.
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

// medians are those of the rounds, in µs.
func (c *methodCell) medians() (m []float64) {
	for _, r := range c.Rounds {
		m = append(m, r.P50)
	}
	return m
}

// markdown prints, for each target, the first method in µs and the others as ratios of
// it, round by round: the rounds alternate, so that those of one number shared the
// host's mood.
func (r *methodReport) markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d CPUs; %d rounds of %g s, alternating; median (least–most) of the rounds' medians. %s in µs, the others as ratios of it: less is faster.\n\n",
		r.OS, r.CPUs, r.Rounds, r.PerCell/float64(r.Rounds), measuredMethods[0])
	b.WriteString("| bytes × writes |")
	for _, w := range r.Ways {
		fmt.Fprintf(&b, " %s %s |", w.Target, w.Method)
	}
	b.WriteString("\n|-|" + strings.Repeat("-:|", len(r.Ways)) + "\n")
	for n, s := range shapes() {
		fmt.Fprintf(&b, "| %d × %d |", s.Bytes, s.Writes)
		for i, w := range r.Ways {
			first := r.Ways[i-i%len(measuredMethods)]
			switch {
			case w.Refused != "":
				b.WriteString(" – |")
			case w.method == first.method || first.Refused != "":
				fmt.Fprintf(&b, " %s |", spread(w.cells[n].medians()))
			default:
				fmt.Fprintf(&b, " %s |", spread(ratios(w.cells[n].medians(), first.cells[n].medians())))
			}
		}
		b.WriteByte('\n')
	}
	var notes []string
	for _, w := range r.Ways {
		if w.Refused != "" {
			notes = append(notes, fmt.Sprintf("* %s %s: %s\n", w.Target, w.Method, w.Refused))
		}
	}
	if slices.Sort(notes); len(notes) > 0 {
		b.WriteString("\n" + strings.Join(notes, ""))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func ratios(a, b []float64) (q []float64) {
	for i := range a {
		q = append(q, a[i]/b[i])
	}
	return q
}
