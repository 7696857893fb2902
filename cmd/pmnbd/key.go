package main

import (
	"sync/atomic"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/keyfile"
	"pmnbd/persist/wire"
)

// A key is this initiator's, as its file said last.
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

func (k *key) read() error {
	own, err := keyfile.Own(k.path, k.id)
	if err == nil {
		k.now.Store(&own)
	}
	return err
}

// get is the key by which the next handshake is proven.
func (k *key) get() wire.Key { return *k.now.Load() }

// reload reads the file again. If that fails the key stays what it was; nil has none.
func (k *key) reload(log *zap.Logger) {
	if k == nil {
		daemon.NothingToReload(log)
		return
	}
	if err := k.read(); err != nil {
		log.Error("key not changed", zap.Error(err))
		return
	}
	log.Info("key read again: it counts from the next handshake", zap.String("file", k.path))
}
