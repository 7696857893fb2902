package region

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// Flushing a region of several parts. Of class volatile and pmem the mapping is flushed as
// that of any region. Of class file some parts are files, which are synced, and others can
// be persistent memory, whose cache lines are written back.
//
// A sync of one part says nothing about another, so each part has its own mark of the last
// successful sync. All syncs of a region are still counted together. A sync that has a
// number above the count at a caller's start began after the caller came, so it covers what
// the caller names in that part.

// loadParts is load for a region with these further parts, which it opens.
func loadParts(f *os.File, path string, m medium.Memory, further []string, volatile bool, on medium.Medium) (*Region, error) {
	parts, err := openParts(f, m, path, further, volatile, on)
	if err != nil {
		return nil, err
	}
	r, err := load(f, path, m, on, parts...)
	if err != nil {
		return nil, errors.Join(err, closeFurther(parts))
	}
	return r, nil
}

// Parts returns the paths of the region's parts, the first one's first, or nil if the
// region is one file or device.
func (r *Region) Parts() []string {
	var paths []string
	for i := range r.parts {
		paths = append(paths, r.parts[i].path)
	}
	return paths
}

// headSynced reports whether the region's header is durable after a sync. Otherwise its
// cache lines are written back.
func (r *Region) headSynced() bool {
	if r.parts != nil {
		return r.parts[0].synced()
	}
	return r.class == persist.ClassFile
}

// Note names ranges whose bytes the next Flush of no ranges must make durable. Only a
// region of several parts, of which some are files, needs it: any other knows what to flush,
// and Note does nothing. Note writes the cache lines of persistent memory back at once.
func (r *Region) Note(ranges []persist.Range) error {
	if r.parts == nil || r.class != persist.ClassFile {
		return nil
	}
	if err := r.usable(ranges); err != nil {
		return err
	}
	if err := r.writeBackParts(ranges); err != nil {
		return r.Fail(err)
	}
	r.noted.Or(r.touchedParts(ranges))
	return nil
}

// Notes reports whether Note writes cache lines back, which takes a while if there are many.
func (r *Region) Notes() bool {
	for i := range r.parts {
		if !r.parts[i].synced() {
			return r.class == persist.ClassFile
		}
	}
	return false
}

// touchedParts returns the files that a flush of ranges has to sync, as a bit for each
// part. If other members of a mirror may lack something, the first part is one of them: it
// has their bits.
func (r *Region) touchedParts(ranges []persist.Range) (files uint32) {
	if r.Outside() != 0 {
		files = 1
	}
	for i := range r.parts {
		p := &r.parts[i]
		for _, g := range ranges {
			if g.Len > 0 && g.Off < p.end() && g.Off+g.Len > p.start {
				files |= 1 << i
			}
		}
		if !p.synced() {
			files &^= 1 << i
		}
	}
	return files
}

// writeBackParts writes back what ranges touch in parts that are no files.
func (r *Region) writeBackParts(ranges []persist.Range) (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	for i := range r.parts {
		p := &r.parts[i]
		if p.synced() {
			continue
		}
		for _, g := range ranges {
			if from, to := max(g.Off, p.start), min(g.Off+g.Len, p.end()); from < to {
				r.medium.WriteBack(r.mem, DataOffset+from, to-from)
			}
		}
	}
	return nil
}

// flushParts is flushFile for several parts: it syncs the files that ranges touch. With no
// ranges it syncs those that Note has named since they were last synced.
func (r *Region) flushParts(begun uint64, ranges []persist.Range) error {
	if err := r.Failed(); err != nil {
		return err
	}
	if err := r.writeBackParts(ranges); err != nil {
		return r.Fail(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.errClosed()
	}
	if err := r.Failed(); err != nil {
		return err
	}
	files := r.touchedParts(ranges)
	if len(ranges) == 0 {
		// Whoever noted something and finds it taken waits here for the lock until the one
		// who took it has synced it.
		files, begun = r.noted.Swap(0)|files, r.begun.Load()
	}
	for i := range r.parts {
		if r.parts[i].done > begun {
			files &^= 1 << i
		}
	}
	if err := r.syncPartsLocked(files); err != nil {
		return r.failLocked(err)
	}
	return nil
}

// syncPartLocked does every sync of a part's one file description.
func (r *Region) syncPartLocked(p *part) error { return r.syncFileLocked(p.file, p.path, &p.done) }

// persistPartLocked makes n bytes at off of the mapping durable, which are in the header of
// part i.
func (r *Region) persistPartLocked(i int, off, n uint64) error {
	if p := &r.parts[i]; p.synced() {
		return r.syncPartLocked(p)
	}
	r.medium.WriteBack(r.mem, off, n)
	return nil
}

// persistHeadsLocked makes the superblocks of all parts durable, as Open found them.
func (r *Region) persistHeadsLocked() error {
	for i := range r.parts {
		p := &r.parts[i]
		if err := r.persistPartLocked(i, p.head, 2*CopySize); err != nil {
			return err
		}
	}
	return nil
}

// rewritePartsLocked makes everything readable durable, of class file: it rewrites the pages
// of files, and writes back the cache lines of other parts. failed reports whether an error
// is one of making it durable.
func (r *Region) rewritePartsLocked(show Progress) (failed bool, err error) {
	for i := range r.parts {
		p := &r.parts[i]
		if !p.synced() {
			if failed, err := r.readBackPart(p, show); err != nil {
				return failed, fmt.Errorf("region %q: part %d, %s: %w", r.name, i, p.path, err)
			}
			continue
		}
		head := uint64(2 * CopySize)
		if i == 0 {
			head = DataOffset
		}
		if err := r.rewritePart(p, head, show); err != nil {
			return false, fmt.Errorf("region %q: rewrite the pages of part %d, %s: %w", r.name, i, p.path, err)
		}
		show.tell("sync", 0, 0)
		if err := r.syncPartLocked(p); err != nil {
			return true, err
		}
	}
	return false, nil
}

// readBackPart is readBack for one part. It leaves out the bitmaps, which Open has made
// durable.
func (r *Region) readBackPart(p *part, show Progress) (failed bool, err error) {
	for off := p.start; off < p.end(); off += showPiece {
		show.tell("read", off-p.start, p.size)
		ranges := r.Bad().Outside(persist.Range{Off: off, Len: min(showPiece, p.end()-off)})
		for _, g := range ranges {
			if err := readable(r.Data()[g.Off:g.End()]); err != nil {
				return false, err
			}
		}
		if err := r.writeBackParts(ranges); err != nil {
			return true, err
		}
	}
	return false, nil
}

// nameFault adds the part to a fault in the memory of a region of several.
func (r *Region) nameFault(cause error) error {
	var fault *faultError
	if r.parts == nil || !errors.As(cause, &fault) {
		return cause
	}
	for i := range r.parts {
		p := &r.parts[i]
		at := uint64(fault.off)
		inHead := i > 0 && at-p.head < p.headerSpan()
		if inHead || i == 0 && at < DataOffset || at-DataOffset-p.start < p.size {
			return fmt.Errorf("%w, in part %d, %s", cause, i, p.path)
		}
	}
	return cause
}
