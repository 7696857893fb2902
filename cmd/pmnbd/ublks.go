package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/ublk"
)

// ublks are the block devices that a process serves.
type ublks struct {
	kernel  ublkKernel
	again   func(export string, number int) error // continues a block device whose server the kernel forgot
	mu      sync.Mutex
	devices []ublkDevice
	past    map[string]ublk.Snapshot // by export: what those of its devices counted that have ended
	closed  bool                     // no more begin
	closing chan struct{}            // closed with that
	opening sync.WaitGroup           // of those that begin: see whileOpen
	watch   sync.WaitGroup           // of devices
	failed  chan error               // gets the error of a device that ended by itself
}

// A ublkDevice is the block device of an export, which has no other one: each queue may keep chunks of the
// arenas, and dial makes these for the queues of one block device.
type ublkDevice struct {
	*ublk.Device
	export string
	gone   chan struct{} // closed when it is none of ublks any more
}

// admit returns an error if a block device of this process has the export, or the number. It waits for one that is
// ending: pmnbd detach returns when the kernel has let go of it, a moment before its place is free. The caller has
// its turn, or is the start.
func (u *ublks) admit(ctx context.Context, export string, number int) error {
	for _, d := range u.list() {
		switch {
		case d.export != export && d.Number() != number:
		case d.Ending():
			select {
			case <-d.gone:
			case <-ctx.Done():
				return fmt.Errorf("%s, the block device of export %s, has not ended: %w", d.Path(), d.export, ctx.Err())
			}
		case d.Number() == number:
			return fmt.Errorf("%s is export %s here already", d.Path(), d.export)
		default:
			return fmt.Errorf("export %q is %s already, and can be one ublk device only: use that one, or detach it first", export, d.Path())
		}
	}
	return nil
}

// add takes a device in, unless the process drains.
func (u *ublks) add(d ublkDevice) error {
	u.mu.Lock()
	closed := u.closed
	if !closed {
		u.devices = append(u.devices, d)
		u.watch.Go(func() { u.await(d) })
	}
	u.mu.Unlock()
	if closed {
		return errors.Join(errUblksEnd, d.Shutdown(context.Background()))
	}
	return nil
}

// errUblksEnd is the error of a block device that comes too late.
var errUblksEnd = errors.New("pmnbd ends")

// await forgets a block device when it has ended, and tells run if it did so by itself. If that was the kernel's
// mistake, the device goes on.
func (u *ublks) await(d ublkDevice) {
	<-d.Done()
	u.forget(d)
	u.ended(d.export, d.Number(), d.Err())
}

// ended does what the end of a block device asks for: err is why it ended by itself.
func (u *ublks) ended(export string, number int, err error) {
	if errors.Is(err, ublk.ErrForgotten) {
		err = u.again(export, number)
	}
	if err != nil && !errors.Is(err, ublk.ErrRemoved) {
		select {
		case u.failed <- err:
		default: // run has one already
		}
	}
}

// forget frees the place of a block device that has ended. What it has counted stays.
func (u *ublks) forget(d ublkDevice) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.devices = slices.DeleteFunc(u.devices, func(o ublkDevice) bool { return o.Device == d.Device })
	u.keepLocked(d.export, d.Snapshot())
	close(d.gone)
}

// keepLocked keeps what a device of an export has counted.
func (u *ublks) keepLocked(export string, s ublk.Snapshot) {
	if u.past == nil {
		u.past = make(map[string]ublk.Snapshot)
	}
	all := u.past[export]
	all.Commands.Add(&s.Commands)
	all.Latency.Add(&s.Latency)
	u.past[export] = all
}

// whileOpen says that a block device is being opened, until the caller calls stop. A shutdown meanwhile calls cancel, and
// waits for stop: the export must not be closed while its block device may still take requests. After a shutdown has
// begun, whileOpen fails.
func (u *ublks) whileOpen(cancel func()) (stop func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, errUblksEnd
	}
	u.opening.Add(1)
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-u.closing:
			cancel()
		case <-ended:
		}
	})
	return func() { close(ended); watch.Wait(); u.opening.Done() }, nil
}

// opened waits until no block device is being opened any more, or for the end of ctx.
func (u *ublks) opened(ctx context.Context) error {
	none := make(chan struct{})
	go func() { u.opening.Wait(); close(none) }()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a block device is still being opened: %w", ctx.Err())
	}
}

// list returns the block devices.
func (u *ublks) list() []ublkDevice {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.devices)
}

// of returns the path of a block device of an export, "" if there is none.
func (u *ublks) of(export string) string {
	for _, d := range u.list() {
		if d.export == export {
			return d.Path()
		}
	}
	return ""
}

// shutdown ends all block devices, which stay: their I/O waits for the next pmnbd. It also ends those that are being
// opened. If ctx ends first, some of either may wait for their exports: close these, and then wait.
func (u *ublks) shutdown(ctx context.Context) error {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	close(u.closing)
	devices := u.list()
	errs := make([]error, len(devices))
	var all sync.WaitGroup
	for i, d := range devices {
		all.Go(func() { errs[i] = d.Shutdown(ctx) })
	}
	late := u.opened(ctx)
	all.Wait()
	return errors.Join(append(errs, late)...)
}

// wait waits until all block devices have ended, and nothing opens one.
func (u *ublks) wait() {
	u.opening.Wait()
	u.watch.Wait()
}

// report adds the block devices of an export to what it says: its commands are those of all its clients.
func (u *ublks) report(e *report.Export) {
	u.mu.Lock()
	defer u.mu.Unlock()
	count := func(s ublk.Snapshot) {
		e.Commands.Read.Add(s.Commands.Read)
		e.Commands.Write.Add(s.Commands.Write)
		e.Commands.Flush.Add(s.Commands.Flush)
		e.Commands.Trim.Add(s.Commands.Trim)
		e.Commands.WriteZeroes.Add(s.Commands.WriteZeroes)
		e.Latency.Add(&s.Latency)
	}
	for _, d := range u.devices {
		if d.export == e.Name {
			shot := d.Snapshot()
			count(shot)
			e.Ublk = append(e.Ublk, shot)
		}
	}
	count(u.past[e.Name])
}
