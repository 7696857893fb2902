package attach

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pmnbd/ublk"
)

// DetachUblk is Detach for /dev/ublkbN. ours tells by the identity whether a pmnbd made it.
func DetachUblk(ctx context.Context, number int, force bool, ours func(identity uint64) bool) (was bool, err error) {
	has, err := ublk.Inspect(number)
	switch {
	case errors.Is(err, ublk.ErrNone):
		return false, nil
	case err != nil:
		return false, err
	case !ours(has.Identity):
		return true, fmt.Errorf("%s, of pid %d: %w", ublk.Path(number), has.PID, errForeign)
	case !force && !has.Served:
		return true, fmt.Errorf("no pmnbd serves %s, so what is not written yet would be lost: start pmnbd again, or use --force", ublk.Path(number))
	}
	// As with nbd, the kernel takes any time for the rest.
	stopped := make(chan error, 1)
	go func() { stopped <- stopUblk(number, has.Identity, force) }()
	select {
	case err := <-stopped:
		if err != nil {
			return true, err
		}
	case <-ctx.Done():
		return true, fmt.Errorf("the kernel has not stopped %s: its pmnbd waits for the target. End that pmnbd, and detach again", ublk.Path(number))
	}
	deleted := make(chan error, 1)
	go func() { deleted <- ublk.Delete(number, has.Identity) }()
	select {
	case err := <-deleted:
		return true, err
	case <-ctx.Done():
		return true, fmt.Errorf("%s is stopped and its I/O fails, but a process still has it open or mounted, or its pmnbd hangs", ublk.Path(number))
	}
}

// stopUblk makes what was written durable, unless force is set, and stops the device. It refuses
// while a file system, swap or another layer is on it, unless force is set.
func stopUblk(number int, identity uint64, force bool) error {
	if force {
		return ublk.Stop(number, identity)
	}
	f, err := os.OpenFile(ublk.Path(number), os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("unmount it first: a file system, swap or another layer is on %s", ublk.Path(number))
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the kernel releases the device with this
	if err := f.Sync(); err != nil {
		return fmt.Errorf("flush %s: %w", ublk.Path(number), err)
	}
	return ublk.Stop(number, identity)
}
