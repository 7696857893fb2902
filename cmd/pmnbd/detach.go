package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/nbd/kernel"
)

const detachHelp = `Takes away a block device that pmnbd attach made. Unmount it first: it is refused while a file system,
swap or another layer is on it. It is no error if the device is not attached.

With --force it is disconnected all the same: what is on it gets I/O errors, and loses what it has not
flushed. That is for a device whose server does not come back: unmounting would wait for it.

Usage:
  pmnbd detach /dev/nbdX [--force] [--timeout DURATION]
`

func detach(call *command.Call) error {
	var timeout time.Duration
	flags.DurationVar(call.Flags, &timeout, "timeout", 30*time.Second, "how long to wait until the kernel lets go of the device")
	force := call.Flags.Bool("force", false, "disconnect a device that is mounted or otherwise used")
	if err := call.Parse("/dev/nbdX"); err != nil {
		return err
	}
	dev, err := kernel.ParseDevice(call.Flags.Arg(0))
	if err != nil {
		return flags.Usagef("%v", err)
	}
	if timeout <= 0 {
		return flags.Usagef("--timeout %v: use a duration, such as 30s", timeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	dev.Root = thisHost.root
	was, err := thisHost.detach(ctx, dev, *force)
	if err != nil {
		return err
	}
	if !was {
		_, err = fmt.Fprintf(call.Stdout, "%v is not attached\n", dev)
		return err
	}
	_, err = fmt.Fprintf(call.Stdout, "detached %v\n", dev)
	return err
}

// detach takes the device away and waits until the kernel has let it go. was tells
// that it was attached.
func (h *host) detach(ctx context.Context, dev kernel.Device, force bool) (was bool, err error) {
	unlock, err := h.lock(ctx, dev)
	if err != nil {
		return false, err
	}
	a, err := h.load(dev)
	if err != nil || a == nil {
		unlock()
		return false, err
	}
	// What the kernel does now is not bounded and not to be interrupted. If it is not
	// done in time it goes on without us, and nobody else begins with the device.
	type result struct {
		was bool
		err error
	}
	done := make(chan result, 1)
	var opened atomic.Bool
	go func() {
		defer unlock()
		was, err := h.disconnect(dev, force, &opened)
		done <- result{was, err}
	}()
	select {
	case r := <-done:
		if r.err != nil || !r.was {
			return r.was, r.err
		}
	case <-ctx.Done():
		if opened.Load() {
			return true, fmt.Errorf("the kernel has not disconnected %v: its server takes no bytes; end that, and it will be", dev)
		}
		return true, fmt.Errorf("%v cannot be opened, and is not detached: somebody else who opens it waits for its server", dev)
	}
	if err := dev.WaitReleased(ctx, a.Backend); err != nil {
		return true, err
	}
	if unlock, err = h.lock(ctx, dev); err != nil {
		if errors.Is(err, errBusy) {
			err = nil // by who attaches it anew, and replaces what is remembered
		}
		return true, err
	}
	defer unlock()
	return true, h.forget(dev, a.Backend)
}

// disconnect disconnects the device if it is ours and nothing is on it, or force.
func (h *host) disconnect(dev kernel.Device, force bool, opened *atomic.Bool) (was bool, err error) {
	f, err := dev.Hold(!force)
	if errors.Is(err, kernel.ErrInUse) {
		return true, fmt.Errorf("unmount it first: %w", err)
	}
	if err != nil {
		return true, err
	}
	opened.Store(true)
	defer func() { _ = f.Close() }() // and with it goes the device
	// Held now, it stays what it is.
	a, err := h.load(dev)
	if err != nil || a == nil {
		return false, err
	}
	a.Detached = true
	if err := h.save(dev, a); err != nil {
		return true, err
	}
	c, err := h.client()
	if err != nil {
		return true, err
	}
	defer func() { _ = c.Close() }()
	return true, c.Disconnect(dev.Index)
}
