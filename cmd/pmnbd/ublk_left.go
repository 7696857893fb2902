package main

import (
	"errors"
	"fmt"
	"strings"

	"pmnbd/cmd/internal/command"
	"pmnbd/ublk"
)

// errNotFollowing is the error of a block device whose kernel would miss writes that were answered
// to it.
var errNotFollowing = errors.New("its server was another one: acknowledged writes may have been lost since, or another initiator may have had the region")

// A ublkKernel says which block devices this machine has, including those that no process serves any more.
type ublkKernel struct {
	find    func(identity uint64) ([]int, error)
	inspect func(number int) (ublk.State, error)
}

// continues reports whether the block device with that number exists and may go on with an export that has
// identity. The error says why the export cannot be that block device.
func (k ublkKernel) continues(export string, number int, identity uint64) (bool, error) {
	found, err := k.find(identity)
	if err == nil {
		err = beside(export, number, found)
	}
	if err != nil || number == ublk.Any {
		return false, err
	}
	switch has, err := k.inspect(number); {
	case errors.Is(err, ublk.ErrNone):
		return false, nil
	case err != nil:
		return false, err
	case has.Identity == identity:
		return true, nil
	case ours(has.Identity):
		return false, command.WithCode(fmt.Errorf("%s: %w: let its users see it fail, with pmnbd detach --force, then start again", ublk.Path(number), errNotFollowing), exitLoss)
	default:
		return false, fmt.Errorf("%s, of pid %d: %w", ublk.Path(number), has.PID, ublk.ErrOther)
	}
}

// beside returns an error if the export could become the block device with that number beside one that waits: left
// are those with the identity of the export.
//
// The kernel holds what a server had not answered, and gives it to the next server of that device. If a second device
// has flushed newer writes by then, the held ones go over them. A person has to decide, so the code is exitLoss: a
// service manager that tried again would serve NBD clients for a moment each time.
func beside(export string, number int, left []int) error {
	switch {
	case len(left) == 0 || len(left) == 1 && left[0] == number:
		return nil
	case len(left) == 1:
		path := ublk.Path(left[0])
		return command.WithCode(fmt.Errorf("export %q is %s already: an earlier pmnbd left that device, and its I/O waits. Continue it (pmnbd attach --ublk %s %s, or serve --ublk %s=%s), or give up what its users have not flushed (pmnbd detach --force %s)",
			export, path, export, path, export, path, path), exitLoss)
	}
	paths := make([]string, len(left)) // builds from before this check made several
	for i, n := range left {
		paths[i] = ublk.Path(n)
	}
	return command.WithCode(fmt.Errorf("export %q is %s already: earlier pmnbds left these devices, and their I/O waits. Only one of them can continue. Detach each of the others with pmnbd detach --force, which gives up what its users have not flushed",
		export, strings.Join(paths, " and ")), exitLoss)
}
