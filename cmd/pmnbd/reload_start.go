package main

import (
	"context"
	"slices"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/reload"
	"pmnbd/internal/endpoint"
)

// firstKeys reads the keys for the start. From then on SIGHUP reads them again.
func (s *initiator) firstKeys() error {
	// No change of the file may fall between reading it and waiting for SIGHUP. So a reload may begin first, and waits.
	end, err := s.turn(context.Background())
	if err != nil {
		return err
	}
	s.reloader.OnHangup()
	if s.cfg.keyFile != "" {
		k, err := readKeys(s.cfg.keyFile, s.id)
		if err != nil {
			return err // it stays this one's turn: a reload that waits ends with the start
		}
		s.keys.now.Store(k)
	}
	end()
	return nil
}

// reloadKeys is what a reload does during the start, which may wait for a target or another host for long: it takes the
// keys alone. Exports and the log level are left to the reload that follows the start.
func (s *initiator) reloadKeys(ctx context.Context) (*reload.Changes, error) {
	end, err := s.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	next, said, err := s.reread()
	if err != nil {
		return nil, err
	}
	c := &reload.Changes{
		Keys:  next.keyFile != "",
		Later: !slices.EqualFunc(next.exports, s.cfg.exports, exportSpec.equal) || said["log-level"] != s.said["log-level"],
	}
	if !c.Keys {
		return c, nil
	}
	k, err := s.instead(next.keyFile)
	if err != nil {
		return nil, err
	}
	s.keys.now.Store(k)
	return c, nil
}

// instead reads the keys that replace those of the start. They must have the key of each target, under the name by which
// those before call it: a device asks by the name with which it began.
func (s *initiator) instead(path string) (*keys, error) {
	was := s.keys.now.Load()
	var targets []endpoint.Endpoint
	var names []string
	for _, e := range s.cfg.exports {
		for _, t := range e.targets {
			if name, err := was.target(t); err == nil { // or else the start ends when it comes to that export
				targets, names = append(targets, t), append(names, name)
			}
		}
	}
	k, err := readKeys(path, s.id, names...)
	if err != nil {
		return nil, err
	}
	for i, t := range targets {
		name, err := k.target(t)
		if err != nil {
			return nil, err
		}
		if name != names[i] {
			return nil, flags.Usagef("key file: %s has target %s as %q, and pmnbd has begun to open it as %q: restart pmnbd to use the other name", path, t, name, names[i])
		}
	}
	return k, nil
}
