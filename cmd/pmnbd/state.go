package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// defaultStateDir is where a daemon of this user keeps what outlives it.
func defaultStateDir() string {
	if os.Getuid() == 0 {
		return "/var/lib/pmnbd"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pmnbd")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "state", "pmnbd")
}

// defaultWindowDir is where the daemons of this user keep their windows.
func defaultWindowDir() string { return fmt.Sprintf("/dev/shm/pmnbd-%d", os.Getuid()) }

// initiatorID is the id of this initiator: the one in dir, made by the first
// process that asks.
func initiatorID(dir string) (uuid.UUID, error) {
	path := filepath.Join(dir, "initiator-id")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeID(dir, path); err != nil {
			return uuid.Nil, fmt.Errorf("make the initiator's id: %w", err)
		}
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("read the initiator's id: %w", err)
	}
	id, err := uuid.Parse(strings.TrimSpace(string(b)))
	if err != nil || id == uuid.Nil {
		return uuid.Nil, fmt.Errorf("%s holds no UUID: remove it, and a new one is made", path)
	}
	return id, nil
}

// makeID makes the file whole or not at all; who comes second keeps the first's.
func makeID(dir, path string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".initiator-id-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // linked, or not wanted
	_, err = fmt.Fprintln(f, uuid.New())
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
