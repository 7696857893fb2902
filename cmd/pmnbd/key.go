package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/keyfile"
	"pmnbd/internal/endpoint"
	"pmnbd/persist/wire"
)

// keys are those that this initiator shares with targets, as read once from their file. They never change.
type keys struct {
	path string
	id   uuid.UUID
	own  map[string]wire.Key // by the name of the target
}

// readKeys reads the keys of id from the file at path, which must have those of the targets in used.
func readKeys(path string, id uuid.UUID, used ...string) (*keys, error) {
	f, err := keyfile.Read(path)
	if err != nil {
		return nil, err
	}
	k := &keys{path: path, id: id, own: f.OfInitiator(id)}
	if len(k.own) == 0 {
		return nil, fmt.Errorf("key file: %s has no key of this initiator: add a line that begins with %s, as pmnbd-target key new prints it", path, id)
	}
	for _, name := range used {
		if k.own[name] == nil {
			return nil, k.without(name)
		}
	}
	return k, nil
}

// target returns the name of the target at e: the one that e has, or else e's host, if there is a key
// of that name. An initiator with a single key needs no name, because no other target will do.
func (k *keys) target(e endpoint.Endpoint) (name string, err error) {
	name = e.Target()
	if only := slices.Collect(maps.Keys(k.own)); e.Name == "" && k.own[name] == nil && len(only) == 1 {
		name = only[0]
	}
	if k.own[name] == nil {
		return "", k.without(name)
	}
	return name, nil
}

// without is the error that there is no key of the target called name.
func (k *keys) without(name string) error {
	return fmt.Errorf("key file: %s has no key of this initiator and target %s, but of %s: name the target, as in iwarp://NAME@HOST/REGION, or add a line that begins with %s %s",
		k.path, name, strings.Join(slices.Sorted(maps.Keys(k.own)), ", "), k.id, name)
}

// get is the key that proves the next handshake with the target called name; nil if there is none.
func (k *keys) get(name string) []byte { return k.own[name] }

// A keyring has the keys that count now, and, while a reload opens exports, those that will. It is empty
// without --key-file.
type keyring struct{ now, next atomic.Pointer[keys] }

// latest returns the keys with which exports are opened.
func (r *keyring) latest() *keys { return cmp.Or(r.next.Load(), r.now.Load()) }

// of returns what a device of that generation of keys proves its handshakes with: these keys while a reload opens
// the device, and from then on those that count. Devices that were there before notice a reload once it is through.
func (r *keyring) of(own *keys) func(target string) []byte {
	return func(target string) []byte {
		if r.next.Load() == own {
			return own.get(target)
		}
		return r.now.Load().get(target)
	}
}

const keyHelp = `Shows the keys that this initiator and targets share. pmnbd-target key new makes them.

Usage:
  pmnbd key show FILE

show      shows which initiator and target share each key, and its fingerprint.
`

const idHelp = `Prints the id of this initiator, which targets know it by. If it has none yet, this makes it.

Usage:
  pmnbd id [--state-dir DIR]
`

// showID runs `pmnbd id`.
func showID(call *command.Call) error {
	dir := call.Flags.String("state-dir", defaultStateDir(), "where the id is, a `directory`")
	if err := call.Parse(); err != nil {
		return err
	}
	if *dir == "" {
		return flags.Usagef("--state-dir is empty: name a directory, or leave the flag out for %s", defaultStateDir())
	}
	id, err := remote.InitiatorID(*dir)
	if err != nil {
		return err
	}
	_, err = io.WriteString(call.Stdout, uuid.UUID(id).String()+"\n")
	return err
}
