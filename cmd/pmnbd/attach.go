package main

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/attach"
	"pmnbd/cmd/pmnbd/internal/kernel"
)

const attachHelp = `Makes a block device of an export that pmnbd serves on a unix socket of this machine: the export EXPORT, the
one of the URI, or the only one. Prints a line when the device is ready.

With one connection the command then ends. With several it stays and replaces connections that end, until
pmnbd detach or SIGTERM, which leaves the device attached. When pmnbd was restarted, a command that stayed
connects the device again; a device with one connection needs attach to be run again. docs/attach.md has
the details.

With --ublk the pmnbd that serves the export serves the block device, too, without a socket between. It needs
root then. After a restart of that pmnbd the same command, with the /dev/ublkbN, connects the device again;
pmnbd serve --ublk does it by itself. pmnbd makes no second ublk device of the export while one with the
same data waits: connect that one again, or give it up with pmnbd detach --force.

Usage:
  pmnbd attach [EXPORT|nbd+unix:///EXPORT?socket=PATH] /dev/nbdX [--connections N] [--timeout DURATION]
  pmnbd attach --ublk [EXPORT] [/dev/ublkbN]

  pmnbd attach log /dev/nbd0 && mkfs.ext4 /dev/nbd0
  pmnbd attach --ublk log
`

const (
	// defaultDeadTimeout is how long I/O waits for a pmnbd that is gone. It gives an operator
	// the time to bring that back.
	defaultDeadTimeout = time.Hour
	// maxAttachConnections is more than there is a use for: one for each core will do.
	maxAttachConnections = 64
)

// runAttach runs `pmnbd attach`.
func runAttach(call *command.Call) error {
	cfg, byUblk, err := parseAttach(call)
	if err != nil {
		return err
	}
	if byUblk {
		return runAttachUblk(call, &cfg.Control, call.Flags.Args())
	}
	k := attach.New(cfg)
	defer k.Close()
	device, err := k.Attach(context.Background())
	if device == nil {
		return err
	}
	if _, err := fmt.Fprintf(call.Stdout, "attached %v to %v\n", cfg.Device, device); err != nil {
		return err
	}
	if cfg.Connections == 1 {
		return err
	}
	ctx, stop := daemon.UntilSignal()
	defer stop()
	return k.Keep(ctx, daemon.Log(call.Stderr).With(zap.Stringer("device", cfg.Device)))
}

// parseAttach reads the flags of attach. With byUblk the arguments are still to be read.
func parseAttach(call *command.Call) (cfg attach.Config, byUblk bool, err error) {
	cfg.Control = status.DefaultPlace()
	set := call.Flags
	set.IntVar(&cfg.Connections, "connections", 1, "how many connections the device has, `N`; with more than one the command stays")
	set.DurationVar(&cfg.Timeout, "timeout", defaultDeadTimeout, "how long I/O waits for a pmnbd that has ended, before it and the device fail")
	set.Var(&cfg.Control, "control", "the control socket of the server, or, with a / at its end, where to look for it")
	set.BoolVar(&byUblk, "ublk", false, "make a ublk block device, which that server then serves by itself; without /dev/ublkbN the kernel chooses one")
	if err := call.Parse("[EXPORT|URI]", "[/dev/nbdX]"); err != nil {
		return cfg, false, err
	}
	if byUblk {
		for _, name := range []string{"connections", "timeout"} {
			if set.Changed(name) {
				return cfg, true, flags.Usagef("--%s is for /dev/nbdX: a ublk device has no connection, and waits for its pmnbd for ever", name)
			}
		}
		return cfg, true, nil
	}
	switch set.NArg() {
	case 0:
		return cfg, false, flags.Usagef("/dev/nbdX is missing: give [EXPORT|URI] /dev/nbdX")
	case 2:
		if cfg.Want, err = attach.ParseWant(set.Arg(0)); err != nil {
			return cfg, false, flags.Usagef("%v", err)
		}
	}
	device := set.Arg(set.NArg() - 1)
	if _, err := parseUblkDevice(device); err == nil {
		return cfg, false, flags.Usagef("%s is attached with --ublk", device)
	}
	if cfg.Device, err = kernel.ParseDevice(device); err != nil {
		return cfg, false, flags.Usagef("%v", err)
	}
	if cfg.Connections < 1 || cfg.Connections > maxAttachConnections {
		return cfg, false, flags.Usagef("--connections %d: use 1 to %d", cfg.Connections, maxAttachConnections)
	}
	if cfg.Timeout < time.Second || cfg.Timeout%time.Second != 0 {
		return cfg, false, flags.Usagef("--timeout %v: use whole seconds, such as 10m", cfg.Timeout)
	}
	return cfg, false, nil
}
