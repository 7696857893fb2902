// Package keyfile reads the keys with which initiators and targets prove themselves to each
// other, and any other file that is a secret.
//
// It exists so that both daemons read one format, and refuse a file that other users can read
// or change. The package imports persist/wire.
package keyfile

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"pmnbd/persist/wire"
)

const (
	// maxSize bounds a file, in bytes: enough for the keys of some thousand initiators.
	maxSize = 1 << 20
	// maxKeys is how many keys an initiator may have: the current one, and the one that is to
	// replace it. More would be keys that somebody forgot to remove.
	maxKeys = 2
)

// Read reads the file at path, which must be a Secret. Each line has the id of an initiator
// and one of its keys, of at least 64 hexadecimal digits; an id may have two lines. Read skips
// empty lines and everything behind a #. Its errors never show a key.
func Read(path string) (map[[16]byte][]wire.Key, error) {
	b, err := Secret(path, maxSize)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	keys := make(map[[16]byte][]wire.Key)
	for i, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		id, key, err := parse(fields)
		if err == nil && len(keys[id]) == maxKeys {
			err = fmt.Errorf("initiator %s has more than %d keys", uuid.UUID(id), maxKeys)
		}
		if err != nil {
			return nil, fmt.Errorf("key file: %s:%d: %w", path, i+1, err)
		}
		keys[id] = append(keys[id], key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("key file: %s has no key: each line is the id of an initiator and a key", path)
	}
	return keys, nil
}

// Own reads the key of initiator id from the file at path, the last one if there are two.
func Own(path string, id [16]byte) (wire.Key, error) {
	keys, err := Read(path)
	if err != nil {
		return nil, err
	}
	own := keys[id]
	if len(own) == 0 {
		return nil, fmt.Errorf("key file: %s has no key of this initiator: add a line that begins with %s", path, uuid.UUID(id))
	}
	return own[len(own)-1], nil
}

// parse reads the two words of a line. Its errors do not show the key.
func parse(fields []string) (id [16]byte, key wire.Key, err error) {
	if len(fields) != 2 {
		return id, nil, fmt.Errorf("%d words: use the id of an initiator and a key", len(fields))
	}
	u, err := uuid.Parse(fields[0])
	if err != nil || u == uuid.Nil {
		return id, nil, errors.New("the first word is not the id of an initiator, a UUID")
	}
	key, err = hex.DecodeString(fields[1])
	switch {
	case err != nil:
		return id, nil, errors.New("the key is not hexadecimal")
	case len(key) < wire.MinKey:
		return id, nil, fmt.Errorf("the key has %d bytes: use %d or more, such as openssl rand -hex 32 makes", len(key), wire.MinKey)
	case bytes.Count(key, key[:1]) == len(key):
		return id, nil, errors.New("the key is one byte many times: make it with openssl rand -hex 32")
	}
	return u, key, nil
}
