package region

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrForeign means that somebody else wrote to the superblock of a region that this process
// has open.
//
// The lock (flock) keeps processes apart that open the same file or device node. A device
// can have several nodes: one in each container, for example. So a region also knows what
// it left in the superblock's copies, and compares before it writes there.
var ErrForeign = errors.New("superblock changed by another process")

// ownLocked compares the generations of the superblock's copies with those that this process
// left there. The first step of any update, of whatever process, changes one of them.
func (r *Region) ownLocked() (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	for i, left := range r.left {
		page := r.mem[i*CopySize : (i+1)*CopySize]
		if found := loadGeneration(page[offGeneration : offGeneration+8]); found != left {
			return fmt.Errorf("%w: copy %d has generation %#x where %#x was left: another pmnbd-target serves this memory by another device node, such as a container's, or something wrote over %s: stop that, then start pmnbd-target again",
				ErrForeign, i, found, left, r.path)
		}
	}
	return nil
}

// Check fails the region if another process has changed its superblock: then two processes
// believe that they own it. Check does not touch the other process's superblock, so it does
// not record the failure there.
func (r *Region) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
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
