package main

import (
	"sync/atomic"

	"github.com/google/uuid"

	"pmnbd/cmd/internal/keyfile"
	"pmnbd/persist/wire"
)

// A key is this initiator's key, as last read from its file.
type key struct {
	path string
	id   uuid.UUID
	now  atomic.Pointer[wire.Key]
}

// readKey reads the key of id from the file at path.
func readKey(path string, id uuid.UUID) (*key, error) {
	k := &key{path: path, id: id}
	return k, k.read()
}

// read reads the file again. If that fails the key stays what it was.
func (k *key) read() error {
	own, err := keyfile.Own(k.path, k.id)
	if err == nil {
		k.now.Store(&own)
	}
	return err
}

// get is the key that proves the next handshake.
func (k *key) get() []byte { return *k.now.Load() }
