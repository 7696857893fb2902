package main

import (
	"fmt"
	"os"
	"path/filepath"
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
