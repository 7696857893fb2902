package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/pmnbd/internal/attach"
	"pmnbd/cmd/pmnbd/internal/kernel"
)

const detachHelp = `Takes away a block device that pmnbd attach made. Unmount it first: detach refuses while a file system, swap
or another layer is on the device. A device that is not attached is not an error.

With --force, detach disconnects the device all the same. What is on it then gets I/O errors and loses the
data that it has not flushed. Use it for a device whose server does not come back: unmounting would wait
for that.

Usage:
  pmnbd detach /dev/nbdX|/dev/ublkbN [--force] [--timeout DURATION]
`

// runDetach runs `pmnbd detach`.
func runDetach(call *command.Call) error {
	timeout := call.Flags.Duration("timeout", 30*time.Second, "how long to wait for the kernel to release the device")
	force := call.Flags.Bool("force", false, "disconnect a device that is mounted or otherwise used")
	if err := call.Parse("/dev/nbdX|/dev/ublkbN"); err != nil {
		return err
	}
	if *timeout <= 0 {
		return flags.Usagef("--timeout %v: use a duration, such as 30s", *timeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	path := call.Flags.Arg(0)
	was, err := detach(ctx, path, *force)
	if err != nil {
		return err
	}
	text := "detached %v\n"
	if !was {
		text = "%v is not attached\n"
	}
	_, err = fmt.Fprintf(call.Stdout, text, path)
	return err
}

// detach takes a block device of either kind away. was reports whether there was one.
func detach(ctx context.Context, path string, force bool) (was bool, err error) {
	if strings.HasPrefix(path, ublkPrefix) {
		number, err := parseUblkDevice(path)
		if err != nil {
			return false, flags.Usagef("%v", err)
		}
		return attach.DetachUblk(ctx, number, force, ours)
	}
	dev, err := kernel.ParseDevice(path)
	if err != nil {
		return false, flags.Usagef("%v", err)
	}
	return attach.Detach(ctx, dev, force)
}
