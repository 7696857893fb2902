// Package keyfile reads the keys with which initiators and targets prove themselves to each
// other, and any other file that is a secret.
//
// It exists so that both daemons read one format, and refuse a file that other users can read
// or change. The package imports persist/wire, and cmd/internal/command for the commands that
// make and show keys.
package keyfile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"pmnbd/persist/wire"
)

const (
	// maxSize bounds a file, in bytes: enough for the keys of some thousand initiators.
	maxSize = 1 << 20
	// maxKeys is how many keys an initiator and a target may share: the current one, and the one
	// that is to replace it. More would be keys that somebody forgot to remove.
	maxKeys = 2
)

// Form is the form of a line, for people.
const Form = "INITIATOR-ID TARGET-NAME KEY"

// A Line is a line of a file: a key, and the two ends that share it.
type Line struct {
	wire.Ends
	Key wire.Key
}

// A File is the lines of a file, in their order.
type File []Line

// Read reads the file at path, which must be a Secret. Each line has the id of an initiator, the
// name of a target, and a key that they share, of at least 64 hexadecimal digits; a pair may have
// two lines. Read skips empty lines and everything behind a #. Its errors never show a key.
func Read(path string) (File, error) {
	b, err := Secret(path, maxSize)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	f, at, err := parse(string(b))
	switch {
	case err != nil:
		return nil, fmt.Errorf("key file: %s:%d: %w", path, at, err)
	case len(f) == 0:
		return nil, fmt.Errorf("key file: %s has no key: each line is %s, as pmnbd-target key new prints it", path, Form)
	}
	return f, nil
}

// parse reads the text of a file. Its errors come with the number of the line.
func parse(text string) (f File, at int, err error) {
	pairs, keys := make(map[wire.Ends]int), make(map[string]int)
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		at := i + 1
		l, err := parseLine(fields)
		if err != nil {
			return nil, at, err
		}
		if pairs[l.Ends]++; pairs[l.Ends] > maxKeys {
			return nil, at, fmt.Errorf("initiator %s and target %s share more than %d keys", uuid.UUID(l.Initiator), l.Target, maxKeys)
		}
		// A target that knew another target's key could answer in its place.
		if before := keys[string(l.Key)]; before != 0 {
			return nil, at, fmt.Errorf("the key of line %d again: each initiator and target share a key of their own, as pmnbd-target key new makes it", before)
		}
		keys[string(l.Key)] = at
		f = append(f, l)
	}
	return f, 0, nil
}

// parseLine reads the words of a line. Its errors do not show the key.
func parseLine(fields []string) (l Line, err error) {
	if len(fields) == 2 && len(fields[1]) >= 2*wire.MinKey {
		return l, errors.New("a line of the old format, which names no target: give each initiator and target a key of their own, as pmnbd-target key new makes it (docs/security.md, Keys)")
	}
	if len(fields) != 3 {
		return l, fmt.Errorf("the number of words is %d: use %s", len(fields), Form)
	}
	u, err := uuid.Parse(fields[0])
	if err != nil || u == uuid.Nil {
		return l, errors.New("the first word is not the id of an initiator, a UUID")
	}
	if wire.CheckTarget(fields[1]) != nil {
		// It may be a key in the wrong place, so the error does not show it.
		return l, fmt.Errorf("the second word is not the name of a target: 1 to %d letters, digits, dots, hyphens and underscores", wire.MaxTarget)
	}
	key, err := hex.DecodeString(fields[2])
	switch {
	case err != nil:
		return l, errors.New("the key is not hexadecimal")
	case len(key) < wire.MinKey:
		return l, fmt.Errorf("the key has %d bytes: use %d or more, as pmnbd-target key new makes", len(key), wire.MinKey)
	case bytes.Count(key, key[:1]) == len(key):
		return l, errors.New("the key is one byte many times: make it with pmnbd-target key new")
	}
	return Line{wire.Ends{Initiator: u, Target: fields[1]}, key}, nil
}

// OfTarget returns the keys that initiators share with the target called name, by their ids.
func (f File) OfTarget(name string) map[[16]byte][]wire.Key {
	keys := make(map[[16]byte][]wire.Key)
	for _, l := range f {
		if l.Target == name {
			keys[l.Initiator] = append(keys[l.Initiator], l.Key)
		}
	}
	return keys
}

// OfInitiator returns the keys that initiator id shares with targets, by their names: the last one
// of each.
func (f File) OfInitiator(id [16]byte) map[string]wire.Key {
	keys := make(map[string]wire.Key)
	for _, l := range f {
		if l.Initiator == id {
			keys[l.Target] = l.Key
		}
	}
	return keys
}

// Targets returns the names of the targets that f has keys of, sorted.
func (f File) Targets() (names []string) {
	for _, l := range f {
		names = append(names, l.Target)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
