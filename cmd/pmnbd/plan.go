package main

import (
	"fmt"
	"slices"

	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/endpoint"
)

// A plan is which exports a reload leaves, begins and ends.
type plan struct {
	cfg   config    // with which it opens exports
	all   []*export // in the order of the file; nil where an export is to be opened
	gone  []*export
	begun []*export
	keys  *keys // as the reload has read them; nil: without
}

// plan compares the exports of a configuration with those that are open.
func (s *initiator) plan(next *config) (*plan, error) {
	open := s.exports()
	p := &plan{cfg: next.later(), gone: slices.Clone(open), all: make([]*export, len(next.exports))}
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
	}
	for n, e := range next.exports {
		if p.all[n] != nil {
			continue
		}
		for _, x := range open {
			if slices.ContainsFunc(e.targets, x.has) {
				return nil, flags.Usagef("export %q would have a region of export %q, %s, which is open: reload without either first, and then with the new one",
					e.name, x.name, uris(x.targets))
			}
		}
	}
	for _, x := range p.gone {
		if d := s.ublks.of(x.name); d != "" {
			return nil, fmt.Errorf("export %q is %s: detach that first", x.name, d)
		}
	}
	return p, s.readAgain(p, next)
}

// readAgain reads the keys, which must have those of the exports that stay, and looks whether the file
// calls their targets by the names that they have.
func (s *initiator) readAgain(p *plan, next *config) error {
	if next.keyFile != "" {
		var used []string
		for _, x := range p.all {
			if x != nil {
				used = append(used, x.keys...)
			}
		}
		var err error
		if p.keys, err = readKeys(next.keyFile, s.id, used...); err != nil {
			return err
		}
	}
	for n, x := range p.all {
		if x == nil {
			continue
		}
		said, err := connecting(next.exports[n].targets, s.cfg.spin, p.keys)
		if err != nil {
			return fmt.Errorf("export %q: %w", x.name, err)
		}
		for i, e := range next.exports[n].targets {
			at := slices.IndexFunc(x.targets, e.Same)
			if at >= 0 && x.keys[at] != said[i].Name {
				return flags.Usagef("export %q has target %s in the file, whose name is %q, and expects the name %q there: another name takes a reload without the export, and one with it",
					x.name, e, said[i].Name, x.keys[at])
			}
		}
	}
	return nil
}

// same tells whether two lists name the same regions.
func same(a, b []endpoint.Endpoint) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(e endpoint.Endpoint) bool { return !slices.ContainsFunc(b, e.Same) })
}

// later returns the configuration for exports that are opened after the start. It lacks what a person
// decided for that: each reload would decide it again, for a region that nobody thought of.
func (c *config) later() config {
	l := *c
	l.acceptLoss, l.takeover, l.degraded, l.noArbiter, l.single = false, false, false, false, false
	l.member = l.arbiter.uri != ""
	return l
}
