package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
)

// compare is the figures of two targets under one workload, round by round: the
// rounds alternate, so that those of one number shared the host's mood.
type compare struct {
	rates  [2][]float64 // thousand operations per second
	cpu    [2][]float64 // µs per operation
	ratios []float64    // of the rates
}

func (r *report) compare(w workload) compare {
	var c compare
	var cells [2]*cell
	for i := range cells {
		cells[i] = r.cell(r.targets()[i], w.name)
		for _, round := range cells[i].Rounds {
			c.rates[i] = append(c.rates[i], round.rate()/1000)
			c.cpu[i] = append(c.cpu[i], round.CPU)
		}
	}
	for n := range c.rates[0] {
		c.ratios = append(c.ratios, c.rates[0][n]/c.rates[1][n])
	}
	return c
}

// targets are the labels, in the order in which they were given.
func (r *report) targets() []string {
	var ts []string
	for _, c := range r.Cells {
		if !slices.Contains(ts, c.Target) {
			ts = append(ts, c.Target)
		}
	}
	return ts
}

// markdown prints the first target against the second, a row per workload.
func (r *report) markdown(w io.Writer) error {
	t := r.targets()
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d CPUs; %d rounds of %g s, alternating; median (least–most). Thousand operations per second; CPU of all server processes in µs per operation.\n\n",
		runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), r.Rounds, r.PerCell/float64(r.Rounds))
	fmt.Fprintf(&b, "| | %s | %s | ratio | CPU %s | CPU %s | CPU ratio |\n|-|-:|-:|-:|-:|-:|-:|\n", t[0], t[1], t[0], t[1])
	for _, work := range r.works {
		c := r.compare(work)
		cpu := [2]float64{median(c.cpu[0]), median(c.cpu[1])}
		share := "–"
		if cpu[1] > 0 {
			share = number(cpu[0] / cpu[1])
		}
		fmt.Fprintf(&b, "| %s | %s | %s | **%s** (%s–%s) | %s | %s | %s |\n", work.name, spread(c.rates[0]), spread(c.rates[1]),
			number(median(c.ratios)), number(slices.Min(c.ratios)), number(slices.Max(c.ratios)), number(cpu[0]), number(cpu[1]), share)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func spread(v []float64) string {
	return fmt.Sprintf("%s (%s–%s)", number(median(v)), number(slices.Min(v)), number(slices.Max(v)))
}

// median is the middle of v, the mean of the two in the middle if there are two; 0
// of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
