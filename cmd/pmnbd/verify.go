package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/internal/plain"
)

const mirrorVerifyHelp = `Compares the members in sync of the mirror that pmnbd serves on this machine, or of that of export NAME, by
digests that their targets make. Clients go on meanwhile. pmnbd serve --resync-rate bounds how much is compared
a second. It waits for a member that is away, until the mirror lets that one go. Ctrl-C ends the comparison.

It reports each chunk that differs, and then ends with exit code 1. Nobody knows which member is right, so nothing
is changed, unless --from names one: then chunks that differ are copied from it to the others.

Usage:
  pmnbd mirror verify [NAME] [--from A|B|C|D|iwarp://HOST:PORT/REGION] [--json]

  pmnbd mirror verify
  pmnbd mirror verify log --from B
`

// verifyPath is where the control socket takes the command.
const verifyPath = "/verify"

// verify runs the command of the control socket: its first lines tell the progress, the last one has the
// differences, too.
func (s *initiator) verify(ctx context.Context, query url.Values, say func(any) error) error {
	name := query.Get("export")
	if !s.shown.serving() {
		return errors.New("it does not serve yet")
	}
	for _, x := range s.exports() {
		if x.name == name {
			v, err := x.dev.Verify(ctx, remote.VerifyOptions{
				From:     query.Get("from"),
				Progress: func(v remote.Verification) { _ = say(v) }, // ctx ends if nobody hears it
			})
			if v != nil {
				err = errors.Join(err, say(v))
			}
			return err
		}
	}
	return fmt.Errorf("it serves no export %q", name)
}

// verifyMirror runs `pmnbd mirror verify`.
func verifyMirror(call *command.Call) error {
	set := call.Flags
	asJSON := set.Bool("json", false, "print JSON: one object")
	from := set.String("from", "", "the `member` from which chunks that differ are copied to the others: its letter, or its target")
	control := status.DefaultPlace()
	set.Var(&control, "control", "the control socket to ask, or, with a / at its end, where to look for them")
	if err := call.Parse("[NAME]"); err != nil {
		return err
	}
	socket, m, err := oneServed(&control, set.Arg(0))
	if err != nil {
		return err
	}
	letter, err := letterOf(*from, m.MirrorSnapshot)
	if err != nil {
		return err
	}
	ctx, stop := daemon.UntilSignal()
	defer stop()
	show := progressOn(call.Stderr)
	var found remote.Verification
	err = status.Do(ctx, socket, verifyPath, url.Values{"export": {m.Export}, "from": {letter}}, func(line json.RawMessage) error {
		found = remote.Verification{}
		err := json.Unmarshal(line, &found)
		show(&found)
		return err
	})
	show(nil)
	if ctx.Err() != nil {
		err = errors.New("a signal ended the comparison")
	}
	if found.Total == 0 {
		return err
	}
	return errors.Join(err, told(call.Stdout, m.Export, &found, letter != "", *asJSON))
}

// oneServed returns the mirror of export name, or the only one, and the control socket of the process
// that serves it.
func oneServed(control *status.Place, name string) (socket string, _ *report.Mirror, err error) {
	all, unheard := status.Find[report.Document](context.Background(), control, report.Program)
	var mirrors []report.Mirror
	for _, f := range all {
		of := served([]status.Found[report.Document]{f}, name, nil)
		if len(of) > 0 {
			socket = f.Socket
		}
		mirrors = append(mirrors, of...)
	}
	switch {
	case len(mirrors) == 0:
		return "", nil, errors.Join(unheard, fmt.Errorf("no pmnbd of this machine serves %s: looked at %v. A mirror is compared while it is served", mirrorNamed(name), control))
	case len(mirrors) > 1:
		var names []string
		for i := range mirrors {
			names = append(names, mirrors[i].Export)
		}
		return "", nil, fmt.Errorf("several mirrors are served: name one of %s", strings.Join(names, ", "))
	}
	return socket, &mirrors[0], nil
}

// letterOf returns the letter of the member that --from names, or "".
func letterOf(from string, m *remote.MirrorSnapshot) (string, error) {
	if from == "" || len(from) == 1 && strings.Contains(m.Members, strings.ToUpper(from)) {
		return strings.ToUpper(from), nil
	}
	e, err := flags.ParseTarget(from)
	if err != nil {
		return "", flags.Usagef("--from %q: use the letter of a member, one of %s, or its target as --target of pmnbd serve has it", from, m.Members)
	}
	for i := range m.Legs {
		if l := &m.Legs[i]; l.Target == e.Address() && l.Region == e.Region && l.Slot != "" {
			return l.Slot, nil
		}
	}
	return "", flags.Usagef("--from %s is no member of the mirror", e)
}

// progressOn returns what shows progress on w if that is a terminal. nil ends it.
func progressOn(w io.Writer) func(*remote.Verification) {
	f, ok := w.(*os.File)
	if ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		ok = err == nil
	}
	return func(v *remote.Verification) {
		switch {
		case !ok:
		case v == nil:
			_, _ = io.WriteString(w, "\r\x1b[K")
		case v.Total > 0:
			_, _ = fmt.Fprintf(w, "\r\x1b[K%v of %v compared, chunks that differ: %d", flags.Size(v.Compared).Rounded(), flags.Size(v.Total).Rounded(), v.Different)
		}
	}
}

// told writes what was found, and returns an error if members differ now.
func told(w io.Writer, export string, v *remote.Verification, copied, asJSON bool) error {
	var differ error
	if v.Different > 0 && !copied {
		differ = fmt.Errorf("members %s differ in %s: find out which member is right, and copy from it with --from", v.Members, flags.Count(v.Different, "chunk"))
	}
	if asJSON {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = w.Write(plain.JSON(append(b, '\n')))
		return errors.Join(err, differ)
	}
	var out strings.Builder
	for i := range v.Differences {
		d := &v.Differences[i]
		fmt.Fprintf(&out, "differs: offset %d, length %d:", d.Offset, d.Length)
		for _, member := range v.Members {
			if sum := d.Digests[string(member)]; sum != "" {
				fmt.Fprintf(&out, " %c %.16s", member, sum)
			}
		}
		if d.Copied {
			out.WriteString(", copied")
		}
		out.WriteByte('\n')
	}
	if more := v.Different - len(v.Differences); more > 0 {
		fmt.Fprintf(&out, "and %d more\n", more)
	}
	if v.Compared == v.Total {
		fmt.Fprintf(&out, "mirror %s: compared members %s, %v of each; chunks that differ: %d\n", export, v.Members, flags.Size(v.Total/uint64(len(v.Members)-1)).Rounded(), v.Different)
	} else {
		fmt.Fprintf(&out, "mirror %s: compared members %s in part; chunks that differ: %d\n", export, v.Members, v.Different)
	}
	_, err := io.WriteString(w, out.String())
	return errors.Join(err, differ)
}
