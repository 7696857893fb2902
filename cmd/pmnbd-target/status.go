package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/persist/target"
)

// program is the name of this binary's processes on their control sockets.
const program = "pmnbd-target"

const statusHelp = `Shows the regions that pmnbd-target serves on this machine: what each is, which initiator has it, and its
state. docs/status.md explains the output.

Usage:
  pmnbd-target status [--json | --check]

  pmnbd-target status --json | jq '.[].regions[] | {name, held, failed}'
`

// A report is what a serving pmnbd-target says of itself. Its JSON names stay once published.
type report struct {
	status.Header
	Listen  []string                `json:"listen"` // URIs for initiators
	Battery *target.BatterySnapshot `json:"battery"`
	Regions []target.RegionSnapshot `json:"regions"`
}

// showStatus runs `pmnbd-target status`.
func showStatus(call *command.Call) error {
	asJSON := call.Flags.Bool("json", false, "print JSON: an array with what each process says")
	check := call.Flags.Bool("check", false, "print a line for each region, and exit with 0 if all of them serve, 1 if one waits, 2 if one failed")
	control := status.DefaultPlace()
	call.Flags.Var(&control, "control", "the control socket to ask, or, with a / at its end, where to look for them")
	if err := call.Parse(); err != nil {
		return err
	}
	if err := call.OneOf("json", "check"); err != nil {
		return err
	}
	if !*asJSON && !*check {
		return showText(call.Stdout, &control)
	}
	found, err := status.Find[report](context.Background(), &control, program)
	if len(found) == 0 {
		err = cmp.Or(err, status.Nobody(&control, program))
	}
	if *check {
		text, level := status.Checked(found)
		if err != nil {
			level = status.Failed // what could not be asked is as bad
		}
		return command.Verdict(call.Stdout, text, int(level), err)
	}
	if len(found) == 0 {
		return err
	}
	return errors.Join(status.WriteJSON(call.Stdout, found), err)
}

// showText shows each process as it answers.
func showText(w io.Writer, control *status.Place) error {
	shown := false
	var written error
	err := status.Ask(context.Background(), control, program, func(f status.Found[report]) {
		shown = true
		_, err := io.WriteString(w, f.Document.text(time.Now()))
		written = cmp.Or(written, err)
	})
	if !shown {
		err = cmp.Or(err, status.Nobody(control, program))
	}
	return errors.Join(written, err)
}

// text shows the report to people.
func (r *report) text(now time.Time) string {
	var out strings.Builder
	fmt.Fprintf(&out, "process %d, for %v, at %s\n", r.PID, now.Sub(r.Started).Round(time.Second), strings.Join(r.Listen, " "))
	if r.Battery != nil {
		fmt.Fprintf(&out, "battery: %s\n", batteryText(r.Battery))
	}
	for i := range r.Regions {
		out.WriteString(regionText(&r.Regions[i]))
	}
	return out.String()
}

// regionText shows a region to people.
func regionText(r *target.RegionSnapshot) string {
	var out strings.Builder
	fmt.Fprintf(&out, "region %s: %s\n", r.Name, use(r))
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = fmt.Fprintf(w, "  "+name+"\t"+format+"\n", args...) }
	row("path", "%s, %s, class %s", pathText(r.Path, r.Parts), flags.Size(r.Size), r.Class)
	if r.Owner != nil {
		row("session", "epoch %d, owner %s (run %s)", r.Epoch, r.Owner.ID, r.Owner.Nonce)
	} else {
		row("session", "epoch %d, no owner", r.Epoch)
	}
	if r.Session != nil {
		row("method", "%s", r.Session.Method)
		for _, m := range r.Session.Methods {
			if !m.Sound {
				row("", "not %s: %s", m.Method, m.Why)
			}
		}
		row("trust", "%s", status.Trust(r.Session.Key, r.Session.Cipher))
		for _, l := range r.Session.Lanes {
			row(fmt.Sprintf("lane %d", l.Lane), "%s", l.Peer)
		}
	}
	if r.Held {
		row("lease", "%.1f s left", r.LeaseLeft)
	}
	if m := r.Member; m != nil {
		row("mirror", "member %s of %s, generation %s, in sync %s", m.Member, m.Mirror, m.Generation, m.InSync)
		for _, o := range m.Others {
			if o.Behind > 0 {
				row("", "member %s may lack %s", o.Member, flags.Size(o.Behind))
			}
		}
		if m.Torn {
			row("torn", "yes: a copy to the region has begun and has not ended")
		}
	}
	if r.Doubt {
		left := ""
		if r.DoubtLeft > 0 && r.Held {
			left = fmt.Sprintf("; %s left to flush", flags.Size(r.DoubtLeft).Rounded())
		}
		row("doubt", "yes: some of what can be read may not be durable%s", left)
	}
	if text := badText(r.Bad, r.BadUnknown); text != "" {
		row("bad places", "%s", text)
	}
	if r.Protection != nil {
		protectionRows(r.Protection, row)
	}
	barriers := fmt.Sprintf("%d, with %s", r.Barriers, flags.Count(r.Syncs, "fdatasync"))
	if r.Syncing > 0 {
		barriers += fmt.Sprintf("; syncing for %.0f s", r.Syncing)
	}
	row("barriers", "%s", barriers)
	_ = w.Flush()
	return out.String()
}

// use says in a few words whether an initiator has the region, or why none can.
func use(r *target.RegionSnapshot) string {
	switch {
	case r.Failed:
		return "FAILED: " + r.Failure
	case r.Suspect:
		return "SUSPECT: serves nobody until `region clear`"
	case r.Protection != nil && r.Protection.Halted && r.Protection.Whole:
		return "saved, and granted to nobody until `pmnbd-target resume`"
	case r.Protection != nil && r.Protection.Halted && r.Protection.Saving != nil:
		return "being saved, and granted to nobody until `pmnbd-target resume`"
	case r.Protection != nil && r.Protection.Halted:
		return "NOT SAVED, and granted to nobody until `pmnbd-target resume`"
	case r.Session != nil && len(r.Session.Lanes) > 0:
		return "in use"
	case r.Held:
		return "its owner is not connected"
	case r.Clean:
		return "free, closed cleanly"
	}
	return "free, not closed cleanly"
}
