package main

import (
	"context"
	"fmt"
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
  pmnbd detach /dev/nbdX [--force] [--timeout DURATION]
`

// runDetach runs `pmnbd detach`.
func runDetach(call *command.Call) error {
	timeout := call.Flags.Duration("timeout", 30*time.Second, "how long to wait for the kernel to release the device")
	force := call.Flags.Bool("force", false, "disconnect a device that is mounted or otherwise used")
	if err := call.Parse("/dev/nbdX"); err != nil {
		return err
	}
	dev, err := kernel.ParseDevice(call.Flags.Arg(0))
	if err != nil {
		return flags.Usagef("%v", err)
	}
	if *timeout <= 0 {
		return flags.Usagef("--timeout %v: use a duration, such as 30s", *timeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	was, err := attach.Detach(ctx, dev, *force)
	if err != nil {
		return err
	}
	text := "detached %v\n"
	if !was {
		text = "%v is not attached\n"
	}
	_, err = fmt.Fprintf(call.Stdout, text, dev)
	return err
}
