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

// keys are those that this initiator shares with targets, as last read from their file.
type keys struct {
	path string
	id   uuid.UUID
	used []string // the names of targets without whose keys the file is not taken
	now  atomic.Pointer[map[string]wire.Key]
}

// readKeys reads the keys of id from the file at path.
func readKeys(path string, id uuid.UUID) (*keys, error) {
	k := &keys{path: path, id: id}
	return k, k.read()
}

// read reads the file again. If that fails the keys stay what they were.
func (k *keys) read() error {
	f, err := keyfile.Read(k.path)
	if err != nil {
		return err
	}
	own := f.OfInitiator(k.id)
	if len(own) == 0 {
		return fmt.Errorf("key file: %s has no key of this initiator: add a line that begins with %s, as pmnbd-target key new prints it", k.path, k.id)
	}
	for _, name := range k.used {
		if own[name] == nil {
			return k.without(name, own)
		}
	}
	k.now.Store(&own)
	return nil
}

// target returns the name of the target at e: the one that e has, or else e's host, if there is a key
// of that name. An initiator with a single key needs no name, because no other target will do.
func (k *keys) target(e endpoint.Endpoint) (name string, err error) {
	own := *k.now.Load()
	name = e.Target()
	if only := slices.Collect(maps.Keys(own)); e.Name == "" && own[name] == nil && len(only) == 1 {
		name = only[0]
	}
	if own[name] == nil {
		return "", k.without(name, own)
	}
	k.used = append(k.used, name)
	return name, nil
}

// without is the error that there is no key of the target called name.
func (k *keys) without(name string, own map[string]wire.Key) error {
	return fmt.Errorf("key file: %s has no key of this initiator and target %s, but of %s: name the target, as in iwarp://NAME@HOST/REGION, or add a line that begins with %s %s",
		k.path, name, strings.Join(slices.Sorted(maps.Keys(own)), ", "), k.id, name)
}

// get is the key that proves the next handshake with the target called name; nil if there is none.
func (k *keys) get(name string) []byte { return (*k.now.Load())[name] }

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
