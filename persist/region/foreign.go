package region

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrForeign means that another process wrote to the superblock of a region that this
// process has open.
//
// The lock (flock) excludes other processes that open the same file or device node. But a
// device can have several nodes, for example one in each container. So a region also
// remembers what it left in the superblock's copies, and compares before it writes there.
var ErrForeign = errors.New("superblock changed by another process")

// ownLocked compares the generations of the superblock's copies with those that this
// process left there. The first step of any update, by any process, changes one of them.
func (r *Region) ownLocked() (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	for i, left := range r.left {
		page := r.mem[i*CopySize : (i+1)*CopySize]
		if found := loadGeneration(page[offGeneration : offGeneration+8]); found != left {
			return fmt.Errorf("%w: copy %d has generation %#x, and this process wrote %#x: another pmnbd-target serves this memory through another device node, such as a container's, or something else wrote to %s: stop it, then start pmnbd-target again",
				ErrForeign, i, found, left, r.path)
		}
	}
	return r.ownPartsLocked()
}

// Check fails the region if another process has changed its superblock: then both
// processes believe that they own the region. Check does not record the failure, because
// the superblock is the other process's.
func (r *Region) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkLocked()
}

// checkLocked is Check, for callers that hold the lock. It also fails on a region that is closed or has failed.
func (r *Region) checkLocked() error {
	if r.closed {
		return r.errClosed()
	}
	if err := r.Failed(); err != nil {
		return err
	}
	if err := r.ownLocked(); err != nil {
		return r.failLocked(err)
	}
	return nil
}
