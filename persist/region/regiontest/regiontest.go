// Package regiontest gives tests regions on memory of their choice: an ordinary file that
// counts as persistent memory, a disk that fails, another boot.
//
// Only tests import it (test/arch holds them to that): a region made with it promises
// what its memory does not keep.
package regiontest

import (
	"bytes"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/internal/medium"
)

// A Medium says how a region's memory differs from what the machine has. The zero
// Medium differs in nothing.
type Medium struct {
	// PMem makes every file persistent memory in that domain, whatever it is.
	PMem region.Domain
	// Boot, unless zero, is the host's boot id.
	Boot [16]byte
	// Sync, unless nil, makes the file of descriptor fd durable instead of fdatasync(2).
	Sync func(fd int) error
	// Data and Header, unless nil, write back n bytes instead of the CPU: Data at off
	// of the data extent, Header at off of the superblock's copies.
	Data, Header func(off, n uint64)
}

// Discard is a Data or Header that writes nothing back: it needs no instruction that
// some CPUs lack.
func Discard(_, _ uint64) {}

// Persistent memory, with caches that lose what they hold and with caches that keep it.
var (
	ADR  = Medium{PMem: region.DomainMemory, Data: Discard}
	EADR = Medium{PMem: region.DomainCaches}
)

// Wrap is for region.OpenOptions: it puts m between a region and the machine.
func (m Medium) Wrap(machine medium.Medium) medium.Medium { return &wrapped{machine, m} }

type wrapped struct {
	medium.Medium
	hooks Medium
}

func (w *wrapped) Identify(f *os.File) (medium.Memory, error) {
	if w.hooks.PMem == region.DomainNone {
		return w.Medium.Identify(f)
	}
	return medium.Memory{Class: persist.ClassPMem, Platform: medium.Platform{Domain: w.hooks.PMem}, Flags: unix.MAP_SHARED}, nil
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

// A Watch tells the syncs of data from those of the superblock: each of the latter finds
// something changed in the superblock's copies, and none of the former does. The zero Watch
// is ready for the syncs of one region.
type Watch struct {
	mu     sync.Mutex
	copies []byte
}

// Data reports whether a sync makes data durable. It is for Medium.Sync, and must hear of
// every sync of its region, before the sync.
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
