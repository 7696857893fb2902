package report

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
)

// A Removing is what a Document says of an export that a reload removes. Nobody can use it any more, and what
// clients wrote is flushed before its region is closed.
type Removing struct {
	Name   string          `json:"name"`
	Since  time.Time       `json:"since"` // when the reload withdrew it
	Device remote.Snapshot `json:"device"`
}

// left says what of the export is still to be flushed.
func (r *Removing) left() string {
	if n := r.Device.Window.Unflushed; n > 0 {
		return flags.Size(n).Rounded() + " not flushed yet"
	}
	return "all is flushed, and its region is being closed"
}

// Text is the export for people, of a process that began as h says.
func (r *Removing) Text(h *status.Header, now time.Time) string {
	var out strings.Builder
	d := &r.Device
	state := ""
	switch d.State {
	case remote.StateWaiting:
		state = "; WAITING for the target: " + d.Cause
	case remote.StateFailed:
		state = "; FAILED: " + d.Cause
	}
	fmt.Fprintf(&out, "export %s: REMOVED by a reload, %s%s\n", r.Name, r.left(), state)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	writeRow(w, "process", "%d", h.PID)
	writeRow(w, "removed", "for %v", now.Sub(r.Since).Round(time.Second))
	writeRow(w, "region", "%s at %s", d.Region, cmp.Or(targets(d), d.Target))
	_ = w.Flush()
	return out.String()
}

// condition is how well the removal goes.
func (r *Removing) condition() status.Condition {
	d := &r.Device
	c := status.Condition{Name: "export " + r.Name, Since: r.Since}
	switch d.State {
	case remote.StateWaiting:
		c.Level, c.Why = status.Waiting, fmt.Sprintf("a reload removes it, %s: %s", r.left(), d.Cause)
		c.Next = fmt.Sprintf("Start pmnbd-target there (%s), or mend the network. After --drain-timeout what is left stays in the window, for the next start or reload that has the export", targets(d))
	case remote.StateFailed:
		c.Level, c.Why = status.Failed, "a reload removes it, and it has failed: "+d.Cause
		c.Next = "docs/durability.md says what is lost and how to go on"
	default:
		c.Why = "but nobody can use it: a reload removes it, " + r.left()
	}
	return c
}
