package region

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// Clear returns a failed or suspect region to service. An operator asks for it and gives
// a reason, which the superblock keeps. Everything readable becomes durable, the owner is
// forgotten, the epoch raised, and doubt set. A region of class volatile gets a new
// contents id (mirror §8).
//
// So does a member of a mirror, unless its record says that nobody else has the data: what a
// failure took is on other members, and the mirror copies all of it from there. Such a member
// keeps the owner of a session that was not closed. That owner resumes, finds the contents
// lost, and goes on without a new start. A member that alone has the data copies all of it to the others: what it knew
// of what they lack may be lost.
//
// The region must not be open anywhere (ErrInUse). If Clear fails, the region stays as it was,
// or has failed.
//
// further are the paths of the region's further parts, if it has several.
func Clear(path, reason string, further ...string) error {
	return clearRegion(path, reason, thisMachine, nil, further...)
}

// ClearShowing is Clear, and p hears how far it is.
func ClearShowing(path, reason string, p Progress, further ...string) error {
	return clearRegion(path, reason, thisMachine, p, further...)
}

func clearRegion(path, reason string, on medium.Medium, p Progress, further ...string) error {
	reason, err := reasonOf(reason)
	if err != nil {
		return err
	}
	f, mem, err := openLocked(path, on)
	if err != nil {
		return err
	}
	r, err := loadParts(f, path, mem, further, true, on)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(r.clear(reason, p), r.Close())
}

// reasonOf returns a reason as the superblock keeps it.
func reasonOf(reason string) (string, error) {
	reason = strings.TrimSpace(text(reason))
	if reason == "" {
		return "", errors.New("clear a region: give a reason")
	}
	return reason, nil
}

func (r *Region) clear(reason string, p Progress) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts != nil && r.class == persist.ClassFile {
		if failed, err := r.rewritePartsLocked(p); failed {
			return r.failLocked(err)
		} else if err != nil {
			return err
		}
	} else if r.class == persist.ClassFile {
		if err := r.rewritePart(&part{file: r.file, size: r.size, data: DataOffset}, DataOffset, p); err != nil {
			return fmt.Errorf("region %q: rewrite its pages: %w", r.name, err)
		}
		p.tell("sync", 0, 0)
		if err := r.syncLocked(); err != nil {
			return r.failLocked(err)
		}
	} else if failed, err := r.readBack(p); failed {
		return r.failLocked(err)
	} else if err != nil {
		return err
	}
	if err := r.ownLocked(); err != nil {
		return r.failLocked(err)
	}
	sb := r.Superblock()
	sb.Epoch++
	others := hasOthers(&sb.Record)
	if sb.Clean || !others {
		sb.Owner = persist.Owner{}
	}
	sb.Clean, sb.Doubt = false, true
	sb.Failed, sb.Failure, sb.Suspect = false, "", false
	sb.Cleared = reason
	if r.class == persist.ClassVolatile || others {
		sb.Contents = newID() // nothing tells what was lost
	}
	if r.platform.Counted {
		sb.UnsafeShutdowns = r.platform.UnsafeShutdowns
	}
	if err := r.liveLocked(&sb); err != nil {
		return err
	}
	if err := r.fillBitsLocked(&sb.Record, outside(&sb.Record)); err != nil { // bits may be among what was lost
		return r.failLocked(err)
	}
	for range 2 { // both copies: neither may keep an older state
		if err := r.renewLocked(sb); err != nil {
			return r.failLocked(err)
		}
	}
	return nil
}

// hasOthers reports whether a member with this record is not the only one that has the data of
// its mirror.
func hasOthers(rec *persist.Record) bool {
	return *rec != persist.Record{} && rec.F&^persist.Member(int(rec.Slot)) != 0
}

// rewritePart rewrites the header of a file, of head bytes, and what is not bad of its data.
func (r *Region) rewritePart(p *part, head uint64, show Progress) error {
	ranges := []persist.Range{{Len: head}}
	for _, g := range r.Bad().Outside(persist.Range{Off: p.start, Len: p.size}) {
		g.Off += p.data - p.start
		if last := &ranges[len(ranges)-1]; last.End() == g.Off {
			last.Len += g.Len
		} else {
			ranges = append(ranges, g)
		}
	}
	for _, g := range ranges {
		if err := rewrite(p.file, int64(g.Off), int64(g.Len), show); err != nil {
			return err
		}
	}
	return nil
}

// rewrite reads n bytes of f at off and writes them back, which makes every page dirty.
// After a failed sync the kernel takes pages for clean that never reached the disk: the superblock's, too.
// rewrite uses system calls, because their errors are not faults.
func rewrite(f *os.File, off, n int64, p Progress) error {
	buf := make([]byte, readPiece)
	for begin, end := off, off+n; off < end; {
		p.tell("rewrite", uint64(off-begin), uint64(n))
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
