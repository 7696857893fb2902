package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/reload"
)

const reloadHelp = `Has pmnbd read the file of --config and its keys again, as SIGHUP does, and says what came of it. Exports are added and
removed, and the keys and the log level change, while clients of other exports go on. An export that is removed is
flushed, and its region is closed. If anything in the file is wrong, if a new export cannot be opened, or if clients use
one that would be removed, nothing changes. What else has changed in the file takes a restart. --accept-loss, --takeover
and --degraded count for the start alone: a reload opens no export with them. While pmnbd starts, or is a standby, a
reload takes the keys alone; exports and log level follow when it serves.

Usage:
  pmnbd reload
`

// reloadTimeout bounds how long a reload waits for targets.
const reloadTimeout = 2 * time.Minute

// reloadable are the flags that a reload changes.
var reloadable = []string{"config", "target", "export", "key-file", "log-level"}

// settings returns what flags and file say, by flag.
func settings(set *pflag.FlagSet) map[string]string {
	all := make(map[string]string)
	set.VisitAll(func(f *pflag.Flag) { all[f.Name] = f.Value.String() })
	return all
}

// reread reads the command line and its file again.
func (s *initiator) reread() (config, map[string]string, error) {
	call := command.NewCall(s.args, io.Discard, io.Discard)
	next, err := parse(call)
	if err != nil {
		return next, nil, err
	}
	said := settings(call.Flags)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if slices.Contains(reloadable, name) || said[name] == s.said[name] {
			continue
		}
		if name == "ublk" && slices.Equal(next.ublk, s.cfg.ublk) {
			continue // it names the export now, as several need
		}
		names = append(names, name)
	}
	if (s.cfg.keyFile == "") != (next.keyFile == "") {
		names = append(names, "key-file")
	}
	if len(names) > 0 {
		return next, nil, flags.Usagef("a change of %s takes a restart: undo it, or restart pmnbd", strings.Join(names, ", "))
	}
	return next, said, nil
}

// reload does what reload.New says, once the exports are served.
func (s *initiator) reload(ctx context.Context) (*reload.Changes, error) {
	end, err := s.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	next, said, err := s.reread()
	if err != nil {
		return nil, err
	}
	plan, err := s.plan(&next)
	if err != nil {
		return nil, err
	}
	if plan.keys != nil {
		s.keys.next.Store(plan.keys)
		defer s.keys.next.Store(nil)
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if err := s.begin(ctx, plan, next.exports); err != nil {
		return nil, err
	}
	if plan.keys != nil {
		s.keys.now.Store(plan.keys)
	}
	c := &reload.Changes{Keys: next.keyFile != ""}
	var wrong error
	if said["log-level"] != s.said["log-level"] {
		wrong = s.cfg.logLevel.Set(said["log-level"])
		c.Changed = append(c.Changed, "log-level")
	}
	for _, x := range plan.begun {
		c.Added = append(c.Added, x.name)
	}
	for _, x := range plan.gone {
		c.Removed = append(c.Removed, x.name)
	}
	for n, x := range plan.all {
		x.said = next.exports[n].targets
	}
	s.cfg.exports, s.cfg.keyFile, s.said = next.exports, next.keyFile, said
	if wrong = errors.Join(wrong, s.end(plan.gone)); wrong != nil {
		c.Wrong = wrong.Error()
	}
	return c, nil
}

// begin opens the new exports, and has the server serve those of the plan, or changes nothing.
func (s *initiator) begin(ctx context.Context, p *plan, specs []exportSpec) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end(p.begun))
		}
	}()
	for n, e := range specs {
		if p.all[n] != nil {
			continue
		}
		x, err := s.dial(ctx, &p.cfg, e)
		s.shown.begins(e.name)
		if err != nil {
			return fmt.Errorf("export %q: %w", e.name, undecided(err))
		}
		p.all[n], p.begun = x, append(p.begun, x)
	}
	was := s.exports()
	s.setExports(p.all) // first, so that status finds what the server says
	if err := s.nbd.Change(s.offer(p.all)...); err != nil {
		s.setExports(was)
		return err
	}
	s.setLeaving(p.gone)
	return nil
}

// undecided is advised for an export of a reload, where no flag of the start helps.
func undecided(err error) error {
	var refused *remote.RefusedError
	held := errors.As(err, &refused) && refused.Held()
	if err = advised(err); held || errors.As(err, new(*remote.LossError)) {
		err = fmt.Errorf("%w; a reload decides nothing of the kind: serve the export once by a pmnbd of its own with that flag, end that, and reload", err)
	}
	return err
}

// end flushes and closes exports that nobody uses, all at once. If a target is away for too long, what
// is not flushed stays in the window, for the next start or reload that has the export.
func (s *initiator) end(gone []*export) error {
	if len(gone) == 0 {
		return nil
	}
	s.setLeaving(gone)
	defer s.setLeaving(nil)
	defer daemon.Every(daemon.SayEvery, func() { s.sayUnflushed("an export ends: the rest is flushed first", gone) })()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.drainTimeout)
	defer cancel()
	return closing(gone, func(x *export) error { return x.dev.Shutdown(ctx) })
}
