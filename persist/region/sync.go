package region

import (
	"errors"
	"fmt"
	"runtime/debug"

	"pmnbd/persist"
)

var (
	// ErrFailed means that making writes durable failed once. It stays until
	// `region clear`.
	ErrFailed = errors.New("region failed")
	// ErrRange means that a range reaches past the end of the data extent.
	ErrRange = errors.New("range past the end of the region")
)

// MayBlock reports whether Flush may take milliseconds, in a system call.
func (r *Region) MayBlock() bool { return r.class == persist.ClassFile }

// Failed is why the region can make nothing durable any more, or nil. It is
// ErrFailed, and never becomes nil again.
func (r *Region) Failed() error {
	if p := r.failed.Load(); p != nil {
		return fmt.Errorf("%w: %s", ErrFailed, *p)
	}
	return nil
}

// Failure is the cause of Failed, and what to do about it; "" without a failure.
func (r *Region) Failure() string {
	if p := r.failed.Load(); p != nil {
		return *p
	}
	return ""
}

// Fail makes the region fail for a cause that a user of its memory found, such as a
// fault. From then on the region makes nothing durable, the target grants it to nobody,
// and the superblock keeps the failure. Fail returns the failure, with the first cause.
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

// Flush makes ranges of the data extent durable, as far as the class allows. Classes
// volatile and pmem write back cache lines, or only fence where the caches outlive the
// power. Class file syncs once, whatever the ranges; it does without a sync of its own if
// one that began after the call has succeeded meanwhile. If a range lies outside, Flush
// flushes nothing. On a failed region it returns the failure: a sync that succeeds after
// one that failed proves nothing, because the kernel then calls the lost pages clean.
func (r *Region) Flush(ranges []persist.Range) error {
	begun := r.begun.Load()
	for _, g := range ranges {
		if g.Off > r.size || g.Len > r.size-g.Off {
			return fmt.Errorf("region %q: %w: offset %d, length %d, size %d", r.name, ErrRange, g.Off, g.Len, r.size)
		}
	}
	if r.class == persist.ClassFile {
		return r.flushFile(begun)
	}
	if err := r.Failed(); err != nil {
		return err
	}
	if err := r.writeBack(ranges); err != nil {
		return r.Fail(err)
	}
	return r.Failed() // somebody may have found the memory broken meanwhile
}

// writeBack makes ranges durable by the CPU.
func (r *Region) writeBack(ranges []persist.Range) (err error) {
	if r.class == persist.ClassPMem && r.platform.Domain.EADR() {
		r.medium.Fence()
		return nil
	}
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	for _, g := range ranges {
		r.medium.WriteBack(r.mem, DataOffset+g.Off, g.Len)
	}
	return nil
}

// Zero stores zeroes into a range of the data extent. They are as durable as any
// other store: not before a Flush of that range. A fault fails the region.
func (r *Region) Zero(g persist.Range) error {
	if g.Off > r.size || g.Len > r.size-g.Off {
		return fmt.Errorf("region %q: %w: offset %d, length %d, size %d", r.name, ErrRange, g.Off, g.Len, r.size)
	}
	if err := r.zero(g); err != nil {
		return r.Fail(err)
	}
	return nil
}

func (r *Region) zero(g persist.Range) (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	clear(r.Data()[g.Off : g.Off+g.Len])
	return nil
}

// flushFile makes durable all of the file as it was when begun syncs had begun.
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
		return nil // a sync that began later has covered that
	}
	if err := r.syncLocked(); err != nil {
		return r.failLocked(err)
	}
	return nil
}

// syncLocked is every sync of the region's one file description.
func (r *Region) syncLocked() error {
	n := r.begun.Add(1)
	if err := r.medium.Sync(r.file); err != nil {
		return fmt.Errorf("sync %s: %w", r.path, err)
	}
	r.done = n
	return nil
}

// Syncs is how many syncs have begun since the region was opened, those of the
// superblock among them; always 0 but for class file.
func (r *Region) Syncs() uint64 { return r.begun.Load() }

// persistLocked makes n bytes at off of the superblock's copies durable.
func (r *Region) persistLocked(off, n uint64) error {
	if r.class == persist.ClassFile {
		return r.syncLocked()
	}
	r.medium.WriteBack(r.mem, off, n)
	return nil
}

// failLocked makes a failure to sync stick, in memory at once, then in the superblock,
// before the caller unlocks r.mu. It returns the error that every caller gets from now on.
func (r *Region) failLocked(cause error) error {
	why := text(cause.Error())
	r.setFailed(why)
	if err := r.ownLocked(); errors.Is(err, ErrForeign) {
		// Leave the other process's superblock alone: a mixture of two writers' copies
		// is of no use to either.
		if !errors.Is(cause, ErrForeign) {
			r.setFailed(why + "; this could not be recorded: " + err.Error())
		}
		return r.Failed()
	}
	// Twice, into both copies: rot of one must not make the region healthy.
	for range 2 {
		sb := r.Superblock()
		sb.Failed, sb.Failure = true, why
		if err := r.writeLocked(sb); err != nil {
			r.setFailed(why + "; this could not be recorded: " + err.Error())
			// A process that opens the region while the page cache lives still reads it.
			sb.Generation = r.generation
			r.storeUnsyncedLocked(sb)
			break
		}
	}
	return r.Failed()
}

// storeUnsyncedLocked stores sb over the older copy, as well as that goes.
func (r *Region) storeUnsyncedLocked(sb Superblock) {
	var err error // a fault: then nobody will read it either
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	at := 1 - r.newer
	sb.encode(r.mem[at*CopySize : (at+1)*CopySize])
}

func (r *Region) setFailed(why string) {
	why += "; see `pmnbd-target region clear`"
	r.failed.Store(&why)
}
