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
  pmnbd status [NAME] [--json]

  pmnbd status log
  pmnbd status --json | jq '.[].exports[].device.window.unflushed_bytes'
`

// showStatus runs `pmnbd status`.
func showStatus(call *command.Call) error {
	set := call.Flags
	asJSON := set.Bool("json", false, "print JSON: an array with what each process says")
	control := status.DefaultPlace()
	set.Var(&control, "control", "the control socket to ask, or, with a / at its end, where to look for them")
	if err := call.Parse("[NAME]"); err != nil {
		return err
	}
	all, err := status.Find[report.Document](context.Background(), &control, report.Program)
	var found []status.Found[report.Document]
	for _, f := range all {
		d := &f.Document
		d.Exports = slices.DeleteFunc(d.Exports, func(e report.Export) bool { return set.NArg() > 0 && e.Name != set.Arg(0) })
		d.Starting = slices.DeleteFunc(d.Starting, func(w report.Starting) bool { return set.NArg() > 0 && w.Name != set.Arg(0) })
		if len(d.Exports)+len(d.Starting) > 0 {
			found = append(found, f)
		}
	}
	switch {
	case len(found) == 0 && err != nil:
		return err
	case len(all) == 0:
		return status.Nobody(&control, report.Program)
	case len(found) == 0:
		return fmt.Errorf("no pmnbd serves export %q: looked at %v", set.Arg(0), &control)
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
	}
	_, written := io.WriteString(call.Stdout, strings.Join(texts, "\n"))
	return errors.Join(written, err)
}
