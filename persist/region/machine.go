package region

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"pmnbd/internal/flush"
	"pmnbd/persist/region/internal/medium"
)

// A machine is the medium of regions outside tests. It ignores environment variables such
// as those that make libpmem believe in persistence (design §3.4).
type machine struct {
	sys     string // the directory where sysfs is mounted
	mapSync func(fd int) (bool, error)
	// extents, unless nil, replaces fileExtents.
	extents func(f *os.File, each func(extent)) error
	// instruction names what writes cache lines back, or is flush.None.
	instruction string
}

var thisMachine medium.Medium = machine{sys: "/sys", mapSync: mapsSync, instruction: flush.Instruction()}

// Platform is what the machine says about the persistent memory beneath a region.
type Platform = medium.Platform

// Domain says how far a store must have come to survive a power failure.
type Domain = medium.Domain

// The domains.
const (
	DomainNone   = medium.DomainNone
	DomainMemory = medium.DomainMemory
	DomainCaches = medium.DomainCaches
)

// BootID returns the host's boot id.
func (machine) BootID() (id [16]byte, err error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, err
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(b)), "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("%q is no boot id", b)
	}
	copy(id[:], raw)
	return id, nil
}

// Sync makes the contents of f durable.
func (machine) Sync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// WriteBack writes back cache lines of mem.
func (machine) WriteBack(mem []byte, off, n uint64) { flush.Lines(mem[off : off+n]) }

// Fence waits for the stores before it.
func (machine) Fence() { flush.Fence() }
