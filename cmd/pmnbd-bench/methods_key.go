package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/keyfile"
	"pmnbd/internal/endpoint"
	"pmnbd/persist/wire"
)

// An identity is which initiator methods is, and the keys that it shares with targets, by their names.
type identity struct {
	id   uuid.UUID
	keys map[string]wire.Key // nil: it has none, and uses no target that asks for one
}

// identify reads the key file at path, which has the keys of one initiator. Without a file the
// initiator is a new one.
func identify(path string) (identity, error) {
	if path == "" {
		return identity{id: uuid.New()}, nil
	}
	f, err := keyfile.Read(path)
	if err != nil {
		return identity{}, err
	}
	id := f[0].Initiator
	for _, l := range f {
		if l.Initiator != id {
			return identity{}, flags.Usagef("--key-file: %s has keys of several initiators: make a file with those of one", path)
		}
	}
	return identity{id, f.OfInitiator(id)}, nil
}

// target returns the name of the target at e, by which its key is found. A single key needs no name.
func (i *identity) target(e endpoint.Endpoint) (name string, err error) {
	if i.keys == nil {
		if e.Encrypted() || e.Name != "" {
			return "", flags.Usagef("%s needs --key-file: without a key nobody knows who is at the other end", e)
		}
		return "", nil
	}
	name = e.Target()
	if names := slices.Collect(maps.Keys(i.keys)); e.Name == "" && i.keys[name] == nil && len(names) == 1 {
		name = names[0]
	}
	if i.keys[name] == nil {
		return "", fmt.Errorf("the key file has no key of initiator %s and target %s, for %s: name the target, as in iwarp://NAME@HOST/REGION", i.id, name, e)
	}
	return name, nil
}

// key is for remote.Config.Key, nil without keys.
func (i *identity) key() func(string) []byte {
	if i.keys == nil {
		return nil
	}
	return func(target string) []byte { return i.keys[target] }
}
