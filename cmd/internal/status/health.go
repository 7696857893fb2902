package status

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Level says how well something is. Worse ones are greater, and they are the exit codes of
// status --check.
type Level int

// The levels.
const (
	// Serving: clients get what they ask for.
	Serving Level = iota
	// Waiting: some of it waits, and goes on by itself once something else is back.
	Waiting
	// Failed: it will not serve again before somebody does something.
	Failed
)

func (l Level) String() string { return [...]string{"serving", "waiting", "failed"}[l] }

// A Condition is how one thing is that a process serves.
type Condition struct {
	// Name says what it is, such as "export log".
	Name  string
	Level Level
	// Since is when it came to be so; zero if nobody knows.
	Since time.Time
	// Why is the cause, and Next what to do about it. Both are empty if all is well.
	Why, Next string
}

// line is c in one line, without what changes by itself as time goes by.
func (c *Condition) line() string {
	line := fmt.Sprintf("%s: %v", c.Name, c.Level)
	if !c.Since.IsZero() {
		line += " since " + c.Since.Format(time.RFC3339)
	}
	if c.Why != "" {
		line += ": " + c.Why
	}
	if c.Next != "" {
		if !strings.HasSuffix(line, "?") && !strings.HasSuffix(line, ".") {
			line += "."
		}
		line += " " + c.Next
	}
	return strings.ReplaceAll(line, "\n", "; ")
}

// Health is how all is that a process serves.
type Health []Condition

// Level is the worst one. A process that serves nothing yet is waiting.
func (h Health) Level() Level {
	if len(h) == 0 {
		return Waiting
	}
	return slices.MaxFunc(h, func(a, b Condition) int { return cmp.Compare(a.Level, b.Level) }).Level
}

// worst returns h with the worst first.
func (h Health) worst() Health {
	h = slices.Clone(h)
	slices.SortStableFunc(h, func(a, b Condition) int { return cmp.Compare(b.Level, a.Level) })
	return h
}

// Text is a line for each Condition, the worst first.
func (h Health) Text() string {
	var out strings.Builder
	for _, c := range h.worst() {
		out.WriteString(c.line() + "\n")
	}
	if len(h) == 0 {
		out.WriteString("waiting: it is starting, and serves nothing yet\n")
	}
	return out.String()
}

// Line is the first line of Text, and how many more there are of things that are not well.
func (h Health) Line() string {
	line, _, _ := strings.Cut(h.Text(), "\n")
	more := -1
	for _, c := range h {
		if c.Level != Serving {
			more++
		}
	}
	switch {
	case more > 0:
		line += fmt.Sprintf(" (and %d more)", more)
	case more < 0 && len(h) > 1: // all are well
		names := make([]string, 0, len(h))
		for _, c := range h {
			names = append(names, c.Name)
		}
		line = fmt.Sprintf("serving %s", strings.Join(names, ", "))
	}
	return line
}

// Checked returns the text of what was found, a line for each thing, and the worst level. Where
// nothing was found, nothing serves.
func Checked[T interface{ Health() Health }](found []Found[T]) (text string, worst Level) {
	if len(found) == 0 {
		return "", Failed
	}
	for i := range found {
		h := found[i].Document.Health()
		text, worst = text+h.Text(), max(worst, h.Level())
	}
	return text, worst
}

// The URL paths of health. Both have the lines of Health.Text.
const (
	// LivePath answers 200 as long as the process can say how it is. If it cannot, a restart helps.
	LivePath = "/livez"
	// ReadyPath answers 200 while all that the process serves is serving, else 503.
	ReadyPath = "/readyz"
)

// handleHealth answers for both paths of health.
func handleHealth(mux *http.ServeMux, snapshot func() Document) {
	answer := func(ok func(Level) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			h := snapshot().Health()
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if !ok(h.Level()) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, h.Text()) // fails if the client has left
		}
	}
	mux.HandleFunc("GET "+LivePath, answer(func(Level) bool { return true }))
	mux.HandleFunc("GET "+ReadyPath, answer(func(l Level) bool { return l == Serving }))
}
