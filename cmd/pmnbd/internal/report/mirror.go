package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
)

// A Mirror is what pmnbd mirror status says of a mirror. Its JSON names stay once published.
type Mirror struct {
	// Export and PID say who serves it. They are zero if only its targets were asked.
	Export string `json:"export,omitempty"`
	PID    int    `json:"pid,omitempty"`
	*remote.MirrorSnapshot
}

// Text is the mirror for people.
func (m *Mirror) Text(now time.Time) string {
	var out strings.Builder
	if m.PID != 0 {
		fmt.Fprintf(&out, "mirror %s: process %d\n", m.Export, m.PID)
	} else {
		fmt.Fprintln(&out, "mirror: its targets were asked, because no pmnbd here serves it")
	}
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { writeRow(w, name, format, args...) }
	rows(row, m.MirrorSnapshot, now)
	if m.Start != "" {
		row("start", "%s", m.Start)
	}
	_ = w.Flush()
	return out.String()
}

// Created is what pmnbd mirror create says of a mirror that it has made. targets is what --target of
// pmnbd serve takes.
func (m *Mirror) Created(targets string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "created mirror %s: FLUSH waits for %d of %d copies\n", m.Set, m.MinCopies, m.Synchronous())
	for _, l := range m.Legs {
		state := "has all data"
		if l.State != remote.LegInSync {
			state = "is copied to first"
			if strings.Contains(m.Async, l.Slot) {
				state = "is copied to, and follows"
			}
		}
		fmt.Fprintf(&out, "  %s  %s at %s, class %s: %s\n", l.Slot, l.Region, l.Target, l.Class, state)
	}
	fmt.Fprintf(&out, "serve it with: pmnbd serve --target %s --listen unix:/PATH\n", targets)
	return out.String()
}

func writeRow(w io.Writer, name, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "  "+name+"\t"+format+"\n", args...)
}

// rows writes the rows about a mirror, with one for each leg.
func rows(row func(name, format string, args ...any), m *remote.MirrorSnapshot, now time.Time) {
	pending := ""
	if m.Pending {
		pending = ", not active yet"
	}
	row("mirror", "%s, %d of %d copies in sync, at least %d", m.Set, m.Copies, m.Synchronous(), m.MinCopies)
	row("", "generation %s on %s%s", m.Generation, m.F, pending)
	if a := m.Arbiter; a != nil {
		text := fmt.Sprintf("this pmnbd is active, its lease lasts %.1f s", a.Lease)
		if a.Lease == 0 {
			text = "THE LEASE IS OVER: another pmnbd may begin"
		}
		if a.Cause != "" {
			text += "; a change of generation waits for it: " + a.Cause
		}
		row("arbiter", "%s", text)
	}
	for i := range m.Legs {
		l := &m.Legs[i]
		line := fmt.Sprintf("%s at %s: %s", l.Region, l.Target, l.State)
		if l.Since != nil {
			line += fmt.Sprintf(" for %v", now.Sub(*l.Since).Round(time.Second))
		}
		if l.Behind != nil && *l.Behind > 0 {
			line += fmt.Sprintf(", %s behind", flags.Size(*l.Behind).Rounded())
		}
		if l.Late >= 1 {
			line += fmt.Sprintf(", the others have waited for its disk for %v", time.Duration(l.Late*float64(time.Second)).Round(time.Second))
		}
		if f := l.Follows; f != nil {
			line += fmt.Sprintf(", has all until %s (barrier %d)", f.Until.UTC().Format("2006-01-02 15:04:05.000 MST"), f.Barrier)
			if f.LagSeconds > 0 {
				line += fmt.Sprintf(", lag %.1f s", f.LagSeconds)
			}
		}
		if l.Epoch != 0 && l.Method != "" {
			line += fmt.Sprintf(", class %s, method %s, epoch %d", l.Class, l.Method, l.Epoch)
		}
		if l.Cause != "" {
			line += ": " + l.Cause
		}
		name := "leg " + l.Slot
		if l.Slot == "" {
			name = "leg ?"
		}
		row(name, "%s", line)
	}
}

// collectMirror sends the metrics about a mirror.
func collectMirror(s status.Scrape, m *remote.MirrorSnapshot) {
	status.Gauge(s, "pmnbd_mirror_members", "Members that can be in sync.", m.Synchronous())
	status.Gauge(s, "pmnbd_mirror_async_members", "Members that follow, and are not waited for.", len(m.Async))
	status.Gauge(s, "pmnbd_mirror_copies", "Members that have every flushed write.", m.Copies)
	status.Gauge(s, "pmnbd_mirror_min_copies", "Members that must have a write before its FLUSH succeeds.", m.MinCopies)
	if m.Arbiter != nil {
		status.Gauge(s, "pmnbd_arbiter_lease_seconds", "For how long no other initiator can have the mirror, unless the arbiter answers before.", m.Arbiter.Lease)
	}
	for i := range m.Legs {
		l := &m.Legs[i]
		leg := s.With("target", l.Target, "region", l.Region)
		for _, state := range remote.LegStates() {
			status.Truth(leg, "pmnbd_mirror_leg_state", "1 for the state that the leg is in, 0 for the others.", l.State == state, "state", string(state))
		}
		status.Gauge(leg, "pmnbd_mirror_leg_late_seconds", "How long others have waited for the leg alone, without any progress of it.", l.Late)
		lag := 0.0
		if l.Follows != nil {
			lag = l.Follows.LagSeconds
		}
		status.Gauge(leg, "pmnbd_mirror_leg_lag_seconds", "Age of the oldest FLUSH that a member lacks which follows. It is 0 for all others.", lag)
		if l.Behind != nil {
			status.Gauge(leg, "pmnbd_mirror_leg_behind_bytes", "Bytes that are still to be compared with the leg, and copied where they differ. There is none while nobody knows.", *l.Behind)
		}
	}
}
