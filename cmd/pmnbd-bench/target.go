package main

import (
	"cmp"
	"net"
	"net/url"
	"strings"

	"pmnbd/cmd/internal/flags"
)

// A target is one row of the table.
type target struct {
	label string
	// dir is the directory of a disk's file; "": the target is an export.
	dir              string
	network, address string
	export           string
}

const targetForms = "[LABEL=]nbd+unix:///NAME?socket=/PATH, [LABEL=]nbd://HOST:PORT/NAME or [LABEL=]disk:DIR"

// nbdPort is the port that IANA assigned to NBD.
const nbdPort = "10809"

// parseTarget reads a target. A label ends at the first "=" and has neither ":" nor "/", so
// that parseTarget does not take the beginning of a URI with a query for a label.
func parseTarget(arg string) (target, error) {
	t := target{label: arg}
	if label, rest, ok := strings.Cut(arg, "="); ok && !strings.ContainsAny(label, ":/") {
		if label == "" {
			return t, flags.Usagef("%q: an empty label", arg)
		}
		t.label, arg = label, rest
	}
	if dir, ok := strings.CutPrefix(arg, "disk:"); ok {
		if dir == "" {
			return t, flags.Usagef("%q names no directory: use disk:DIR", arg)
		}
		t.dir = dir
		return t, nil
	}
	u, err := url.Parse(arg)
	if err != nil {
		return t, flags.Usagef("%q is not a URI: use %s", arg, targetForms)
	}
	t.export = strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "nbd+unix":
		t.network, t.address = "unix", u.Query().Get("socket")
		if t.address == "" {
			return t, flags.Usagef("%q names no socket: use nbd+unix:///NAME?socket=/PATH", arg)
		}
	case "nbd":
		if u.Hostname() == "" {
			return t, flags.Usagef("%q names no host: use nbd://HOST:PORT/NAME", arg)
		}
		t.network, t.address = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), nbdPort))
	default:
		return t, flags.Usagef("%q is not a target: use %s", arg, targetForms)
	}
	return t, nil
}
