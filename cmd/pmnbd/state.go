package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"pmnbd/backend/remote"
)

// defaultStateDir is the directory in which the daemons of this user keep what outlives them.
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

// defaultWindowDir is the directory in which the daemons of this user keep their windows.
func defaultWindowDir() string { return fmt.Sprintf("/dev/shm/pmnbd-%d", os.Getuid()) }

// initiatorID returns the id of this initiator, from a file in dir. The first process that
// asks makes it.
func initiatorID(dir string) (id uuid.UUID, err error) {
	state, err := remote.OpenDirectory(dir)
	if err != nil {
		return uuid.Nil, fmt.Errorf("the state directory: %w", err)
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	const name = "initiator-id"
	b, err := state.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := state.Write(name, []byte(uuid.NewString()+"\n"), true); err != nil { // a second process keeps the id of the first
			return uuid.Nil, fmt.Errorf("make the initiator's id: %w", err)
		}
		b, err = state.Read(name)
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("read the initiator's id: %w", err)
	}
	id, err = uuid.Parse(strings.TrimSpace(string(b)))
	if err != nil || id == uuid.Nil {
		return uuid.Nil, fmt.Errorf("%s holds no UUID: remove it, and a new one is made", filepath.Join(dir, name))
	}
	return id, nil
}
