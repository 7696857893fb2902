package report

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
)

// Text is the export for people, of a process that began as h says.
func (e *Export) Text(h *status.Header, now time.Time) string {
	var out strings.Builder
	d := &e.Device
	state := string(d.State)
	switch d.State {
	case remote.StateWaiting:
		state = "WAITING for the target: " + d.Cause
	case remote.StateFailed:
		state = "FAILED: " + d.Cause
		if d.Taken {
			state += ": unmount or detach the device, then start pmnbd with --accept-loss, and with --takeover if the other still holds the region"
		}
	}
	if e.ReadOnly {
		state = "read-only, " + state
	}
	fmt.Fprintf(&out, "export %s: %s\n", e.Name, state)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { writeRow(w, name, format, args...) }
	row("process", "%d, for %v", h.PID, now.Sub(h.Started).Round(time.Second))
	row("listens", "%s", strings.Join(e.Listen, " "))
	if d.Mirror != nil {
		rows(row, d.Mirror, now)
	} else {
		row("region", "%s at %s, %s, class %s", d.Region, d.Target, flags.Size(d.Size), d.Class)
	}
	if d.Class == "volatile" {
		row("", "FLUSH means visible at the target; its contents are lost with the target's power")
	}
	row("method", "%s: %s", d.Method, d.MethodWhy)
	row("session", "epoch %d, owner %s", d.Epoch, d.Owner)
	for i := range d.Targets {
		t, whose := &d.Targets[i], ""
		if len(d.Targets) > 1 {
			whose = t.Target + ": "
		}
		row("trust", "%s%s", whose, status.Trust(t.Key, t.Cipher))
	}
	if d.Doubt {
		left := ""
		for i := range d.Targets {
			if t := &d.Targets[i]; t.DoubtLeft > 0 {
				left += fmt.Sprintf("; %s at %s has %s left to flush first", t.Region, t.Target, flags.Size(t.DoubtLeft).Rounded())
			}
		}
		row("doubt", "yes: what the previous session wrote may not be durable; the next FLUSH makes it so%s", left)
	}
	for i := range d.Targets {
		if t := &d.Targets[i]; t.Bad > 0 {
			row("bad places", "%s of %s at %s are lost: %d requests there got an I/O error", flags.Size(t.Bad), t.Region, t.Target, d.BadRequests)
		}
	}
	for i, l := range d.Lanes {
		row(fmt.Sprintf("lane %d", i), "%s, %s, %d outstanding", l.Peer, flags.Count(l.Posted, "work request"), l.Outstanding)
	}
	win := &d.Window
	row("window", "%s of %s, %d of %d entries; %s not flushed",
		flags.Size(win.Used).Rounded(), flags.Size(win.Limit).Rounded(), win.Entries, win.EntriesLimit, flags.Size(win.Unflushed).Rounded())
	b := &d.Barriers
	line := fmt.Sprintf("%d for %d FLUSH and FUA", b.Answered, b.Asked)
	if b.Answered > 0 {
		line += fmt.Sprintf(", %.1f each", float64(b.Asked)/float64(b.Answered))
	}
	if room := b.Done - b.Answered; room > 0 {
		line += fmt.Sprintf("; %d to make room", room)
	}
	if b.InFlight {
		line += "; one under way, "
		if b.AtTarget > 0 {
			line += fmt.Sprintf("the target has been syncing for %.0f s, ", b.AtTarget)
		}
		line += fmt.Sprintf("%d waiting for the next", b.Waiting)
	}
	row("barriers", "%s", line)
	for i := range e.Ublk {
		u := &e.Ublk[i]
		row("serves", "%s, queues: %d", u.Path, u.Queues)
	}
	row("clients", "%d connected, %d since the start", e.Connections, e.Entered)
	_ = w.Flush()

	w = tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "  command\trequests\tbytes\twith FUA\terrors\t")
	for _, c := range listed(&e.Commands) {
		if n := c.count; n.Requests > 0 {
			_, _ = fmt.Fprintf(w, "  %s\t%d\t%s\t%d\t%d\t\n", c.name, n.Requests, flags.Size(n.Bytes).Rounded(), n.FUA, n.Errors)
		}
	}
	_ = w.Flush()
	return out.String()
}
