// Package regiontest gives tests regions on memory of their choice, only for tests of
// this module; it promises nothing to other programs. The memory can be an ordinary file
// that counts as persistent memory, a disk that fails, or memory in another boot.
//
// Only tests import it, and test/arch checks that: a region made with it promises what
// its memory does not keep.
package regiontest

import (
	"bytes"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// A Medium says how a region's memory differs from the machine's. The zero Medium changes
// nothing.
type Medium struct {
	// PMem declares every file to be persistent memory in that domain.
	PMem region.Domain
	// Only, unless empty, is the path of the one file that PMem is about.
	Only string
	// Boot, unless zero, is the host's boot id.
	Boot [16]byte
	// Sync, unless nil, replaces fdatasync(2). It makes the file with descriptor fd
	// durable.
	Sync func(fd int) error
	// Bad has ranges of the data extent that the medium has lost.
	Bad func() []persist.Range
	// Mend, unless nil, makes n bytes at off of the data extent good again.
	Mend func(off, n uint64) error
	// Data and Header, unless nil, replace the CPU: each writes back n bytes, Data at off
	// in the data extent and Header at off in what lies in front of it: the superblock's
	// copies, and the bits of a mirror's members.
	Data, Header func(off, n uint64)
	// Image, unless nil, is called before each write and sync of an image of class protected. Its
	// error is theirs.
	Image func() error
}

// Discard is a Data or Header that writes nothing back. Tests can use it on CPUs that
// lack the instruction.
func Discard(_, _ uint64) {}

// Persistent memory, with caches that lose their contents and with caches that keep them.
var (
	ADR  = Medium{PMem: region.DomainMemory, Data: Discard}
	EADR = Medium{PMem: region.DomainCaches}
)

// Wrap puts m between a region and the machine. It is for region.OpenOptions.
func (m Medium) Wrap(machine medium.Medium) medium.Medium { return &wrapped{machine, m} }

type wrapped struct {
	medium.Medium
	hooks Medium
}

func (w *wrapped) Identify(f *os.File) (medium.Memory, error) {
	if w.hooks.PMem == region.DomainNone || w.hooks.Only != "" && w.hooks.Only != f.Name() {
		return w.Medium.Identify(f)
	}
	return medium.Memory{Class: persist.ClassPMem, Platform: medium.Platform{Domain: w.hooks.PMem}, Flags: unix.MAP_SHARED}, nil
}

func (w *wrapped) Bad(f *os.File, m *medium.Memory) ([]persist.Range, error) {
	if w.hooks.Bad == nil {
		return w.Medium.Bad(f, m)
	}
	var bad []persist.Range
	for _, g := range w.hooks.Bad() {
		bad = append(bad, persist.Range{Off: region.DataOffset + g.Off, Len: g.Len})
	}
	return bad, nil
}

func (w *wrapped) Mend(f *os.File, off, n uint64) error {
	if w.hooks.Mend == nil {
		return w.Medium.Mend(f, off, n)
	}
	return w.hooks.Mend(off-region.DataOffset, n)
}

// Storage stands between an image and its file.
func (w *wrapped) Storage(f image.File) image.File {
	if w.hooks.Image == nil {
		return f
	}
	return &disk{f, w.hooks.Image}
}

// A disk fails when it is told to.
type disk struct {
	image.File
	fails func() error
}

func (d *disk) WriteAt(b []byte, off int64) (int, error) {
	if err := d.fails(); err != nil {
		return 0, err
	}
	return d.File.WriteAt(b, off)
}

func (d *disk) Sync() error {
	if err := d.fails(); err != nil {
		return err
	}
	return d.File.Sync()
}

func (w *wrapped) BootID() ([16]byte, error) {
	if w.hooks.Boot == ([16]byte{}) {
		return w.Medium.BootID()
	}
	return w.hooks.Boot, nil
}

func (w *wrapped) Sync(f *os.File) error {
	if w.hooks.Sync == nil {
		return w.Medium.Sync(f)
	}
	return w.hooks.Sync(int(f.Fd()))
}

func (w *wrapped) WriteBack(mem []byte, off, n uint64) {
	switch {
	case off >= region.DataOffset && w.hooks.Data != nil:
		w.hooks.Data(off-region.DataOffset, n)
	case off < region.DataOffset && w.hooks.Header != nil:
		w.hooks.Header(off, n)
	default:
		w.Medium.WriteBack(mem, off, n)
	}
}

// A Watch distinguishes syncs of data from syncs of the superblock. Before a sync of the
// superblock its copies have changed, before a sync of data they have not. The zero Watch
// is ready to watch one region.
type Watch struct {
	mu     sync.Mutex
	copies []byte
}

// Data reports whether a sync makes data durable. Call it from Medium.Sync, before every
// sync of the region.
func (w *Watch) Data(fd int) bool {
	now := make([]byte, 2*region.CopySize)
	if n, err := unix.Pread(fd, now, 0); err != nil || n != len(now) {
		panic(fmt.Sprintf("read %d bytes of the superblock's copies: %v", n, err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	data := bytes.Equal(now, w.copies)
	w.copies = now
	return data
}
