package region

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"pmnbd/persist"
)

var (
	// ErrFailed means that the region once failed to make writes durable. Only `region
	// clear` resets it.
	ErrFailed = errors.New("region failed")
	// ErrRange means that a range reaches past the end of the data extent.
	ErrRange = errors.New("range past the end of the region")
)

// MayBlock reports whether Flush may take milliseconds, in a system call.
func (r *Region) MayBlock() bool { return r.class == persist.ClassFile }

// RecordMayBlock reports whether SetRecord may take milliseconds. It syncs class file, and for class protected the header
// of the image.
func (r *Region) RecordMayBlock() bool { return r.class == persist.ClassFile || r.saving != nil }

// FencesOnly reports whether Flush takes the same time for any ranges: the caches survive a power
// failure, or a CPU saves the memory before one, so nothing is written back.
func (r *Region) FencesOnly() bool {
	return r.class == persist.ClassProtected || r.class == persist.ClassPMem && r.platform.Domain.EADR()
}

// Failed returns why the region cannot make anything durable any more, or nil. The error
// wraps ErrFailed. It never becomes nil again.
func (r *Region) Failed() error {
	if p := r.failed.Load(); p != nil {
		return fmt.Errorf("%w: %s", ErrFailed, *p)
	}
	return nil
}

// Failure returns the cause of Failed, and what to do about it, or "".
func (r *Region) Failure() string {
	if p := r.failed.Load(); p != nil {
		return *p
	}
	return ""
}

// Fail makes the region fail. A caller that found its memory broken, by a fault for
// example, gives the cause. From then on the region makes nothing durable, the target
// grants it to nobody, and the superblock keeps the failure. Fail returns the failure,
// with the first cause.
func (r *Region) Fail(cause error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.Failed(); err != nil {
		return err
	}
	if r.closed {
		return r.errClosed()
	}
	return r.failLocked(cause)
}

// Flush makes ranges of the data extent as durable as the class allows. For classes
// volatile and pmem it writes back cache lines, or only fences if the caches survive a
// power failure. For class file it syncs once for all ranges, or not at all if another
// sync that began after the call has already succeeded. Of a region of several parts it
// syncs only those that the ranges touch, or with no ranges those that Note has named. If a range lies outside the
// extent, Flush makes nothing durable. On a failed region it returns the failure: after a
// failed sync the kernel takes the lost pages for clean, so a later success would prove
// nothing.
func (r *Region) Flush(ranges []persist.Range) error {
	begun := r.begun.Load()
	for _, g := range ranges {
		if g.Off > r.size || g.Len > r.size-g.Off {
			return fmt.Errorf("region %q: %w: offset %d, length %d, size %d", r.name, ErrRange, g.Off, g.Len, r.size)
		}
	}
	if r.class == persist.ClassFile {
		if r.parts != nil {
			return r.flushParts(begun, ranges)
		}
		return r.flushFile(begun)
	}
	if err := r.Failed(); err != nil {
		return err
	}
	if err := r.changing(ranges); err != nil {
		return err
	}
	if err := r.writeBack(ranges); err != nil {
		return r.Fail(err)
	}
	return r.Failed() // somebody may have found the memory broken in between
}

// writeBack makes ranges durable with the CPU.
func (r *Region) writeBack(ranges []persist.Range) (err error) {
	if r.FencesOnly() {
		r.medium.Fence()
		return nil
	}
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	for _, g := range ranges {
		r.medium.WriteBack(r.mem, DataOffset+g.Off, g.Len)
	}
	return nil
}

// Zero stores zeroes in a range of the data extent. Like any other store they are durable
// only after a Flush of that range. It makes bad blocks good that lie in the range as a whole: see Settle. If there is
// one that it cannot make good, because it is divided or on a device, Zero changes nothing (ErrBadPlace). A fault fails
// the region.
func (r *Region) Zero(g persist.Range) error {
	if g.Off > r.size || g.Len > r.size-g.Off {
		return fmt.Errorf("region %q: %w: offset %d, length %d, size %d", r.name, ErrRange, g.Off, g.Len, r.size)
	}
	if err := r.changing([]persist.Range{g}); err != nil {
		return err
	}
	err := r.mend(g)
	if errors.Is(err, ErrBadPlace) {
		return err
	}
	if err == nil {
		err = r.zero(g)
	}
	if err != nil {
		return r.Fail(err)
	}
	return nil
}

func (r *Region) zero(g persist.Range) (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	clear(r.Data()[g.Off : g.Off+g.Len])
	return nil
}

// flushFile makes the file durable as it was when begun syncs had begun.
func (r *Region) flushFile(begun uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.errClosed()
	}
	if err := r.Failed(); err != nil {
		return err
	}
	if r.done > begun {
		return nil // a sync that began later has covered the range
	}
	if err := r.syncLocked(); err != nil {
		return r.failLocked(err)
	}
	return nil
}

// syncLocked does every sync of the region's one file description.
func (r *Region) syncLocked() error { return r.syncFileLocked(r.file, r.path, &r.done) }

// syncFileLocked syncs f, and notes in done which sync that was.
func (r *Region) syncFileLocked(f *os.File, path string, done *uint64) error {
	n := r.begun.Add(1)
	if err := r.syncFile(f, path); err != nil {
		return err
	}
	*done = n
	return nil
}

// syncFile syncs f, for callers that hold the region's lock.
func (r *Region) syncFile(f *os.File, path string) error {
	began := time.Now()
	err := r.medium.Sync(f)
	r.synced.Note(time.Since(began))
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// Syncs returns how many syncs have begun since the region was opened, including those of
// the superblock. Only class file has any.
func (r *Region) Syncs() uint64 { return r.begun.Load() }

// persistLocked makes n bytes at off of the superblock's copies durable.
func (r *Region) persistLocked(off, n uint64) error {
	if r.parts != nil {
		return r.persistPartLocked(0, off, n)
	}
	if r.class == persist.ClassFile {
		return r.syncLocked()
	}
	r.medium.WriteBack(r.mem, off, n)
	return nil
}

// failLocked makes a failure permanent: in memory at once, then in the superblock, before
// the caller unlocks r.mu. It returns the error that every caller gets from now on.
func (r *Region) failLocked(cause error) error {
	why := text(r.nameFault(cause).Error())
	r.setFailed(why)
	if err := r.ownLocked(); errors.Is(err, ErrForeign) {
		// Leave the other process's superblock alone: a mixture of two writers' copies
		// helps neither.
		if !errors.Is(cause, ErrForeign) {
			r.setFailed(why + "; this could not be recorded: " + err.Error())
		}
		return r.Failed()
	}
	// Write both copies: if one rots, the region must still be failed.
	for range 2 {
		sb := r.Superblock()
		sb.Failed, sb.Failure = true, why
		if err := r.writeLocked(sb); err != nil {
			r.setFailed(why + "; this could not be recorded: " + err.Error())
			// A process that opens the region can still read this from the page cache.
			sb.Generation = r.generation
			r.storeUnsyncedLocked(sb)
			break
		}
	}
	return r.Failed()
}

// storeUnsyncedLocked tries to store sb over the older copy.
func (r *Region) storeUnsyncedLocked(sb Superblock) {
	var err error // after a fault nobody can read the copy either
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	at := 1 - r.newer
	sb.encode(r.mem[at*CopySize : (at+1)*CopySize])
}

func (r *Region) setFailed(why string) {
	why += "; see `pmnbd-target region clear`"
	r.failed.Store(&why)
}
