package compare

import (
	"fmt"
	"strings"

	"pmnbd/cmd/pmnbd-bench/internal/chart"
)

// headline says in a few sentences what came out. It says that two subjects differ only if their
// rounds do not overlap.
func (r *Report) headline() (lines []string) {
	for _, l := range []string{r.latencyLine(), r.rateLine()} {
		if l != "" {
			lines = append(lines, l)
		}
	}
	var unfair []string
	for _, w := range r.Warnings {
		if w.Unfair {
			unfair = append(unfair, w.Subject)
		}
	}
	switch {
	case len(unfair) > 0 && len(r.Subjects) > 1:
		lines = append(lines, "This is not like for like: what an fsync covers does not survive a power loss on "+and(unfair)+".")
	case len(unfair) > 0:
		lines = append(lines, "But what an fsync covers does not survive a power loss there.")
	}
	return lines
}

// and joins words.
func and(words []string) string {
	if last := len(words) - 1; last > 0 {
		return strings.Join(words[:last], ", ") + " and " + words[last]
	}
	return words[0]
}

// overlap stands for a difference that the rounds do not show.
const overlap = "no clear difference: the rounds overlap"

// latencyLine compares the medians of an append with that of the first subject.
func (r *Report) latencyLine() string {
	x := r.cell(r.Subjects[0].Label, "log")
	parts := []string{fmt.Sprintf("%s on %s", chart.Duration(x.P50), x.Subject)}
	xLeast, xMost := x.medians()
	for _, s := range r.Subjects[1:] {
		y := r.cell(s.Label, "log")
		least, most := y.medians()
		verdict := overlap
		switch {
		case least > xMost:
			verdict = times(y.P50/x.P50) + " as long"
		case xLeast > most:
			verdict = times(x.P50/y.P50) + " as fast"
		}
		parts = append(parts, fmt.Sprintf("%s on %s (%s)", chart.Duration(y.P50), y.Subject, verdict))
	}
	return "With one writer, an append of 4 KiB with an fsync takes " + and(parts) + "."
}

// compared is the pattern of many writers in the headline.
const compared = random + "16"

// rateLine compares how much many writers get done with what they do on the first subject.
func (r *Report) rateLine() string {
	x := r.cell(r.Subjects[0].Label, compared)
	parts := []string{fmt.Sprintf("%s completes %s fsyncs a second", x.Subject, chart.Count(x.Rate))}
	xLeast, xMost := x.rates()
	for _, s := range r.Subjects[1:] {
		y := r.cell(s.Label, compared)
		least, most := y.rates()
		verdict := overlap
		switch {
		case least > xMost:
			verdict = times(y.Rate/x.Rate) + " as many"
		case xLeast > most:
			verdict = "a factor of " + factor(x.Rate/y.Rate) + " less"
		}
		parts = append(parts, fmt.Sprintf("%s %s (%s)", y.Subject, chart.Count(y.Rate), verdict))
	}
	return "With " + strings.TrimPrefix(compared, random) + " writers, " + and(parts) + "."
}

func times(f float64) string { return factor(f) + " times" }

// factor writes a factor that is more than 1, with no more digits than it deserves.
func factor(f float64) string {
	if f < 9.95 {
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}
