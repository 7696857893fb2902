package main

import (
	"time"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/nbd/kernel"
	"pmnbd/status"
)

const attachHelp = `Makes a block device of an export that pmnbd serves here on a unix socket: the one named EXPORT or by a
URI, or the only one that there is. It prints a line when the device is there.

With one connection it ends then. With several it stays, to replace connections that end, until SIGTERM
(the device stays attached) or pmnbd detach. A device whose pmnbd was restarted gets its new connections
by itself, or with one connection when attach is run again. docs/attach.md tells the rest.

Usage:
  pmnbd attach [EXPORT|nbd+unix:///EXPORT?socket=PATH] /dev/nbdX [--connections N] [--timeout DURATION]

  pmnbd attach log /dev/nbd0 && mkfs.ext4 /dev/nbd0
`

const (
	// defaultDeadTimeout is how long I/O waits for a pmnbd that is gone: an operator
	// shall have the time to bring it back.
	defaultDeadTimeout = time.Hour
	// requestTimeout is what the kernel takes with several connections anyway; said,
	// it shows which connections the kernel took (kernel.Taken).
	requestTimeout = 30 * time.Second
	// maxAttachConnections: more than cores is no use.
	maxAttachConnections = 64
)

func attach(call *command.Call) error {
	k, err := parseAttach(call)
	if err != nil {
		return err
	}
	return k.run(call.Stdout, call.Stderr)
}

func parseAttach(call *command.Call) (*keeper, error) {
	k := &keeper{host: &thisHost, control: status.DefaultPlace()}
	set := call.Flags
	count := set.Int("connections", 1, "how many connections the device has, `N`; with more than one the command stays")
	flags.DurationVar(set, &k.timeout, "timeout", defaultDeadTimeout, "how long I/O waits for a pmnbd that ended, before it and the device fail")
	set.Var(&k.control, "control", "the control socket of the server, or, with a / at its end, where to look for it")
	err := call.Parse("[EXPORT|URI]", "[/dev/nbdX]")
	if err != nil {
		return nil, err
	}
	switch set.NArg() {
	case 0:
		return nil, flags.Usagef("/dev/nbdX is missing: give [EXPORT|URI] /dev/nbdX")
	case 2:
		if k.want, err = parseWant(set.Arg(0)); err != nil {
			return nil, flags.Usagef("%v", err)
		}
	}
	if k.dev, err = kernel.ParseDevice(set.Arg(set.NArg() - 1)); err != nil {
		return nil, flags.Usagef("%v", err)
	}
	k.dev.Root = k.host.root
	if *count < 1 || *count > maxAttachConnections {
		return nil, flags.Usagef("--connections %d: use 1 to %d", *count, maxAttachConnections)
	}
	if k.timeout < time.Second || k.timeout%time.Second != 0 {
		return nil, flags.Usagef("--timeout %v: use whole seconds, such as 10m", k.timeout)
	}
	k.socks = make([]sock, *count)
	return k, nil
}
