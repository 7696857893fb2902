package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"pmnbd/internal/plain"
)

// sbin are the directories in which systems have wipefs. Not every user's PATH has them.
var sbin = []string{"/usr/sbin", "/sbin"}

// wipefs returns the path of wipefs, or its name if it is nowhere.
func wipefs() string {
	const name = "wipefs"
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	for _, dir := range sbin {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return name
}

// Contents returns what kinds of filesystems, partition tables and the like have a signature on a
// block device or in a file, such as "ext4". It asks wipefs of util-linux, which reads and changes
// nothing when called like this.
func Contents(ctx context.Context, path string) ([]string, error) {
	cmd := exec.CommandContext(ctx, wipefs(), "--no-act", "--noheadings", "--output", "TYPE", "--", path)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("cannot tell what is on it: wipefs of util-linux is missing")
	case err != nil:
		return nil, fmt.Errorf("cannot tell what is on it: wipefs: %w: %s", err, plain.Text(strings.TrimSpace(errs.String())))
	}
	var kinds []string
	for _, k := range strings.Fields(string(out)) {
		kinds = append(kinds, plain.Text(k))
	}
	return kinds, nil
}
