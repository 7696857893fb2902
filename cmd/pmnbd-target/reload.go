package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/reload"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
)

const reloadHelp = `Has pmnbd-target read the file of --config and its keys again, as SIGHUP does, and says what came of it. Regions are
added and removed, and allow, encrypted, the keys and the log level change, while sessions on other regions go on. If
anything in the file is wrong, or a region to remove is held by an initiator, nothing changes. What else has changed in
the file takes a restart.

Usage:
  pmnbd-target reload
`

// reloadable are the settings that a reload changes.
var reloadable = []string{"region", "key-file", "log-level"}

// settingsChanged lists the settings in which two configurations differ, but for those that a reload
// changes.
func settingsChanged(a, b *config) (names []string) {
	for i := range reflect.TypeFor[config]().NumField() {
		name := reflect.TypeFor[config]().Field(i).Tag.Get("toml")
		if !slices.Contains(reloadable, name) && !reflect.DeepEqual(reflect.ValueOf(*a).Field(i).Interface(), reflect.ValueOf(*b).Field(i).Interface()) {
			names = append(names, name)
		}
	}
	return names
}

// reread reads the command line and its file again.
func (s *service) reread() (config, error) {
	next, err := parse(command.NewCall(s.args, io.Discard, io.Discard), func(set *pflag.FlagSet) { set.Bool("check", false, "") })
	if err == nil {
		err = next.check()
	}
	if err != nil {
		return next, err
	}
	names := settingsChanged(&s.said, &next)
	if (s.said.KeyFile == "") != (next.KeyFile == "") {
		names = append(names, "key-file")
	}
	if len(names) > 0 {
		return next, flags.Usagef("a change of %s takes a restart: undo it, or restart pmnbd-target", strings.Join(names, ", "))
	}
	return next, nil
}

// reload does what reload.New says.
func (s *service) reload(context.Context) (_ *reload.Changes, err error) {
	next, err := s.reread()
	if err != nil {
		return nil, err
	}
	named := next
	named.Name = s.cfg.Name // the host's may be it
	var keys target.Keys
	if next.KeyFile != "" {
		if keys, err = readKeys(&named, s.log); err != nil {
			return nil, err
		}
	}
	c := &reload.Changes{Keys: next.KeyFile != ""}
	regions, begun, err := s.openRegions(&next, c)
	var removed []*region.Region
	for _, r := range s.regions {
		if !slices.Contains(regions, r) {
			removed = append(removed, r)
		}
	}
	var unsaved []error
	if err == nil {
		s.noteLast(removed)
		offer := target.Offer{Regions: regions, Allow: next.allow(), Encrypted: next.encrypted(), Keys: keys}
		err = s.target.Change(offer, func() { unsaved = s.saveLast(removed) })
		s.noteLast(nil)
	}
	if err != nil {
		for _, undo := range begun {
			err = errors.Join(err, undo())
		}
		return nil, err
	}
	if was := s.said.LogLevel.String(); next.LogLevel.String() != was {
		err = s.cfg.LogLevel.Set(next.LogLevel.String())
		c.Changed = append(c.Changed, "log-level")
	}
	for _, failed := range unsaved {
		err = errors.Join(err, fmt.Errorf("it is removed: %w: name it again, or a shutdown loses it", failed))
	}
	for _, r := range removed {
		err = errors.Join(err, r.Close())
		c.Removed = append(c.Removed, r.Name())
	}
	if err != nil {
		c.Wrong = err.Error()
	}
	for _, r := range regions {
		if slices.Contains(c.Added, r.Name()) {
			s.logServed(r)
		}
	}
	s.regions, s.said = regions, next
	s.cfg.Regions, s.cfg.KeyFile = next.Regions, next.KeyFile
	return c, nil
}

// openRegions returns the regions of a configuration: those that are served, and new ones, which it
// opens. c gets what differs. begun takes the new ones back, also after an error.
func (s *service) openRegions(next *config, c *reload.Changes) (regions []*region.Region, begun []func() error, err error) {
	for _, n := range next.Regions {
		i := slices.IndexFunc(s.said.Regions, func(r servedRegion) bool { return r.Name == n.Name })
		if i < 0 {
			r, undo, err := begin(&n, next.AllowVolatile)
			if err != nil {
				return nil, begun, fmt.Errorf("region %s: %w", n.Name, err)
			}
			regions, begun, c.Added = append(regions, r), append(begun, undo), append(c.Added, n.Name)
			continue
		}
		was, at := &s.said.Regions[i], slices.IndexFunc(s.regions, func(r *region.Region) bool { return r.Name() == n.Name })
		r := s.regions[at]
		switch {
		case !slices.Equal(was.paths(), n.paths()):
			return nil, begun, n.usage("its path has changed: remove it, reload, add it with the other path, and reload")
		case was.Save != n.Save:
			return nil, begun, n.usage("the directory of its image has changed: remove it, reload, move the image, add it with the other directory, and reload")
		case n.Size != 0 && uint64(n.Size) != r.Size():
			return nil, begun, n.usage("it has %d bytes, and its size is %v now", r.Size(), n.Size)
		case !slices.Equal(was.Allow, n.Allow) || was.Encrypted != n.Encrypted:
			c.Changed = append(c.Changed, n.Name)
		}
		regions = append(regions, r)
	}
	return regions, begun, nil
}

// begin opens a region. undo closes it, and removes it if begin made it. The memory of a region of class
// protected stays: its image may not be what it is any more, and the next open uses it.
func begin(n *servedRegion, volatile bool) (r *region.Region, undo func() error, err error) {
	_, missing := os.Lstat(n.Path.string)
	r, err = region.Open(n.Path.string, n.options(volatile))
	if err != nil {
		return nil, nil, err
	}
	return r, func() error {
		err := r.Close()
		if errors.Is(missing, fs.ErrNotExist) && n.Path.string != region.PathMemfd && n.Save.string == "" {
			err = errors.Join(err, region.Remove(n.Path.string, true))
		}
		return err
	}, nil
}
