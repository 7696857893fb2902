package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"pmnbd/cmd/internal/flags"
)

// A round is one visit to a cell.
type round struct {
	Seconds float64 `json:"seconds"`
	Ops     int     `json:"ops"`
	P10     float64 `json:"p10_us"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
	Max     float64 `json:"max_us"`
	// CPU is the time that the processes of --pids used for each operation, in µs.
	CPU float64 `json:"cpu_us_per_op,omitempty"`
	// Front is the part of CPU that the first of them used.
	Front float64 `json:"front_cpu_us_per_op,omitempty"`
	// Switches is how often the kernel switched to another thread, for each operation.
	Switches float64 `json:"context_switches_per_op,omitempty"`
}

// newRound sums up the samples of a round, which lasted for d. It sorts them.
func newRound(samples []time.Duration, d time.Duration) round {
	slices.Sort(samples)
	r := round{Seconds: d.Seconds(), Ops: len(samples), P10: percentile(samples, 10), P50: percentile(samples, 50), P99: percentile(samples, 99)}
	if len(samples) > 0 {
		r.Max = micros(samples[len(samples)-1])
	}
	return r
}

func (r round) rate() float64 { return float64(r.Ops) / r.Seconds }

// A cell is one target under one workload.
type cell struct {
	Target      string `json:"target"`
	Workload    string `json:"workload"`
	Block       int    `json:"block_bytes"`
	Depth       int    `json:"depth"`
	Connections int    `json:"connections"`
	// P50 and P99 are over the operations of all rounds; Rate is their number over
	// the time of all rounds, closing flushes included.
	P50    float64 `json:"p50_us"`
	P99    float64 `json:"p99_us"`
	Rate   float64 `json:"ops_per_second"`
	Rounds []round `json:"rounds"`

	samples []time.Duration
	seconds float64
}

// add adds the samples of one more round, which lasted for d.
func (c *cell) add(samples []time.Duration, d time.Duration) {
	c.samples = append(c.samples, samples...)
	c.seconds += d.Seconds()
	c.Rounds = append(c.Rounds, newRound(samples, d))
}

// finish computes the figures over all rounds.
func (c *cell) finish() {
	slices.Sort(c.samples)
	c.P50 = percentile(c.samples, 50)
	c.P99 = percentile(c.samples, 99)
	c.Rate = float64(len(c.samples)) / c.seconds
}

// percentile returns the smallest sample that p percent of sorted do not exceed,
// in microseconds; 0 of none.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return micros(sorted[max(rank, 1)-1])
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// A report is everything that one run measured.
type report struct {
	PerCell float64 `json:"seconds_per_cell"`
	Rounds  int     `json:"rounds"`
	OS      string  `json:"os"`
	CPUs    int     `json:"cpus"`
	// Load is how many threads wanted to run in the minute before, on average.
	Load  float64 `json:"load"`
	Cells []*cell `json:"cells"`
	// Ratios are those of a suite.
	Ratios []ratio `json:"ratios,omitempty"`

	suite  bool
	works  []workload
	labels []string // of the targets, in the order of the command line
	notes  []string // below the table
}

// add makes the cells of a target.
func (r *report) add(t target) {
	r.labels = append(r.labels, t.label)
	for _, w := range r.works {
		// A read of a disk would measure the page cache.
		if w.cmds[0] == cmdRead && t.dir != "" {
			continue
		}
		// Behind the two that a suite compares, a target is measured in some rows only.
		if r.suite && len(r.labels) > 2 && t.label != w.beside {
			continue
		}
		r.Cells = append(r.Cells, &cell{Target: t.label, Workload: w.name, Block: w.block, Depth: w.depth, Connections: w.conns})
	}
	if t.dir != "" {
		r.notes = append(r.notes, t.label+": write is pwrite into the page cache, write+flush is pwrite and fdatasync; a read would measure the page cache.")
	}
}

func (r *report) cell(target, workload string) *cell {
	for _, c := range r.Cells {
		if c.Target == target && c.Workload == workload {
			return c
		}
	}
	return nil
}

// table prints one row per target, in the order in which they were given.
func (r *report) table(w io.Writer) error {
	width := len("target")
	for _, t := range r.labels {
		width = max(width, utf8.RuneCountInString(t))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d bytes, depth %d, connections %d, %g s per cell in %s, alternating; latencies in µs\n\n",
		r.works[0].block, r.works[0].depth, r.works[0].conns, r.PerCell, flags.Count(r.Rounds, "round"))
	// A column is three numbers: "   p50     p99     ops/s".
	const column = "  %9s %9s %9s"
	heading, line := fmt.Sprintf("%-*s", width, ""), fmt.Sprintf("%-*s", width, "target")
	for _, wl := range r.works {
		heading += fmt.Sprintf("  %29s", wl.name)
		line += fmt.Sprintf(column, "p50", "p99", "ops/s")
	}
	fmt.Fprintf(&b, "%s\n%s\n", heading, line)
	for _, t := range r.labels {
		fmt.Fprintf(&b, "%-*s", width, t)
		for _, wl := range r.works {
			if c := r.cell(t, wl.name); c != nil {
				fmt.Fprintf(&b, column, number(c.P50), number(c.P99), number(c.Rate))
			} else {
				fmt.Fprintf(&b, column, "-", "-", "-")
			}
		}
		b.WriteByte('\n')
	}
	if len(r.notes) > 0 {
		b.WriteByte('\n')
	}
	for _, n := range r.notes {
		b.WriteString(n + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// number prints three significant digits of small figures and no fraction of large ones. No
// run is more accurate.
func number(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// save writes a report as JSON to the file at path, unless that is empty.
func save(report any, path string) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o666)
}
