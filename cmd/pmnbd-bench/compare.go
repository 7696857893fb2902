package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/progress"
	"pmnbd/cmd/pmnbd-bench/internal/compare"
	"pmnbd/internal/sockio"
)

const compareHelp = `Answers what an fsync costs: on a log, on groups of writes, with 1 to 64 writers, and on a database's WAL.
Takes any number of places to write to:
  [LABEL=]nbd+unix:///NAME?socket=/PATH   an export on a unix socket
  [LABEL=]nbd://HOST:PORT/NAME            an export on TCP
  [LABEL=]/dev/NAME                       a block device; needs --overwrite /dev/NAME, too
  [LABEL=]DIR                             a directory: a file is made in it, and removed at the end
The first --area bytes of exports and block devices are OVERWRITTEN. Devices that are in use, and those and
exports that have a filesystem or a partition table, are refused unless there is --force.

Usage:
  pmnbd-bench compare [flags] PLACE…
`

// lookAtMachine is how long compare looks, before it begins, whether the machine is busy.
const lookAtMachine = time.Second

// benchCompare is the command compare.
func benchCompare(ctx context.Context, call *command.Call) error {
	cfg, jsonPath, htmlPath, err := parseCompare(call)
	if err != nil {
		return err
	}
	sockio.Procs()
	if os.Getenv("GOMAXPROCS") == "" {
		// As many writers as there are block in system calls at a time (internal/sockio, wait.go).
		runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 80))
	}
	if err := errors.Join(hasDirectory("json", jsonPath), hasDirectory("html", htmlPath)); err != nil {
		return err
	}
	var meter *progress.Meter // once all places are open
	cfg.Progress = func(step string, share float64) {
		if meter == nil {
			meter = progress.Start(call.Stderr, "compare")
		}
		meter.Share(step, share)
	}
	cfg.Idle = lookAtMachine
	r, err := compare.Run(ctx, cfg)
	if meter != nil {
		meter.Stop()
	}
	if err != nil {
		return err
	}
	if err := errors.Join(saveAs(jsonPath, r.JSON), saveAs(htmlPath, r.HTML)); err != nil {
		return err
	}
	_, err = io.WriteString(call.Stdout, r.Text())
	return err
}

// hasDirectory fails if the directory is not there of the file that a flag names: better now than after
// minutes of measuring. An empty path is no file.
func hasDirectory(flag, path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("--%s %s: %w", flag, path, err)
	}
	return nil
}

// saveAs writes what make returns to a file. An empty path is no file.
func saveAs(path string, make func() ([]byte, error)) error {
	if path == "" {
		return nil
	}
	b, err := make()
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o666)
}

func parseCompare(call *command.Call) (cfg compare.Config, jsonPath, htmlPath string, err error) {
	area := flags.Size(64 << 20)
	fs := call.Flags
	fs.DurationVar(&cfg.PerCell, "time", 4*time.Second, "how long to measure each pattern on each place, over all rounds")
	fs.IntVar(&cfg.Rounds, "rounds", 4, "in how many rounds, each of which visits every place with every pattern")
	fs.IntVar(&cfg.Connections, "connections", 1, "how many connections the writers of an export share, as those of Linux's client do")
	fs.Var(&area, "area", "how much of each place to write to, from its beginning")
	fs.StringVar(&htmlPath, "html", "", "file for the report, a page with charts that needs no other file")
	fs.StringVar(&jsonPath, "json", "", "file for the report as JSON, with histograms")
	fs.StringArrayVar(&cfg.Overwrite, "overwrite", nil, "a block device whose contents may be lost, `DEVICE`; can be repeated")
	fs.BoolVar(&cfg.Force, "force", false, "overwrite exports and devices also if they are in use or have a filesystem or a partition table")
	if err := call.Parse("PLACE", "[…]"); err != nil {
		return cfg, "", "", err
	}
	cfg.Area = int64(area)
	switch {
	case cfg.PerCell < 10*time.Millisecond || cfg.PerCell > time.Hour:
		return cfg, "", "", flags.Usagef("--time %v: use 10ms to 1h", cfg.PerCell)
	case cfg.Rounds < 1 || cfg.Rounds > 1000:
		return cfg, "", "", flags.Usagef("--rounds %d: use 1 to 1000", cfg.Rounds)
	case cfg.Connections < 1 || cfg.Connections > 64:
		return cfg, "", "", flags.Usagef("--connections %d: use 1 to 64", cfg.Connections)
	case area < compare.MinArea || area > 1<<40:
		return cfg, "", "", flags.Usagef("--area %v: use 4M to 1T", area)
	}
	for i, device := range cfg.Overwrite {
		cfg.Overwrite[i] = filepath.Clean(device)
	}
	for _, arg := range fs.Args() {
		o, err := parseOperand(arg)
		if err != nil {
			return cfg, "", "", err
		}
		if slices.ContainsFunc(cfg.Operands, func(other compare.Operand) bool { return other.Label == o.Label }) {
			return cfg, "", "", flags.Usagef("two places are called %q; give them labels, as in a=%s", o.Label, o.Given)
		}
		cfg.Operands = append(cfg.Operands, o)
	}
	for _, device := range cfg.Overwrite {
		if !slices.ContainsFunc(cfg.Operands, func(o compare.Operand) bool { return o.Path == device }) {
			return cfg, "", "", flags.Usagef("--overwrite %s: no place of this command line is that device", device)
		}
	}
	return cfg, jsonPath, htmlPath, nil
}

// parseOperand reads a place. Like a target's, a label has neither ":" nor "/".
func parseOperand(arg string) (compare.Operand, error) {
	o := compare.Operand{Label: arg, Given: arg}
	if label, rest, ok := strings.Cut(arg, "="); ok && !strings.ContainsAny(label, ":/") {
		if label == "" {
			return o, flags.Usagef("%q: an empty label", arg)
		}
		o.Label, o.Given = label, rest
	}
	switch scheme, _, isURI := strings.Cut(o.Given, "://"); {
	case o.Given == "":
		return o, flags.Usagef("%q names no place: use an NBD URI, a block device or a directory", arg)
	case !isURI:
		o.Path = filepath.Clean(o.Given)
	case scheme != "nbd" && scheme != "nbd+unix":
		return o, flags.Usagef("%q is neither an NBD URI (nbd://, nbd+unix://) nor a path", o.Given)
	default:
		t, err := parseTarget(o.Given)
		if err != nil {
			return o, err
		}
		o.Network, o.Address, o.Export = t.network, t.address, t.export
	}
	return o, nil
}
