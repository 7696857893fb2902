package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"pmnbd/cmd/internal/flags"
)

// A ratio sets the first target against the second under one workload, round by round. The
// rounds alternate, so those of one number met the same state of the host.
type ratio struct {
	Workload string `json:"workload"`
	// Ratio is of operations per second. A round counts only if operations of both targets
	// ended in it; without such a round Ratio is 0.
	Ratio spread `json:"ratio"`
	// CPU is the ratio of the medians of CPU time per operation; 0 if unknown. Front is that of
	// the first processes alone.
	CPU   float64 `json:"cpu_ratio"`
	Front float64 `json:"front_cpu_ratio"`
	// Floor is the median latency of each of the two to that of the floor, or nil.
	Floor []spread `json:"p50_to_floor,omitempty"`
	// OneHop is the ratio of rates of the first target to the server without a network behind
	// it, or nil. OneHopCPU is that of the CPU time per operation.
	OneHop    *spread `json:"ratio_to_one_hop,omitempty"`
	OneHopCPU float64 `json:"cpu_ratio_to_one_hop,omitempty"`

	sides [2]side
	floor side
}

// A spread is the median, the least and the most of what the rounds had.
type spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

func spreadOf(v []float64) spread {
	if len(v) == 0 {
		return spread{}
	}
	return spread{median(v), slices.Min(v), slices.Max(v)}
}

func (s spread) String() string {
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Least), number(s.Most))
}

// A side is what a target did under one workload.
type side struct {
	rates, p50           []float64 // by round, operations per second and µs
	cpu, front, switches float64   // medians, per operation, µs
}

func (r *report) side(target, workload string) (s side) {
	c := r.cell(target, workload)
	if c == nil {
		return s
	}
	var cpu, front, switches []float64
	for _, round := range c.Rounds {
		s.rates = append(s.rates, round.rate())
		s.p50 = append(s.p50, round.P50)
		cpu = append(cpu, round.CPU)
		front = append(front, round.Front)
		switches = append(switches, round.Switches)
	}
	s.cpu, s.front, s.switches = median(cpu), median(front), median(switches)
	return s
}

// ratios are those of a to b, of the rounds in which neither is 0.
func ratios(a, b []float64) spread {
	var all []float64
	for n := range min(len(a), len(b)) {
		if a[n] > 0 && b[n] > 0 {
			all = append(all, a[n]/b[n])
		}
	}
	return spreadOf(all)
}

// quotient is a to b, or 0 if b is not known.
func quotient(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r *report) ratio(w workload) ratio {
	a, b := r.side(r.labels[0], w.name), r.side(r.labels[1], w.name)
	c := ratio{
		Workload: w.name, sides: [2]side{a, b},
		Ratio: ratios(a.rates, b.rates), CPU: quotient(a.cpu, b.cpu), Front: quotient(a.front, b.front),
	}
	if c.floor = r.side(labelFloor, w.name); len(c.floor.p50) > 0 {
		c.Floor = []spread{ratios(a.p50, c.floor.p50), ratios(b.p50, c.floor.p50)}
	}
	if hop := r.side(labelOneHop, w.name); len(hop.rates) > 0 {
		all := ratios(a.rates, hop.rates)
		c.OneHop, c.OneHopCPU = &all, quotient(a.cpu, hop.cpu)
	}
	return c
}

// addRatios adds the ratios of two targets under every workload.
func (r *report) addRatios() {
	for _, w := range r.works {
		r.Ratios = append(r.Ratios, r.ratio(w))
	}
}

// markdown prints the first target against the second, a row per workload, in the form of
// docs/benchmarks.md.
func (r *report) markdown(w io.Writer) error {
	t := r.labels
	var b strings.Builder
	fmt.Fprintf(&b, "%s to %s. %s, %s, a load of %s before the run; %s of %.2g s, alternating; the median, and the least and the most of the rounds.\n\n",
		t[0], t[1], r.OS, flags.Count(r.CPUs, "CPU"), number(r.Load), flags.Count(r.Rounds, "round"), r.PerCell/float64(r.Rounds))
	b.WriteString("| row | ratio of rates | ratio of CPU | front | CPU, µs per operation | context switches | p50, µs |\n|-|-:|-:|-:|-:|-:|-:|\n")
	for _, c := range r.Ratios {
		x, y := c.sides[0], c.sides[1]
		fmt.Fprintf(&b, "| %s | %v | %s | %s | %s, %s | %s, %s | %s, %s |\n", c.Workload, c.Ratio, known(c.CPU), known(c.Front),
			known(x.cpu), known(y.cpu), known(x.switches), known(y.switches), known(median(x.p50)), known(median(y.p50)))
	}
	r.besides(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// besides prints the comparisons with what is measured in some rows only.
func (r *report) besides(b *strings.Builder) {
	heading := "\n| row | floor, p50 in µs | " + r.labels[0] + " ÷ floor | " + r.labels[1] + " ÷ floor |\n|-|-:|-:|-:|\n"
	for _, c := range r.Ratios {
		if c.Floor != nil {
			fmt.Fprintf(b, "%s| %s | %v | %v | %v |\n", heading, c.Workload, spreadOf(c.floor.p50), c.Floor[0], c.Floor[1])
			heading = ""
		}
	}
	heading = "\n| row | " + r.labels[0] + " to one hop, rate | CPU |\n|-|-:|-:|\n"
	for _, c := range r.Ratios {
		if c.OneHop != nil {
			fmt.Fprintf(b, "%s| %s | %v | %s |\n", heading, c.Workload, c.OneHop, known(c.OneHopCPU))
			heading = ""
		}
	}
}

// known prints a figure, or a dash for 0.
func known(v float64) string {
	if v == 0 {
		return "–"
	}
	return number(v)
}

// median is the middle of v, or the mean of the two in the middle. It is 0 if v is empty.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
