package main

import (
	"cmp"
	"slices"
	"strings"

	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/endpoint"
	"pmnbd/nbd/wire"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// An exportSpec is a region, or a mirror of several, and the name of its export.
type exportSpec struct {
	name    string
	targets []endpoint.Endpoint // several of a mirror
}

// equal tells whether x and o say the same.
func (x exportSpec) equal(o exportSpec) bool {
	return x.name == o.name && slices.Equal(x.targets, o.targets)
}

// parseExports pairs every --target with its --export. A mirror is called as its first member unless
// it has a name.
func parseExports(targets, names []string) ([]exportSpec, error) {
	if len(targets) == 0 {
		return nil, flags.Usagef("no region: name it with --target iwarp://HOST:PORT/REGION, or below an [[export]] in the file of --config")
	}
	if len(names) > 0 && len(names) != len(targets) {
		return nil, flags.Usagef("--export is given %s and --target %s: name every export, or none", flags.Count(len(names), "time"), flags.Count(len(targets), "time"))
	}
	all := make([]exportSpec, 0, len(targets))
	for i, s := range targets {
		members, err := parseMembers(strings.Split(s, ","))
		if err != nil {
			return nil, err
		}
		e := exportSpec{members[0].Region, members}
		if len(names) > 0 {
			e.name = cmp.Or(names[i], e.name)
		}
		if len(e.name) > wire.MaxString {
			return nil, flags.Usagef("--export has %d bytes: an export's name has at most %d", len(e.name), wire.MaxString)
		}
		for _, other := range all {
			if other.name == e.name {
				return nil, flags.Usagef("two exports are named %q: give every --target a name of its own with --export", e.name)
			}
			for _, m := range e.targets {
				if slices.ContainsFunc(other.targets, m.Same) {
					return nil, flags.Usagef("--target %s is given twice: a region is one export", m)
				}
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// parseMembers reads the URIs of a region, or of the members of a mirror.
func parseMembers(uris []string) ([]endpoint.Endpoint, error) {
	if len(uris) > persist.MaxMembers {
		return nil, flags.Usagef("--target names %d regions: a mirror has at most %d members", len(uris), persist.MaxMembers)
	}
	members := make([]endpoint.Endpoint, 0, len(uris))
	for _, s := range uris {
		if s == "" && len(uris) > 1 {
			return nil, flags.Usagef("--target %s: an address is missing at a comma", strings.Join(uris, ","))
		}
		m, err := flags.ParseTarget(s)
		if err != nil {
			return nil, err
		}
		if err := region.CheckName(m.Region); err != nil {
			return nil, flags.Usagef("--target %s: %v", s, err)
		}
		if slices.ContainsFunc(members, m.Same) {
			return nil, flags.Usagef("--target names %s twice: the members of a mirror are different regions", m)
		}
		members = append(members, m)
	}
	return members, nil
}
