package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/internal/endpoint"
	"pmnbd/internal/plain"
)

const mirrorHelp = `A mirror is one device with two to four copies, each in a region of another target. docs/mirror.md explains it.

Usage:
  pmnbd mirror create --target iwarp://HOST:PORT/REGION --target iwarp://HOST:PORT/REGION [--min-copies N] [--from TARGET]
      [--async-target TARGET] [--arbiter etcd://HOST:PORT]
  pmnbd mirror status [NAME] [--json]
  pmnbd mirror verify [NAME] [--from LEG] [--json]
  pmnbd mirror add [NAME] iwarp://HOST:PORT/REGION [--force]
  pmnbd mirror remove [NAME] LEG
  pmnbd mirror replace [NAME] OLD iwarp://HOST:PORT/REGION [--force]
  pmnbd mirror set [NAME] --min-copies N
  pmnbd mirror discard --target iwarp://HOST:PORT/REGION,… LEG [--force]
  pmnbd mirror forget --target iwarp://HOST:PORT/REGION,… --arbiter etcd://HOST:PORT [--force]

create    makes regions the members of a new mirror.
status    shows a mirror and its members.
verify    compares the members of a mirror that is being served.
add       makes a region a member of a mirror that is being served, and copies everything to it.
remove    takes a member out of a mirror that is being served.
replace   adds a region, and removes a member.
set       changes how many copies a FLUSH waits for at least.
discard   gives up what a member wrote that went its own way.
forget    has the arbiter forget which generation the mirror is in.

  pmnbd mirror create --target iwarp://pm1/log --target iwarp://pm2/log
  pmnbd serve --target iwarp://pm1/log,iwarp://pm2/log --listen unix:/run/pmnbd.sock
`

const mirrorCreateHelp = `Makes two to four regions of equal size the members of a new mirror. It compares their contents. If these differ,
it changes nothing, unless --from names the region whose contents are kept: what the others have is lost, and
the first pmnbd serve copies to them. A region named by --async-target follows the others, and no FLUSH waits for
it; what it has is lost, and the first pmnbd serve copies to it. With --arbiter the mirror never begins without that etcd (docs/mirror.md).

Nobody may be serving the regions. If the command is interrupted, run it again with the same regions, before you
serve them.

Usage:
  pmnbd mirror create --target iwarp://HOST:PORT/REGION --target iwarp://HOST:PORT/REGION [--min-copies N] [--from TARGET]
      [--async-target TARGET] [--arbiter etcd://HOST:PORT]
`

const mirrorStatusHelp = `Shows the mirrors that pmnbd serves on this machine, or the one of export NAME: how many copies there are, and
the state of each member. With --target it asks the targets, if no pmnbd here serves that mirror, and says what
a start would do; that disturbs nobody. docs/mirror.md explains the states.

Usage:
  pmnbd mirror status [NAME] [--json] [--target iwarp://HOST:PORT/REGION,…]

  pmnbd mirror status
  pmnbd mirror status --json | jq '.legs[].state'
`

// An identity is who a command is to targets.
type identity struct{ id, keyFile, stateDir string }

func (i *identity) declare(set *pflag.FlagSet) {
	set.StringVar(&i.keyFile, "key-file", "", "the `file` with the keys that this initiator and the targets share, if they ask for one")
	set.StringVar(&i.id, "id", "", "this initiator's id, a `UUID` (default the one in the state directory)")
	set.StringVar(&i.stateDir, "state-dir", defaultStateDir(), "where the id and the locks of regions are, a `directory`")
}

// config returns how to reach regions as i.
func (i *identity) config(at []endpoint.Endpoint) (cfg remote.Config, err error) {
	if i.stateDir == "" {
		return cfg, flags.Usagef("--state-dir is empty: name a directory, or leave the flag out for %s", defaultStateDir())
	}
	cfg.StateDir = i.stateDir
	if i.id != "" {
		id, err := uuid.Parse(i.id)
		if err != nil || id == uuid.Nil {
			return cfg, flags.Usagef("--id %q is not a UUID: use one as uuidgen prints it", i.id)
		}
		cfg.ID = id
	} else if cfg.ID, err = remote.InitiatorID(i.stateDir); err != nil {
		return cfg, err
	}
	var k *keys
	if i.keyFile != "" {
		if k, err = readKeys(i.keyFile, cfg.ID); err != nil {
			return cfg, err
		}
		cfg.Key = k.get
	}
	cfg.Members, err = connecting(at, 0, k)
	return cfg, err
}

// createMirror runs `pmnbd mirror create`.
func createMirror(call *command.Call) error {
	var who identity
	var targets, asyncTargets []string
	var made remote.NewMirror
	var from string
	var acceptLoss, allowVolatile bool
	var arbitrated arbiterSpec
	set := call.Flags
	set.StringArrayVar(&targets, "target", nil, "a region that becomes a member, `iwarp://HOST:PORT/REGION`, iwarps:// for the same encrypted, or rdma://; give two to four")
	set.StringArrayVar(&asyncTargets, "async-target", nil, "a region that becomes a member and follows the others: a `target` far away")
	set.IntVar(&made.MinCopies, "min-copies", 0, "how many members must have a write before its FLUSH succeeds, `N` (default one less than there are members, without those that follow)")
	set.StringVar(&from, "from", "", "the `target` whose contents are kept if they differ; what the others have is lost")
	set.BoolVar(&acceptLoss, "accept-loss", false, "take a region although its last session was not closed: what a pmnbd has in its window for it is lost")
	set.BoolVar(&allowVolatile, "allow-volatile", false, "do not warn of members of class volatile; pmnbd serve needs the flag for them")
	arbitrated.declare(set)
	who.declare(set)
	if err := call.Parse(); err != nil {
		return err
	}
	if err := arbitrated.parse(set); err != nil {
		return err
	}
	sync, err := parseTargets(targets)
	if err != nil {
		return err
	}
	at, err := parseTargets(slices.Concat(targets, asyncTargets))
	if err != nil {
		return err
	}
	made.Async = len(at) - len(sync)
	switch {
	case len(at) < 2:
		return flags.Usagef("a mirror has two members at least: give --target for each")
	case len(sync) == 0:
		return flags.Usagef("--async-target follows other members: give --target for at least one")
	case set.Changed("min-copies") && (made.MinCopies < 1 || made.MinCopies > len(sync)):
		return flags.Usagef("--min-copies %d: use 1 to %d, the number of members that can be in sync", made.MinCopies, len(sync))
	}
	if made.From, err = numberOf(from, sync); err != nil {
		return err
	}
	cfg, err := who.config(at)
	if err != nil {
		return err
	}
	cfg.AcceptLoss, cfg.Log = acceptLoss, daemon.Slog(daemon.Log(call.Stderr))
	e, err := arbitrated.open()
	if err != nil {
		return err
	}
	if e != nil {
		defer e.Close() //nolint:errcheck // nothing is on its connections
		cfg.Arbiter = e
	}
	ctx, stop := daemon.UntilSignal()
	defer stop()
	m, err := remote.CreateMirror(ctx, cfg, made)
	if errors.As(err, new(*remote.DifferError)) {
		return fmt.Errorf("%w: name the one to keep with --from", err)
	}
	if err = advised(err); errors.As(err, new(*remote.LossError)) {
		return command.WithCode(err, exitLoss)
	}
	if err != nil {
		return err
	}
	text := (&report.Mirror{MirrorSnapshot: m}).Created(uris(at))
	for _, l := range m.Legs {
		if l.Class == "volatile" && !allowVolatile {
			text += fmt.Sprintf("%s at %s is volatile: a boot of that machine takes its copy, and pmnbd serve needs --allow-volatile\n", l.Region, l.Target)
		}
	}
	_, err = io.WriteString(call.Stdout, text)
	return err
}

// parseTargets reads the regions of all --target flags.
func parseTargets(targets []string) ([]endpoint.Endpoint, error) {
	var all []string
	for _, t := range targets {
		all = append(all, strings.Split(t, ",")...)
	}
	return parseMembers(all)
}

// uris is the argument of --target that names all of at.
func uris(at []endpoint.Endpoint) string {
	all := make([]string, 0, len(at))
	for _, e := range at {
		all = append(all, e.String())
	}
	return strings.Join(all, ",")
}

// numberOf returns the number in at of what --from names, counted from 1; 0 for "".
func numberOf(from string, at []endpoint.Endpoint) (int, error) {
	if from == "" {
		return 0, nil
	}
	e, err := flags.ParseTarget(from)
	if err != nil {
		return 0, flags.Usagef("--from: %v", err)
	}
	n := 1 + slices.IndexFunc(at, e.Same)
	if n == 0 {
		return 0, flags.Usagef("--from %s is none of the targets", e)
	}
	return n, nil
}

// mirrorStatus runs `pmnbd mirror status`.
func mirrorStatus(call *command.Call) error {
	var who identity
	var targets []string
	set := call.Flags
	asJSON := set.Bool("json", false, "print JSON: one object, of one mirror")
	control := status.DefaultPlace()
	set.Var(&control, "control", "the control socket to ask, or, with a / at its end, where to look for them")
	set.StringArrayVar(&targets, "target", nil, "the members of the mirror, `iwarp://HOST:PORT/REGION` with commas between: ask them if no pmnbd here serves it")
	who.declare(set)
	if err := call.Parse("[NAME]"); err != nil {
		return err
	}
	at, err := parseTargets(targets)
	if err != nil {
		return err
	}
	all, unheard := status.Find[report.Document](context.Background(), &control, report.Program)
	mirrors := served(all, set.Arg(0), at)
	switch {
	case len(mirrors) == 0 && len(at) > 0:
		cfg, err := who.config(at)
		if err != nil {
			return err
		}
		m, err := remote.ProbeMirror(context.Background(), cfg)
		if err != nil {
			return err
		}
		mirrors, unheard = []report.Mirror{{MirrorSnapshot: m}}, nil
	case len(mirrors) == 0:
		for _, f := range all {
			for i := range f.Document.Starting {
				if w := &f.Document.Starting[i]; set.NArg() == 0 || w.Name == set.Arg(0) {
					return fmt.Errorf("the mirror of export %s has not begun: %s. --target %s asks its members", w.Name, w.Waits, w.Target)
				}
			}
		}
		return errors.Join(unheard, fmt.Errorf("no pmnbd of this machine serves %s: looked at %v. --target iwarp://HOST:PORT/REGION,… asks the targets of one", mirrorNamed(set.Arg(0)), &control))
	}
	return errors.Join(show(call.Stdout, mirrors, *asJSON), unheard)
}

// show writes what is known of mirrors.
func show(w io.Writer, mirrors []report.Mirror, asJSON bool) error {
	if !asJSON {
		var texts []string
		for i := range mirrors {
			texts = append(texts, mirrors[i].Text(time.Now()))
		}
		_, err := io.WriteString(w, strings.Join(texts, "\n"))
		return err
	}
	if len(mirrors) > 1 {
		var names []string
		for i := range mirrors {
			names = append(names, mirrors[i].Export)
		}
		return fmt.Errorf("JSON is of one mirror, and several are served: name one of %s", strings.Join(names, ", "))
	}
	b, err := json.MarshalIndent(&mirrors[0], "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(plain.JSON(append(b, '\n')))
	return err
}

// served returns the mirrors among exports, or those of a name, or of one of the regions at.
func served(all []status.Found[report.Document], name string, at []endpoint.Endpoint) (mirrors []report.Mirror) {
	for i := range all {
		d := &all[i].Document
		for j := range d.Exports {
			e := &d.Exports[j]
			if m := e.Device.Mirror; m == nil || name != "" && e.Name != name || len(at) > 0 && !has(m, at) {
				continue
			}
			mirrors = append(mirrors, report.Mirror{Export: e.Name, PID: d.PID, MirrorSnapshot: e.Device.Mirror})
		}
	}
	return mirrors
}

// has reports whether m has one of the regions at.
func has(m *remote.MirrorSnapshot, at []endpoint.Endpoint) bool {
	for i := range m.Legs {
		l := &m.Legs[i]
		if slices.ContainsFunc(at, func(e endpoint.Endpoint) bool { return e.Address() == l.Target && e.Region == l.Region }) {
			return true
		}
	}
	return false
}
