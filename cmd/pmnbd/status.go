package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/nbd"
	"pmnbd/status"
)

// program is how this binary's processes call themselves on their control sockets.
const program = "pmnbd"

const statusHelp = `Shows the exports that pmnbd serves on this machine, or those named NAME: state, session with the target,
how full the window is, barriers, and what clients asked for. docs/status.md explains it.

Usage:
  pmnbd status [NAME] [--json]

  pmnbd status log
  pmnbd status --json | jq '.[].exports[].device.window.unflushed_bytes'
`

// A report is what a serving pmnbd shows. Its JSON names are kept once published.
type report struct {
	status.Header
	Exports []exportReport `json:"exports"` // the first is the default
}

// An exportReport is an export's part of it.
type exportReport struct {
	nbd.Snapshot
	ReadOnly bool            `json:"read_only"`
	Listen   []string        `json:"listen"` // URIs for NBD clients
	Device   remote.Snapshot `json:"device"`
}

// showStatus runs `pmnbd status`.
func showStatus(call *command.Call) error {
	set := call.Flags
	asJSON := set.Bool("json", false, "print JSON: an array with what each process says")
	control := status.DefaultPlace()
	set.Var(&control, "control", "the control socket to ask, or, with a / at its end, where to look for them")
	if err := call.Parse("[NAME]"); err != nil {
		return err
	}
	all, err := status.Find[report](context.Background(), &control, program)
	var found []status.Found[report]
	for _, f := range all {
		d := &f.Document
		d.Exports = slices.DeleteFunc(d.Exports, func(e exportReport) bool { return set.NArg() > 0 && e.Name != set.Arg(0) })
		if len(d.Exports) > 0 {
			found = append(found, f)
		}
	}
	switch {
	case len(found) == 0 && err != nil:
		return err
	case len(all) == 0:
		return status.Nobody(&control, program)
	case len(found) == 0:
		return fmt.Errorf("no pmnbd serves export %q: looked at %v", set.Arg(0), &control)
	}
	if *asJSON {
		return errors.Join(status.WriteJSON(call.Stdout, found), err)
	}
	var texts []string
	for _, f := range found {
		for i := range f.Document.Exports {
			texts = append(texts, f.Document.Exports[i].text(&f.Document.Header, time.Now()))
		}
	}
	_, written := io.WriteString(call.Stdout, strings.Join(texts, "\n"))
	return errors.Join(written, err)
}

// text is the report for people.
func (e *exportReport) text(h *status.Header, now time.Time) string {
	var out strings.Builder
	d := &e.Device
	state := string(d.State)
	switch d.State {
	case remote.StateWaiting:
		state = "WAITING for the target: " + d.Cause
	case remote.StateFailed:
		state = "FAILED: " + d.Cause
	}
	if e.ReadOnly {
		state = "read-only, " + state
	}
	fmt.Fprintf(&out, "export %s: %s\n", e.Name, state)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = fmt.Fprintf(w, "  "+name+"\t"+format+"\n", args...) }
	row("process", "%d, for %v", h.PID, now.Sub(h.Started).Round(time.Second))
	row("listens", "%s", strings.Join(e.Listen, " "))
	row("region", "%s at %s, %s, class %s", d.Region, d.Target, flags.Size(d.Size), d.Class)
	if d.Class == "volatile" {
		row("", "FLUSH means visible at the target; its contents are lost with the target's power")
	}
	row("method", "%s: %s", d.Method, d.MethodWhy)
	row("session", "epoch %d, owner %s", d.Epoch, d.Owner)
	if d.Doubt {
		row("doubt", "yes: what the session before left is not known to be durable, the next FLUSH settles it")
	}
	for i, l := range d.Lanes {
		row(fmt.Sprintf("lane %d", i), "%s, %d work requests, %d of them outstanding", l.Peer, l.Posted, l.Outstanding)
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
