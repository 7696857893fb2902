// Package progress shows people how far something is that takes more than a second: on a terminal as
// one line that is written again and again, elsewhere as a line every few seconds, so that a log of
// it stays short. What takes less shows nothing.
//
// The package imports cmd/internal/flags, for how sizes are written.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/cmd/internal/flags"
)

const (
	// after is how long something takes before it is shown.
	after = time.Second
	// often is the pause between two looks on a terminal, seldom elsewhere.
	often, seldom = 200 * time.Millisecond, 5 * time.Second
)

// A Meter shows how far something is.
type Meter struct {
	out      io.Writer
	what     string
	terminal bool
	end      chan struct{}
	ended    chan struct{}

	mu          sync.Mutex
	started     time.Time // all of it
	step        string
	began       time.Time // the step
	done, total uint64
	shared      bool    // Share said how far it is, not Set
	share       float64 // 0 to 1
	shown       bool    // a line is on the terminal
}

// Start begins to show on out, which is standard error, how far what is.
func Start(out io.Writer, what string) *Meter {
	now := time.Now()
	m := &Meter{out: out, what: what, terminal: isTerminal(out), started: now, began: now, end: make(chan struct{}), ended: make(chan struct{})}
	go m.run()
	return m
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (m *Meter) run() {
	defer close(m.ended)
	wait := time.NewTimer(after)
	defer wait.Stop()
	for {
		select {
		case <-m.end:
			return
		case <-wait.C:
		}
		m.show(time.Now())
		if m.terminal {
			wait.Reset(often)
		} else {
			wait.Reset(seldom)
		}
	}
}

// Set says how far it is: the step that is under way, and how many bytes of total it has done. A total
// of 0 means that nobody knows. Set is a region.Progress.
func (m *Meter) Set(step string, done, total uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if step != m.step {
		m.step, m.began = step, time.Now()
	}
	m.done, m.total, m.shared = done, total, false
}

// Share says how far all of it is, from 0 to 1, and the step that is under way. It is for work whose
// end is known and that is not counted in bytes.
func (m *Meter) Share(step string, share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.step, m.share, m.shared = step, min(max(share, 0), 1), true
}

// show writes the line.
func (m *Meter) show(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	line := m.lineLocked(now)
	if m.terminal {
		line = "\r\x1b[K" + cut(line, width(m.out)) // clears what was there
		m.shown = true
	} else {
		line += "\n"
	}
	_, _ = io.WriteString(m.out, line) // whoever does not look misses nothing else
}

// width returns how many characters a line of the terminal has, or 80.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 80
}

// cut shortens a line to less than columns: one that wraps could not be written again.
func cut(line string, columns int) string {
	if runes := []rune(line); len(runes) >= columns {
		return string(runes[:max(columns-1, 0)])
	}
	return line
}

// barLength is that of a bar on a terminal, in characters.
const barLength = 24

// shareLocked is the line after Share: a bar, and the step at the end, where it may be cut.
func (m *Meter) shareLocked(now time.Time) string {
	line := m.what
	if m.terminal {
		n := int(m.share * barLength)
		line += " [" + strings.Repeat("#", n) + strings.Repeat("-", barLength-n) + "]"
	}
	line += fmt.Sprintf(" %.0f %%", 100*m.share)
	if m.share > 0 {
		left := time.Duration(float64(now.Sub(m.started)) * (1 - m.share) / m.share)
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return line + ": " + m.step
}

func (m *Meter) lineLocked(now time.Time) string {
	if m.shared {
		return m.shareLocked(now)
	}
	line := m.what
	if m.step != "" {
		line += ": " + m.step
	}
	took := now.Sub(m.began)
	switch {
	case m.total > 0:
		line += fmt.Sprintf(" %s of %s, %d %%", flags.Size(m.done).Rounded(), flags.Size(m.total).Rounded(), 100*m.done/m.total)
		if m.done > 0 && took > 0 {
			rate := float64(m.done) / took.Seconds()
			left := time.Duration(float64(m.total-min(m.done, m.total)) / rate * float64(time.Second))
			line += fmt.Sprintf(", %s/s, %v left", flags.Size(rate).Rounded(), left.Round(time.Second))
		}
	default:
		line += fmt.Sprintf(" for %v", took.Round(time.Second))
	}
	return line
}

// Stop ends the showing. On a terminal it removes the line.
func (m *Meter) Stop() {
	close(m.end)
	<-m.ended
	if m.shown {
		_, _ = io.WriteString(m.out, "\r\x1b[K")
	}
}
