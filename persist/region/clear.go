package region

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// Clear gives a failed or suspect region back to service, by an operator's word
// and for a reason that is kept: what can be read from it becomes durable, its
// owner is forgotten, its epoch raised, and doubt set. The region must not be
// open anywhere (ErrInUse). If it fails the region stays as it was, or failed.
func Clear(path, reason string) error { return clearRegion(path, reason, thisMachine) }

func clearRegion(path, reason string, on medium.Medium) error {
	reason = strings.TrimSpace(text(reason))
	if reason == "" {
		return errors.New("clear a region: a reason is needed")
	}
	f, mem, err := openLocked(path, on)
	if err != nil {
		return err
	}
	r, err := load(f, path, mem, on)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(r.clear(reason), r.Close())
}

func (r *Region) clear(reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.class == persist.ClassFile {
		if err := rewrite(r.file, DataOffset, int64(r.size)); err != nil {
			return fmt.Errorf("region %q: rewrite its pages: %w", r.name, err)
		}
		if err := r.syncLocked(); err != nil {
			return r.failLocked(err)
		}
	} else {
		if err := readable(r.Data()); err != nil {
			return fmt.Errorf("region %q: read it: %w", r.name, err)
		}
		if err := r.writeBack([]persist.Range{{Len: r.size}}); err != nil {
			return r.failLocked(err)
		}
	}
	if err := r.ownLocked(); err != nil {
		return r.failLocked(err)
	}
	sb := r.Superblock()
	sb.Epoch++
	sb.Owner, sb.Clean, sb.Doubt = persist.Owner{}, false, true
	sb.Failed, sb.Failure, sb.Suspect = false, "", false
	sb.Cleared = reason
	if r.platform.Counted {
		sb.UnsafeShutdowns = r.platform.UnsafeShutdowns
	}
	for range 2 { // both copies: neither may say anything older
		if err := r.writeLocked(sb); err != nil {
			return r.failLocked(err)
		}
	}
	return nil
}

// rewrite reads n bytes of f at off and writes them back, so that every page is
// dirty: after a failed sync the kernel calls pages clean that never got to the
// disk. By system calls, whose errors are errors and not faults.
func rewrite(f *os.File, off, n int64) error {
	buf := make([]byte, readPiece)
	for end := off + n; off < end; {
		b := buf[:min(readPiece, end-off)]
		if _, err := f.ReadAt(b, off); err != nil {
			return err
		}
		if _, err := f.WriteAt(b, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}
