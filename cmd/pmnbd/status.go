package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
)

const statusHelp = `Shows the exports that pmnbd serves on this machine, or those named NAME: their state, the session with the
target, how full the window is, the barriers, and the requests of clients. docs/status.md explains the output.

Usage:
  pmnbd status [NAME] [--json | --check | --watch]

  pmnbd status log
  pmnbd status log --check || echo "log is not well"
  pmnbd status --json | jq '.[].exports[].device.window.unflushed_bytes'
`

// showStatus runs `pmnbd status`.
func showStatus(call *command.Call) error {
	set := call.Flags
	asJSON := set.Bool("json", false, "print JSON: an array with what each process says")
	check := set.Bool("check", false, "print a line for each export, and exit with 0 if all of them serve, 1 if one waits, 2 if one failed")
	every := set.Duration("watch", 0, "show rates and latencies, again and again: those since the time before, first those since the start; `DURATION` is the pause, 2s")
	set.Lookup("watch").NoOptDefVal = "2s"
	control := status.DefaultPlace()
	set.Var(&control, "control", "the control socket to ask, or, with a / at its end, where to look for them")
	if err := call.Parse("[NAME]"); err != nil {
		return err
	}
	if err := call.OneOf("json", "check", "watch"); err != nil {
		return err
	}
	if set.Changed("watch") && *every <= 0 {
		return flags.Usagef("--watch=%v: use a duration, such as 2s", *every)
	}
	find := func(ctx context.Context) ([]status.Found[report.Document], error) {
		return findExports(ctx, &control, set.Arg(0))
	}
	if *every > 0 {
		if d, err := time.ParseDuration(set.Arg(0)); err == nil && d > 0 { // an export may be called so
			if found, err := find(context.Background()); len(found) == 0 {
				return flags.Usagef("%v; if %s is the pause, use --watch=%s", err, set.Arg(0), set.Arg(0))
			}
		}
		return watch(call.Stdout, *every, find)
	}
	if !*asJSON && !*check {
		return showText(call.Stdout, &control, set.Arg(0))
	}
	found, err := find(context.Background())
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

// showText shows the exports named name, or all if it is empty, of each process as it answers.
func showText(w io.Writer, control *status.Place, name string) error {
	all, shown := 0, 0
	var written error
	err := status.Ask(context.Background(), control, report.Program, func(f status.Found[report.Document]) {
		all++
		for _, text := range exportTexts(&f.Document, name) {
			if shown > 0 {
				text = "\n" + text
			}
			shown++
			_, err := io.WriteString(w, text)
			written = cmp.Or(written, err)
		}
	})
	return errors.Join(written, unfound(control, name, all, shown, err))
}

// exportTexts shows the exports of d that are named name, or all if it is empty.
func exportTexts(d *report.Document, name string) []string {
	keepNamed(d, name)
	var texts []string
	for i := range d.Starting {
		texts = append(texts, d.Starting[i].Text(&d.Header))
	}
	for i := range d.Exports {
		texts = append(texts, d.Exports[i].Text(&d.Header, time.Now()))
	}
	for i := range d.Removing {
		texts = append(texts, d.Removing[i].Text(&d.Header, time.Now()))
	}
	return texts
}

// findExports asks the processes at control. With a name it drops the exports of other names. It
// returns an error if there is nothing, or if a process did not answer.
func findExports(ctx context.Context, control *status.Place, name string) ([]status.Found[report.Document], error) {
	all, err := status.Find[report.Document](ctx, control, report.Program)
	var found []status.Found[report.Document]
	for _, f := range all {
		d := &f.Document
		keepNamed(d, name)
		if len(d.Exports)+len(d.Starting)+len(d.Removing) > 0 {
			found = append(found, f)
		}
	}
	return found, unfound(control, name, len(all), len(found), err)
}

// keepNamed drops the exports of d that are not named name, unless it is empty.
func keepNamed(d *report.Document, name string) {
	d.Exports = slices.DeleteFunc(d.Exports, func(e report.Export) bool { return name != "" && e.Name != name })
	d.Starting = slices.DeleteFunc(d.Starting, func(w report.Starting) bool { return name != "" && w.Name != name })
	d.Removing = slices.DeleteFunc(d.Removing, func(r report.Removing) bool { return name != "" && r.Name != name })
}

// unfound returns the error of a search at control for exports named name, when of all processes
// there some, found, had what was looked for. err is that of asking.
func unfound(control *status.Place, name string, all, found int, err error) error {
	switch {
	case found > 0 || err != nil:
		return err
	case all == 0:
		return status.Nobody(control, report.Program)
	}
	return fmt.Errorf("no pmnbd serves export %q: looked at %v", name, control)
}
