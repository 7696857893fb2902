package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pmnbd/cmd/internal/command"
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
	find := func(ctx context.Context) ([]status.Found[report.Document], error) {
		return findExports(ctx, &control, set.Arg(0))
	}
	if *every > 0 {
		return watch(call.Stdout, *every, find)
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
	if *asJSON {
		return errors.Join(status.WriteJSON(call.Stdout, found), err)
	}
	var texts []string
	for _, f := range found {
		for i := range f.Document.Starting {
			texts = append(texts, f.Document.Starting[i].Text(&f.Document.Header))
		}
		for i := range f.Document.Exports {
			texts = append(texts, f.Document.Exports[i].Text(&f.Document.Header, time.Now()))
		}
		for i := range f.Document.Removing {
			texts = append(texts, f.Document.Removing[i].Text(&f.Document.Header, time.Now()))
		}
	}
	_, written := io.WriteString(call.Stdout, strings.Join(texts, "\n"))
	return errors.Join(written, err)
}

// findExports asks the processes at control. With a name it drops the exports of other names. It
// returns an error if there is nothing, or if a process did not answer.
func findExports(ctx context.Context, control *status.Place, name string) ([]status.Found[report.Document], error) {
	all, err := status.Find[report.Document](ctx, control, report.Program)
	var found []status.Found[report.Document]
	for _, f := range all {
		d := &f.Document
		d.Exports = slices.DeleteFunc(d.Exports, func(e report.Export) bool { return name != "" && e.Name != name })
		d.Starting = slices.DeleteFunc(d.Starting, func(w report.Starting) bool { return name != "" && w.Name != name })
		d.Removing = slices.DeleteFunc(d.Removing, func(r report.Removing) bool { return name != "" && r.Name != name })
		if len(d.Exports)+len(d.Starting)+len(d.Removing) > 0 {
			found = append(found, f)
		}
	}
	switch {
	case len(found) == 0 && err != nil:
	case len(all) == 0:
		err = status.Nobody(control, report.Program)
	case len(found) == 0:
		err = fmt.Errorf("no pmnbd serves export %q: looked at %v", name, control)
	}
	return found, err
}
