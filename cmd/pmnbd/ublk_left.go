package main

import (
	"errors"
	"fmt"

	"pmnbd/cmd/internal/command"
	"pmnbd/ublk"
)

// errNotFollowing is the error of a block device whose kernel would miss writes that were answered
// to it.
var errNotFollowing = errors.New("its server was another one: acknowledged writes may have been lost since, or another initiator may have had the region")

// A ublkKernel says which block devices this machine has, those that no process serves any more too.
type ublkKernel struct {
	find    func(identity uint64) ([]int, error)
	inspect func(number int) (ublk.State, error)
}

// continues reports whether the block device with that number exists and may go on with an export that has
// identity. The error says why the export cannot be that block device.
//
// The export must not be another one. The kernel holds what a server had not answered, and gives it to the next
// server of that device. If a second device has flushed newer writes by then, the held ones go over them.
func (k ublkKernel) continues(export string, number int, identity uint64) (bool, error) {
	found, err := k.find(identity)
	if err != nil {
		return false, err
	}
	for _, n := range found {
		if left := ublk.Path(n); n != number {
			return false, fmt.Errorf("export %q is %s already: an earlier pmnbd left that device, and its I/O waits. Continue it (pmnbd attach --ublk %s %s, or serve --ublk %s=%s), or give up what its users have not flushed (pmnbd detach --force %s)",
				export, left, export, left, export, left, left)
		}
	}
	if number == ublk.Any {
		return false, nil
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
