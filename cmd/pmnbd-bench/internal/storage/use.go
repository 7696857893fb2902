package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"pmnbd/internal/plain"
)

// Contents returns what kinds of filesystems, partition tables and the like have a signature on a
// block device or in a file, such as "ext4". It asks wipefs of util-linux, which reads and changes
// nothing when called like this.
func Contents(ctx context.Context, path string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "wipefs", "--no-act", "--noheadings", "--output", "TYPE", "--", path)
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
