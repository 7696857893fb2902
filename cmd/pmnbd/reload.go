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

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/reload"
	"pmnbd/internal/endpoint"
)

const reloadHelp = `Has pmnbd read the file of --config and its keys again, as SIGHUP does, and says what came of it. Exports are added and
removed, and the keys and the log level change, while clients of other exports go on. An export that is removed is
flushed, and its region is closed. If anything in the file is wrong, if a new export cannot be opened, or if clients use
one that would be removed, nothing changes. What else has changed in the file takes a restart.

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
		if !slices.Contains(reloadable, name) && said[name] != s.said[name] {
			names = append(names, name)
		}
	}
	if (s.cfg.keyFile == "") != (next.keyFile == "") {
		names = append(names, "key-file")
	}
	if len(names) > 0 {
		return next, nil, flags.Usagef("a change of %s takes a restart: undo it, or restart pmnbd", strings.Join(names, ", "))
	}
	return next, said, nil
}

// reload does what reload.New says.
func (s *initiator) reload(ctx context.Context) (*reload.Changes, error) {
	if !s.shown.serving() {
		return nil, errors.New("it does not serve yet: pmnbd status says what it waits for")
	}
	s.ordering.Lock()
	defer s.ordering.Unlock()
	next, said, err := s.reread()
	if err != nil {
		return nil, err
	}
	plan, err := s.plan(&next)
	if err != nil {
		return nil, err
	}
	if next.keyFile != "" {
		k := &keys{path: next.keyFile, id: s.id, used: plan.keys}
		if err := k.read(); err != nil {
			return nil, err
		}
		s.keys.next.Store(k)
		defer s.keys.next.Store(nil)
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if err := s.begin(ctx, plan); err != nil {
		return nil, err
	}
	if k := s.keys.next.Load(); k != nil {
		s.keys.now.Store(k)
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
		wrong = errors.Join(wrong, s.end(x))
	}
	if wrong != nil {
		c.Wrong = wrong.Error()
	}
	s.cfg.exports, s.cfg.keyFile, s.said = next.exports, next.keyFile, said
	return c, nil
}

// A plan is which exports a reload leaves, begins and ends.
type plan struct {
	all   []*export // in the order of the file; nil where an export is to be opened
	specs []exportSpec
	keys  []string // the targets of those that stay
	gone  []*export
	begun []*export
}

// plan compares the exports of a configuration with those that are open.
func (s *initiator) plan(next *config) (*plan, error) {
	p := &plan{gone: s.exports(), specs: next.exports, all: make([]*export, len(next.exports))}
	for n, e := range next.exports {
		i := slices.IndexFunc(p.gone, func(x *export) bool { return x.name == e.name })
		if i < 0 {
			continue
		}
		x := p.gone[i]
		// pmnbd mirror may have changed the members, and the file may say so already, or not yet.
		if !same(e.targets, x.said) && !same(e.targets, x.targets) {
			return nil, flags.Usagef("export %q has other targets in the file, %s, and is served from %s: pmnbd mirror changes the members of a mirror; another region takes a reload without the export, and one with it",
				e.name, uris(e.targets), uris(x.targets))
		}
		p.all[n], p.gone = x, slices.Delete(p.gone, i, i+1)
		p.keys = append(p.keys, x.keys...)
	}
	for _, x := range p.gone {
		if d := s.ublks.of(x.name); d != "" {
			return nil, fmt.Errorf("export %q is %s: detach that first", x.name, d)
		}
	}
	p.keys = slices.DeleteFunc(p.keys, func(name string) bool { return name == "" }) // without keys
	return p, nil
}

// same tells whether two lists name the same regions.
func same(a, b []endpoint.Endpoint) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(e endpoint.Endpoint) bool { return !slices.ContainsFunc(b, e.Same) })
}

// begin opens the new exports, and has the server serve those of the plan, or changes nothing.
func (s *initiator) begin(ctx context.Context, p *plan) (err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, x := range p.begun {
			err = errors.Join(err, x.dev.Close())
		}
	}()
	for n, e := range p.specs {
		if p.all[n] != nil {
			continue
		}
		x, err := s.dial(ctx, e)
		s.shown.begins(e.name)
		if err != nil {
			return fmt.Errorf("export %q: %w", e.name, advised(err))
		}
		p.all[n], p.begun = x, append(p.begun, x)
	}
	was := s.exports()
	s.setExports(p.all) // first, so that status finds what the server says
	if err := s.nbd.Change(s.offer(p.all)...); err != nil {
		s.setExports(was)
		return err
	}
	return nil
}

// end flushes and closes an export that nobody uses. If its target is away for too long, what is not
// flushed stays in the window, for the next start that has the export.
func (s *initiator) end(x *export) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.drainTimeout)
	defer cancel()
	if err := x.dev.Shutdown(ctx); err != nil {
		return fmt.Errorf("export %q: %w", x.name, err)
	}
	return nil
}
