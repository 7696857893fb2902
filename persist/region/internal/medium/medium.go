// Package medium is the seam between a region and the machine that holds it: what a
// region asks of the kernel, the CPU and its memory.
//
// persist/region has the one Medium for real machines. Tests wrap it by
// persist/region/regiontest. The package is internal so that nothing else can declare
// an ordinary file persistent memory: outside of persist/region/... nobody can name a
// Memory.
package medium

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// A Medium is what a region needs of the machine. Its methods may be called from several
// goroutines.
type Medium interface {
	// Identify finds out what memory the open file f is.
	Identify(f *os.File) (Memory, error)
	// BootID is the host's boot id: random, new with every boot.
	BootID() ([16]byte, error)
	// Sync makes durable what was written to f, by way of its mappings too.
	Sync(f *os.File) error
	// WriteBack writes the cache lines of n bytes at off back to memory, and returns
	// when they have arrived there. mem is a mapping of a region's memory from its
	// first byte on.
	WriteBack(mem []byte, off, n uint64)
	// Fence returns when all stores before it are visible to everybody.
	Fence()
}

// A Memory is what Identify found out about a file: what a region in it is.
type Memory struct {
	Class    persist.Class
	Platform Platform
	// Device is the size of a device-dax device in bytes. It can be mapped, and
	// neither read, written, allocated nor synced. 0: a file.
	Device uint64
	// DAX: a file that is mapped itself, without a page cache.
	DAX bool
	// Flags are those of mmap(2) that map it.
	Flags int
	// Why says why the memory is volatile, where that is not plain.
	Why string
}

// Map maps the first n bytes of f. A device is mapped as a whole: its parts would
// have to keep its alignment, which is up to 1 GiB.
func (m *Memory) Map(f *os.File, n uint64, prot int) ([]byte, error) {
	if m.Device != 0 {
		n = m.Device
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(n), prot, m.Flags)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return mem, nil
}

// A Platform is what the machine says of the persistent memory beneath a region
// (Linux, Documentation/ABI: sysfs-bus-nvdimm, sysfs-bus-nfit, sysfs-bus-cxl). The
// zero Platform: there is none, or nothing is known.
type Platform struct {
	// Regions names the nd_regions, such as "region0"; a volume over several has
	// several.
	Regions []string
	// Domain is their persistence_domain, the weakest of them.
	Domain Domain
	// Counted: the platform counts its unsafe shutdowns. UnsafeShutdowns is their
	// number, summed over the modules: power went and the save behind ADR, eADR or
	// GPF did not happen.
	Counted         bool
	UnsafeShutdowns uint64
}

// A Domain says how far a store must have come to outlive the power.
type Domain string

const (
	// DomainNone: nothing is promised.
	DomainNone Domain = ""
	// DomainMemory (ADR): to the memory controller, so cache lines must be written
	// back.
	DomainMemory Domain = "memory_controller"
	// DomainCaches (eADR, GPF): to the caches; a fence is enough.
	DomainCaches Domain = "cpu_cache"
)

// Persistent reports whether stores can be made durable by a CPU.
func (d Domain) Persistent() bool { return d == DomainMemory || d == DomainCaches }

// EADR reports whether the CPU caches are in the persistence domain.
func (d Domain) EADR() bool { return d == DomainCaches }
