package compare

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/pmnbd-bench/internal/chart"
)

// Text returns the report for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	for _, l := range r.Headline {
		b.WriteString(l + "\n")
	}
	fmt.Fprintf(&b, "\nA closed loop: each writer waits for its fsync before it writes again. %g s for each row in %s, alternating, on the first %s. fsyncs/s has the least and the most of the rounds.\n\n",
		r.PerCell, flags.Count(r.Rounds, "round"), flags.Size(r.Area).Rounded())
	rows := [][]string{{"", "p50", "p90", "p99", "p99.9", "max", "fsyncs/s", ""}}
	for _, p := range r.Patterns {
		rows = append(rows, []string{p.Title})
		for _, s := range r.Subjects {
			rows = append(rows, append([]string{"  " + s.Label}, r.cell(s.Label, p.Name).texts()...))
		}
	}
	writeColumns(&b, rows)
	b.WriteString("\nA percentile is missing if fewer than five latencies are above it.\n\n")
	for _, s := range r.Subjects {
		fmt.Fprintf(&b, "%s: %s.\n", s.Label, s.What())
	}
	if len(r.Warnings) > 0 {
		b.WriteByte('\n')
	}
	for _, w := range r.Warnings {
		b.WriteString("warning: " + w.Text + "\n")
	}
	return b.String()
}

// texts returns the figures of a cell, for a row of a table.
func (c *Cell) texts() []string {
	if c.Commits == 0 {
		return []string{"–", "–", "–", "–", "–", "–", ""}
	}
	least, most := c.rates()
	return []string{
		chart.Duration(c.P50), chart.Duration(c.P90), orDash(c.P99), orDash(c.P999), chart.Duration(c.Max),
		chart.Count(c.Rate), fmt.Sprintf("%s–%s", chart.Count(least), chart.Count(most)),
	}
}

func orDash(us *float64) string {
	if us == nil {
		return "–"
	}
	return chart.Duration(*us)
}

// writeColumns aligns rows: the first column left, the others right. A row of one cell is a heading.
func writeColumns(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			if len(row) > 1 {
				widths[i] = max(widths[i], utf8.RuneCountInString(text))
			}
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, text := range row {
			pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text)))
			if i == 0 {
				line.WriteString(text + pad)
			} else {
				line.WriteString("  " + pad + text)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// What says in a line what a subject is.
func (s *Subject) What() string {
	text := s.Kind
	for _, f := range s.Facts()[1:] { // but for the operand, which the reader has typed
		text += "; " + strings.ToLower(f[0]) + " " + f[1]
	}
	return text
}

// Facts returns what is known of a subject: the operand first.
func (s *Subject) Facts() [][2]string {
	facts := [][2]string{{"Operand", s.Given}}
	add := func(name, text string) {
		if text != "" {
			facts = append(facts, [2]string{name, text})
		}
	}
	if s.Form != FormDirectory {
		add("Size", flags.Size(s.Size).Rounded())
	}
	add("Server", s.Says)
	if st := s.Storage; st != nil {
		maker := strings.TrimSpace(st.Vendor + " " + st.Model)
		if maker != "" {
			maker = " (" + maker + ")"
		}
		if st.Device != "" {
			add("Disk", st.Device+maker)
		}
		add("Filesystem", st.Filesystem)
		add("Write cache", st.WriteCache)
		add("Because", st.Why)
	}
	return facts
}
