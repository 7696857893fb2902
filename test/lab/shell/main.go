// Command shell boots a guest of the lab with a shell on the terminal. Its arguments name the
// parts of the guest to prepare (guest/setup lists them):
//
//	make lab-shell SETUP='rxe devdax nbd'
//
// The guest has an NVDIMM of 640 MiB in a temporary file, and bin/ on its PATH.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"pmnbd/test/lab"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab-shell:", err)
		os.Exit(1)
	}
}

func run(setup []string) error {
	dir, err := os.MkdirTemp("", "pmnbd-lab-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // our own
	nvdimm := filepath.Join(dir, "nvdimm")
	if err := os.WriteFile(nvdimm, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(nvdimm, 640<<20); err != nil {
		return err
	}
	// Every key goes to the guest, Ctrl-C too.
	if state, err := stty("-g"); err == nil {
		defer func() { _, _ = stty(state) }() // nobody is left to read an error
		if _, err := stty("raw", "-echo"); err != nil {
			return err
		}
	}
	m, err := lab.Shell(context.Background(), lab.Guest{Setup: setup, NVDIMM: nvdimm})
	if err != nil {
		return err
	}
	defer m.Close()
	_, err = m.Wait()
	return err
}

// stty changes the terminal's settings and returns what stty prints.
func stty(args ...string) (string, error) {
	cmd := exec.Command("stty", args...)
	cmd.Stdin = os.Stdin
	out, err := cmd.Output()
	return string(out), err
}
