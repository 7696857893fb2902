package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A ratio sets the first target against the second under one workload, round by round. The
// rounds alternate, so those of one number met the same state of the host.
type ratio struct {
	Workload string `json:"workload"`
	// Ratio is the median of the rounds' ratios of operations per second. A round counts
	// only if operations of both targets ended in it; without such a round Ratio is 0.
	Ratio float64 `json:"ratio"`
	Least float64 `json:"ratio_least"`
	Most  float64 `json:"ratio_most"`
	// CPU is the ratio of the medians of CPU time per operation; 0 if unknown. Front is that of
	// the first processes alone.
	CPU   float64 `json:"cpu_ratio"`
	Front float64 `json:"front_cpu_ratio"`

	rates    [2][]float64 // thousand operations per second
	cpu      [2]float64   // median, µs per operation
	switches [2]float64   // median, per operation
}

func (r *report) ratio(w workload) ratio {
	c := ratio{Workload: w.name}
	var fronts [2]float64
	for i, t := range r.labels {
		var cpu, front, switches []float64
		for _, round := range r.cell(t, w.name).Rounds {
			c.rates[i] = append(c.rates[i], round.rate()/1000)
			cpu = append(cpu, round.CPU)
			front = append(front, round.Front)
			switches = append(switches, round.Switches)
		}
		c.cpu[i], fronts[i], c.switches[i] = median(cpu), median(front), median(switches)
	}
	var ratios []float64
	for n := range c.rates[0] {
		if c.rates[0][n] > 0 && c.rates[1][n] > 0 {
			ratios = append(ratios, c.rates[0][n]/c.rates[1][n])
		}
	}
	if len(ratios) > 0 {
		c.Ratio, c.Least, c.Most = median(ratios), slices.Min(ratios), slices.Max(ratios)
	}
	if c.cpu[1] > 0 {
		c.CPU = c.cpu[0] / c.cpu[1]
	}
	if fronts[1] > 0 {
		c.Front = fronts[0] / fronts[1]
	}
	return c
}

// addRatios adds the ratios of two targets under every workload.
func (r *report) addRatios() {
	for _, w := range r.works {
		r.Ratios = append(r.Ratios, r.ratio(w))
	}
}

// markdown prints the first target against the second, a row per workload.
func (r *report) markdown(w io.Writer) error {
	t := r.labels
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d CPUs; %d rounds of %.2g s, alternating; median (least–most). Thousand operations per second; CPU of all server processes in µs per operation; front is the ratio of the first one of each; switches are context switches per operation.\n\n",
		r.OS, r.CPUs, r.Rounds, r.PerCell/float64(r.Rounds))
	fmt.Fprintf(&b, "| | %s | %s | ratio | CPU %s | CPU %s | CPU ratio | front | switches %s | switches %s |\n|-|-:|-:|-:|-:|-:|-:|-:|-:|-:|\n",
		t[0], t[1], t[0], t[1], t[0], t[1])
	for _, c := range r.Ratios {
		fmt.Fprintf(&b, "| %s | %s | %s | **%s** (%s–%s) | %s | %s | %s | %s | %s | %s |\n", c.Workload, spread(c.rates[0]), spread(c.rates[1]),
			number(c.Ratio), number(c.Least), number(c.Most), number(c.cpu[0]), number(c.cpu[1]), known(c.CPU), known(c.Front),
			number(c.switches[0]), number(c.switches[1]))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// known prints a ratio, or a dash for 0.
func known(ratio float64) string {
	if ratio == 0 {
		return "–"
	}
	return number(ratio)
}

func spread(v []float64) string {
	return fmt.Sprintf("%s (%s–%s)", number(median(v)), number(slices.Min(v)), number(slices.Max(v)))
}

// median is the middle of v, or the mean of the two in the middle. It is 0 if v is empty.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
