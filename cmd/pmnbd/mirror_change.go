package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/internal/endpoint"
)

const mirrorRemoveHelp = `Takes a member out of a mirror that pmnbd serves on this machine. LEG is its letter, as pmnbd mirror status shows
it, or its URI. The mirror goes on with the others. The region becomes an ordinary one, and what it has counts as
lost; if its target is away, it keeps its record, and no mirror takes it for a member any more.

It refuses to leave fewer copies than --min-copies, and to remove one of two members.

Usage:
  pmnbd mirror remove [NAME] LEG

  pmnbd mirror remove C
`

const mirrorAddHelp = `Makes a region a member of a mirror that pmnbd serves on this machine. The region must be as large as the others,
and nobody may serve it. Everything is copied to it while clients go on; until that is through it is no copy.
pmnbd mirror status shows how far it is. The next pmnbd serve must name it: the command prints the list.

A region that holds data, or that was a member of this mirror before, is overwritten only with --force.

Usage:
  pmnbd mirror add [NAME] iwarp://HOST:PORT/REGION [--force]
`

const mirrorReplaceHelp = `Puts a region in the place of the member OLD of a mirror that pmnbd serves on this machine. The command checks the
region first, as pmnbd mirror add does. If the region does not fit, the mirror stays as it is.

Of two or three members, the command then adds the region. If OLD is in sync, it waits until everything is copied to the
region. It removes OLD last. A mirror has four members at most: of four, the command removes OLD before it adds the region.

Usage:
  pmnbd mirror replace [NAME] OLD iwarp://HOST:PORT/REGION [--force]
`

const mirrorSetHelp = `Changes a mirror that pmnbd serves on this machine. --min-copies says how many members must have a write before its
FLUSH succeeds. It is not more than the members that are in sync.

Usage:
  pmnbd mirror set [NAME] --min-copies N
`

// A chosen mirror is one that a pmnbd of this machine serves.
type chosen struct {
	report.Mirror
	socket string
	size   uint64
}

// mirrorNamed is the mirror of export name for people, or any.
func mirrorNamed(name string) string {
	if name == "" {
		return "a mirror"
	}
	return fmt.Sprintf("mirror %q", name)
}

// choose finds the mirror of export name, or the only one.
func choose(control *status.Place, name string) (*chosen, error) {
	all, unheard := status.Find[report.Document](context.Background(), control, report.Program)
	var mirrors []chosen
	var names []string
	for i := range all {
		d := &all[i].Document
		for j := range d.Exports {
			if e := &d.Exports[j]; e.Device.Mirror != nil && (name == "" || e.Name == name) {
				m := report.Mirror{Export: e.Name, PID: d.PID, MirrorSnapshot: e.Device.Mirror}
				mirrors = append(mirrors, chosen{m, all[i].Socket, e.Device.Size})
				names = append(names, e.Name)
			}
		}
		for j := range d.Starting {
			if w := &d.Starting[j]; name == "" || w.Name == name {
				unheard = errors.Join(unheard, fmt.Errorf("the mirror of export %s has not begun: %s", w.Name, w.Waits))
			}
		}
	}
	switch {
	case len(mirrors) == 1:
		return &mirrors[0], nil
	case len(mirrors) > 1:
		return nil, flags.Usagef("several mirrors are served: name one of %s", strings.Join(names, ", "))
	}
	return nil, errors.Join(fmt.Errorf("no pmnbd of this machine serves %s: looked at %v", mirrorNamed(name), control), unheard)
}

// member returns the letter of the member that people call leg: by its letter, or its URI.
func (m *chosen) member(leg string) (string, error) {
	if letter := strings.ToUpper(leg); remote.MemberSlot(letter) >= 0 {
		if !strings.Contains(m.Members, letter) {
			return "", fmt.Errorf("mirror %s has no member %s: it has %s", m.Export, letter, m.Members)
		}
		return letter, nil
	}
	e, err := flags.ParseTarget(leg)
	if err != nil {
		return "", flags.Usagef("%q is neither a member's letter, A to D, nor a URI such as iwarp://HOST:PORT/REGION", leg)
	}
	for i := range m.Legs {
		if l := &m.Legs[i]; (address{l.Target, l.Region}).is(e) {
			if l.Slot == "" {
				return "", fmt.Errorf("%s is no member of mirror %s, or was not reached: use the member's letter, one of %s", e, m.Export, m.Members)
			}
			return l.Slot, nil
		}
	}
	return "", fmt.Errorf("no member of mirror %s is at %s: pmnbd mirror status %s shows them", m.Export, e, m.Export)
}

// give has the pmnbd of m carry out o.
func (m *chosen) give(o order) (*done, error) {
	o.Export = m.Export
	b, err := json.Marshal(&o)
	if err != nil {
		return nil, err
	}
	ctx, stop := daemon.UntilSignal()
	defer stop()
	d := &done{}
	if err := status.Do(ctx, m.socket, orderPath, url.Values{"order": {string(b)}}, func(line json.RawMessage) error { return json.Unmarshal(line, d) }); err != nil {
		return nil, err
	}
	if d.Mirror == nil {
		return nil, errors.New("the process did not say what it has done")
	}
	return d, nil
}

// named splits the arguments of a command: the mirror's name, if there is one more than wanted, and the
// rest.
func named(call *command.Call, wanted ...string) (name string, rest []string, err error) {
	if err := call.Parse("[…]"); err != nil {
		return "", nil, err
	}
	args := call.Flags.Args()
	switch len(args) - len(wanted) {
	case 0:
		return "", args, nil
	case 1:
		return args[0], args[1:], nil
	}
	form := strings.Join(append([]string{"[NAME]"}, wanted...), " ")
	if len(args) < len(wanted) {
		return "", nil, flags.Usagef("%s is missing: give %s", wanted[len(args)], form)
	}
	return "", nil, flags.Usagef("%q is one argument too many: give %s", args[len(wanted)+1], form)
}

// removeMember runs `pmnbd mirror remove`.
func removeMember(call *command.Call) error {
	control := status.DefaultPlace()
	call.Flags.Var(&control, "control", "the control socket of the pmnbd, or, with a / at its end, where to look for it")
	name, args, err := named(call, "LEG")
	if err != nil {
		return err
	}
	m, err := choose(&control, name)
	if err != nil {
		return err
	}
	letter, err := m.member(args[0])
	if err != nil {
		return err
	}
	return m.remove(call, order{Member: letter})
}

// remove has m remove o.Member, and tells people.
func (m *chosen) remove(call *command.Call, o order) error {
	letter := o.Member
	at := addressOf(m.MirrorSnapshot, letter)
	o.Do = orderRemove
	d, err := m.give(o)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("removed member %s from mirror %s, which has %s\n", letter, m.Export, d.Mirror.Members)
	if d.NotTold != "" {
		text += fmt.Sprintf("its region was not told, and keeps its record: %s. It is no member any more. pmnbd mirror add --force takes it back, pmnbd-target region create --force makes it anew\n", d.NotTold)
	} else {
		text += fmt.Sprintf("region %s at %s is an ordinary region now, and what it has counts as lost\n", at.region, at.target)
	}
	_, err = fmt.Fprintf(call.Stdout, "%sthe next start names the rest: pmnbd serve --target %s\n", text, d.Targets)
	return err
}

// setMirror runs `pmnbd mirror set`.
func setMirror(call *command.Call) error {
	control := status.DefaultPlace()
	minCopies := call.Flags.Int("min-copies", 0, "how many members must have a write before its FLUSH succeeds, `N`")
	call.Flags.Var(&control, "control", "the control socket of the pmnbd, or, with a / at its end, where to look for it")
	name, _, err := named(call)
	if err != nil {
		return err
	}
	if !call.Flags.Changed("min-copies") {
		return flags.Usagef("--min-copies is missing: use 1 to 4, and not more than there are members in sync")
	}
	if *minCopies < 1 || *minCopies > 4 {
		return flags.Usagef("--min-copies %d: use 1 to 4, and not more than there are members in sync", *minCopies)
	}
	m, err := choose(&control, name)
	if err != nil {
		return err
	}
	d, err := m.give(order{Do: orderSet, MinCopies: *minCopies})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(call.Stdout, "FLUSH of mirror %s waits for %d of %d copies at least\n", m.Export, d.Mirror.MinCopies, len(d.Mirror.Members))
	return err
}

// An addition is what add and replace know of the region to add.
type addition struct {
	who               identity
	force, acceptLoss bool
	at                endpoint.Endpoint
}

func (a *addition) declare(call *command.Call) {
	call.Flags.BoolVar(&a.force, "force", false, "take a region that holds data, or was a member of this mirror: what it has is lost")
	call.Flags.BoolVar(&a.acceptLoss, "accept-loss", false, "take a region although its last session was not closed: what a pmnbd has in its window for it is lost")
	a.who.declare(call.Flags)
}

// parse reads the region's URI.
func (a *addition) parse(uri string) (err error) {
	at, err := parseMembers([]string{uri})
	if err != nil {
		return err
	}
	a.at = at[0]
	return nil
}

// prepare readies the region for m, which member leaves unless that is empty.
func (a *addition) prepare(call *command.Call, m *chosen, leaver string) (p remote.Prepared, err error) {
	for i := range m.Legs {
		if l := &m.Legs[i]; (address{l.Target, l.Region}).is(a.at) && l.Slot != "" {
			return p, fmt.Errorf("%s is member %s of mirror %s already", a.at, l.Slot, m.Export)
		}
	}
	if len(m.Members) >= 4 && leaver == "" {
		return p, fmt.Errorf("mirror %s has four members, and that is the most: remove one first", m.Export)
	}
	cfg, err := a.who.config([]endpoint.Endpoint{a.at})
	if err != nil {
		return p, err
	}
	cfg.AcceptLoss, cfg.Log = a.acceptLoss, daemon.Slog(daemon.Log(call.Stderr))
	ctx, stop := daemon.UntilSignal()
	defer stop()
	p, err = remote.PrepareMember(ctx, cfg, m.Set, m.size, a.force)
	if errors.As(err, new(*remote.DataError)) {
		return p, fmt.Errorf("%w: --force overwrites it", err)
	}
	if err = advised(err); errors.As(err, new(*remote.LossError)) {
		err = command.WithCode(err, exitLoss)
	}
	return p, err
}

// addMember runs `pmnbd mirror add`.
func addMember(call *command.Call) error {
	var a addition
	control := status.DefaultPlace()
	call.Flags.Var(&control, "control", "the control socket of the pmnbd, or, with a / at its end, where to look for it")
	a.declare(call)
	name, args, err := named(call, "iwarp://HOST:PORT/REGION")
	if err == nil {
		err = a.parse(args[0])
	}
	if err != nil {
		return err
	}
	m, err := choose(&control, name)
	if err != nil {
		return err
	}
	p, err := a.prepare(call, m, "")
	if err != nil {
		return err
	}
	_, err = a.add(call, m, p)
	return err
}

// add has m take the region, and tells people.
func (a *addition) add(call *command.Call, m *chosen, p remote.Prepared) (*done, error) {
	d, err := m.give(order{Do: orderAdd, Target: a.at.String(), Prepared: p})
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(call.Stdout, "%s is member %s of mirror %s, and everything is copied to it: pmnbd mirror status %s\nthe next start must name it: pmnbd serve --target %s\n",
		a.at, d.Member, m.Export, m.Export, d.Targets)
	return d, err
}

// replaceMember runs `pmnbd mirror replace`.
func replaceMember(call *command.Call) error {
	var a addition
	control := status.DefaultPlace()
	call.Flags.Var(&control, "control", "the control socket of the pmnbd, or, with a / at its end, where to look for it")
	a.declare(call)
	name, args, err := named(call, "OLD", "iwarp://HOST:PORT/REGION")
	if err == nil {
		err = a.parse(args[1])
	}
	if err != nil {
		return err
	}
	m, err := choose(&control, name)
	if err != nil {
		return err
	}
	old, err := m.member(args[0])
	if err != nil {
		return err
	}
	inSync, full := strings.Contains(m.F, old), len(m.Members) == 4
	if full && inSync && len(m.F)-1 < m.MinCopies {
		return fmt.Errorf("mirror %s has four members, and without %s it has fewer copies than %d: lower that first with pmnbd mirror set --min-copies", m.Export, old, m.MinCopies)
	}
	p, err := a.prepare(call, m, old)
	if err != nil {
		return err
	}
	if full {
		// There is no place for the new one before the old one is gone, and what that has is lost then. So
		// everything that can be wrong with the new one is looked at before, here and by m's pmnbd.
		if err := m.remove(call, order{Member: old, Target: a.at.String(), Prepared: p}); err != nil {
			return err
		}
		if _, err := a.add(call, m, p); err != nil {
			return fmt.Errorf("%w: member %s is removed already, so use pmnbd mirror add %s %s next", err, old, m.Export, a.at)
		}
		return nil
	}
	d, err := a.add(call, m, p)
	if err != nil {
		return err
	}
	if inSync {
		if err := m.awaitCopy(call, &control, d.Member, old); err != nil {
			return err
		}
	}
	return m.remove(call, order{Member: old})
}

// awaitCopy waits until a member is in sync.
func (m *chosen) awaitCopy(call *command.Call, control *status.Place, member, old string) error {
	ctx, stop := daemon.UntilSignal()
	defer stop()
	later := fmt.Errorf("member %s is not in sync yet, and %s stays: remove that later with pmnbd mirror remove %s", member, old, old)
	for {
		now, err := choose(control, m.Export)
		if err != nil {
			return errors.Join(later, err)
		}
		if strings.Contains(now.F, member) && !now.Pending {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return later
		}
	}
}
