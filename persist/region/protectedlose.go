package region

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// discardContents says how to have a region again whose contents nobody can bring back.
const discardContents = "discard the contents with `pmnbd-target region create --force --class protected --save DIR`"

// skippedMarks is by how much the mark rises in a loss. The image has the mark of the last
// grant, and initiators were told higher ones. They must find other contents, and not take the
// region for one that was restored from a copy.
const skippedMarks = 1 << 32

// readable returns an error if the image may be whole after all, although s found that it is not, for the reason why.
func (s *saving) readable(path, why string) error {
	if err := s.im.Unread(); err != nil {
		return fmt.Errorf("%s: %w: %s, as far as its disk can read it: %w: mend the disk, or %s", path, ErrSave, why, err, discardContents)
	}
	return nil
}

// places are where memory lies, mostly. A start also looks beside the path that it was given, and where the host has
// mounted memory.
var places = []string{"/dev/shm", "/dev/hugepages"}

// nowhere returns an error if the region's memory of this boot is at another path than this one, where there is none.
// A loss would raise the epoch in the image, and that memory would be refused as an old copy from then on. If the region
// came from its image instead, that memory would be refused after the first grant. Either way somebody has named a
// wrong path, and it is cheaper to hear of that before there are two memories.
func (s *saving) nowhere(path string, boot [16]byte, on medium.Medium) error {
	at := s.memoryElsewhere(path, boot, on)
	switch {
	case at == "":
		return nil
	case strings.HasSuffix(at, newMemory):
		return fmt.Errorf("%s: %w: there is no memory, but %s has a part or all of it: if a start left that when it was killed, remove it; otherwise name that path", path, ErrSave, at)
	}
	return fmt.Errorf("%s: %w: there is no memory, but that of this region lies at %s: name that path; if it is not to be used, remove it", path, ErrSave, at)
}

// memoryElsewhere returns the path of a file with the region's memory of this boot, or "". A name that is that of
// unfinished memory comes last.
func (s *saving) memoryElsewhere(path string, boot [16]byte, on medium.Medium) (at string) {
	h, part := s.im.Header(), ""
	own, _ := os.Lstat(path + newMemory)
	mounts, _ := on.MemoryMounts() // without them there are the other places
	for _, dir := range slices.Concat([]string{filepath.Dir(path)}, places, mounts) {
		entries, _ := os.ReadDir(dir) // what cannot be read has nothing for us
		for _, e := range entries {
			at = filepath.Join(dir, e.Name())
			if info, err := e.Info(); err != nil || !info.Mode().IsRegular() || uint64(info.Size()) < h.Bytes || os.SameFile(info, own) {
				continue
			}
			if found, err := inspectPath(at, on); err == nil && found.Superblock.UUID == h.UUID && found.Superblock.Boot == boot {
				if !strings.HasSuffix(at, newMemory) {
					return at
				}
				part = at
			}
		}
	}
	return part
}

// lose makes empty memory of the region sb, with another contents id and an epoch that nobody
// had. The image says so before the memory has its name.
func (s *saving) lose(path string, sb Superblock, boot [16]byte, why string, on medium.Medium) error {
	if err := s.readable(path, why); err != nil {
		return err
	}
	h := s.im.Header()
	sb.Epoch = max(sb.Epoch, h.Epoch) + 2 // a copy of the header may have rotted that had one more
	sb.Mark += skippedMarks
	sb.Contents, sb.Boot, sb.Memory = newID(), boot, newNonce()
	sb.Failed, sb.Failure, sb.Suspect, sb.Doubt = false, "", false, false
	return build(path, &h, on, func(f *os.File, mem []byte) error {
		if err := allocateAt(f, 0, h.Bytes); err != nil {
			return err
		}
		// Behind that: a start that finds no room loses nothing, and comes again.
		err := s.im.MakeLive(func(h *image.Header) {
			describe(h, &sb)
			h.Losses++
			h.LostAt = time.Now().UnixNano()
		})
		s.showLocked()
		if err != nil {
			return fmt.Errorf("%w: its image cannot say that the contents are lost: %w", ErrSave, err)
		}
		s.lost = why
		own := int(sb.Record.Slot)
		for slot := range persist.MaxMembers { // nobody has what this region has
			if outside(&sb.Record).Has(slot) {
				at := bitmapOffset(own, slot)
				var b bitmaps
				b.shape(sb.Size)
				setRun(mem[at:at+bitmapSize], 0, b.chunks)
			}
		}
		m := medium.Memory{Class: persist.ClassProtected, Flags: unix.MAP_SHARED}
		return writeFirst(f, mem[:2*CopySize], sb, &m, on)
	})
}
