package attach

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"pmnbd/cmd/pmnbd/internal/kernel"
)

// Detach takes the device away and waits, until ctx ends, for the kernel to release it. It
// refuses while a file system, swap or another layer is on the device, unless force is set:
// those then get I/O errors and lose what they have not flushed. was reports whether the
// device was attached.
func Detach(ctx context.Context, dev kernel.Device, force bool) (was bool, err error) {
	return thisHost.detach(ctx, dev, force)
}

func (h *host) detach(ctx context.Context, dev kernel.Device, force bool) (was bool, err error) {
	l, err := h.lock(ctx, dev)
	if err != nil {
		return false, err
	}
	a, err := l.attachment()
	if err != nil || a == nil {
		l.unlock()
		return false, err
	}
	// The kernel takes any time for the rest, and cannot be interrupted. If ctx ends first,
	// the goroutine goes on alone and keeps the lock, so that nobody else begins with the
	// device.
	type result struct {
		was bool
		err error
	}
	done := make(chan result, 1)
	var opened atomic.Bool
	go func() {
		defer l.unlock()
		was, err := l.disconnect(force, &opened)
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
	l, err = h.lock(ctx, dev)
	if errors.Is(err, errBusy) {
		return true, nil // a new attach has the lock, and replaces what is remembered
	}
	if err != nil {
		return true, err
	}
	defer l.unlock()
	return true, l.forget(a.Backend)
}

// disconnect disconnects the device if it is ours and, unless force is set, nothing is on
// it. It sets opened once it has the device open.
func (l *locked) disconnect(force bool, opened *atomic.Bool) (was bool, err error) {
	f, err := l.Hold(!force)
	if errors.Is(err, kernel.ErrInUse) {
		return true, fmt.Errorf("unmount it first: %w", err)
	}
	if err != nil {
		return true, err
	}
	opened.Store(true)
	defer func() { _ = f.Close() }() // the kernel releases the device with this
	a, err := l.attachment()         // which stays what it is while we hold the device
	if err != nil || a == nil {
		return false, err
	}
	c, err := l.host.client()
	if err != nil {
		return true, err
	}
	defer func() { _ = c.Close() }()
	before := a.Detached // by a detach whose device somebody still has open
	a.Detached = true
	if err := l.save(a); err != nil {
		return true, err
	}
	err = c.Disconnect(l.Index)
	if errors.Is(err, kernel.ErrPermission) { // nothing was disconnected; after other errors nobody knows
		a.Detached = before
		err = errors.Join(err, l.save(a))
	}
	return true, err
}
