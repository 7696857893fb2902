// Package medium is the seam between a region and the machine that holds it: what a
// region asks of the kernel, the CPU and its memory.
//
// persist/region has the one Medium for real machines, which tests wrap with
// persist/region/regiontest. The package is internal so that nothing outside
// persist/region/... can name a Memory and declare an ordinary file persistent memory.
package medium

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// A Medium is what a region needs of the machine. Several goroutines may call its methods
// at the same time.
type Medium interface {
	// Identify returns which memory the open file f is.
	Identify(f *os.File) (Memory, error)
	// Bad returns the places of f that the medium is known to have lost, as bytes of the file or
	// device. It returns those of which it knows beside an error.
	Bad(f *os.File, m *Memory) ([]persist.Range, error)
	// Mend makes n bytes of f at off good again, in whole blocks, and zeroes. It fails where the kernel cannot.
	Mend(f *os.File, off, n uint64) error
	// BootID returns the host's boot id, which is random and new in every boot.
	BootID() ([16]byte, error)
	// MemoryMounts returns where filesystems are mounted whose files can be RAM. It returns those that it knows
	// beside an error.
	MemoryMounts() ([]string, error)
	// Sync makes everything written to f durable, also through mappings.
	Sync(f *os.File) error
	// WriteBack writes the cache lines of n bytes at off back to memory. When it returns,
	// they have arrived. mem maps a region's memory from its first byte.
	WriteBack(mem []byte, off, n uint64)
	// Fence returns when all stores before it are visible to everybody.
	Fence()
}

// A Memory is what Identify found out about a file.
type Memory struct {
	Class    persist.Class
	Platform Platform
	// Device is the size in bytes of a device-dax device, or 0 for a file. A device can
	// only be mapped: not read, written, allocated or synced.
	Device uint64
	// RAM: the file is memory of this boot and nothing else (tmpfs, ramfs, hugetlbfs).
	RAM bool
	// DAX: the file is mapped directly, without a page cache.
	DAX bool
	// Flags are the flags with which mmap(2) maps the memory.
	Flags int
	// Align, unless 0, is what the address, the offset and the length of a mapping must be
	// a multiple of. 0 means the size of a page.
	Align uint64
	// Why says why the memory is volatile, if that is not obvious.
	Why string
}

// Map maps the first n bytes of f. It maps a device as a whole, because a part would have
// to keep the device's alignment, which can be 1 GiB.
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

// A Platform is what the machine says about the persistent memory beneath a region
// (Linux, Documentation/ABI: sysfs-bus-nvdimm, sysfs-bus-nfit, sysfs-bus-cxl). The zero
// Platform means that there is none, or that nothing is known.
type Platform struct {
	// Regions names the nd_regions, such as "region0". A volume can lie on several.
	Regions []string
	// Domain is the weakest persistence_domain among the Regions.
	Domain Domain
	// Counted: the platform counts its unsafe shutdowns. UnsafeShutdowns is the count,
	// summed over the modules. An unsafe shutdown is a power failure in which the save
	// behind ADR, eADR or GPF did not happen.
	Counted         bool
	UnsafeShutdowns uint64
}

// A Domain says how far a store must have come to survive a power failure.
type Domain string

const (
	// DomainNone: the platform promises nothing.
	DomainNone Domain = ""
	// DomainMemory (ADR): to the memory controller. Cache lines must be written back.
	DomainMemory Domain = "memory_controller"
	// DomainCaches (eADR, GPF): to the caches. A fence is enough.
	DomainCaches Domain = "cpu_cache"
)

// Persistent reports whether a CPU can make stores durable.
func (d Domain) Persistent() bool { return d == DomainMemory || d == DomainCaches }

// EADR reports whether the CPU caches are in the persistence domain.
func (d Domain) EADR() bool { return d == DomainCaches }
