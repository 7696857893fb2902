// Package pmemsim simulates persistent memory that loses what a power failure takes, only
// for tests of this module; it promises nothing to other programs. A file has the bytes
// that CPUs and adapters see. A copy beside it has what the medium holds.
//
// It exists to test claims of durability on the code that makes them (design §3). A
// region on the file, with Lines to write back its cache lines, works as on an ADR
// platform whose caches forget everything. A store is volatile until its cache line is
// written back. That may also happen by itself at any time (Evict, and at random when the
// power fails), so a longer write can tear. What an adapter places past the caches is
// durable byte by byte (Pushed).
//
//	stores ──► live, the mapped file ──Lines, Flushed, Pushed, Evict──► medium
//	                  │ Kill: as it is                            │ PowerOff: with some of live's lines
//	                  └──────────────► what Restart finds ◄───────┘
package pmemsim

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"pmnbd/internal/vmem"
)

// Line is the size in bytes of a cache line, which the medium takes as a whole.
const Line = 64

// ErrLine says that a range lies outside the memory.
var ErrLine = errors.New("not this memory")

// Memory is a file that simulates persistent memory. Several goroutines may call its
// methods at the same time. Close must wait until all others have returned.
type Memory struct {
	live []byte      // the mapped file, or files
	all  *vmem.Range // of files, otherwise nil

	mu     sync.Mutex
	medium []byte // what survives a power failure
	next   []byte // what Restart restores; nil while the machine runs
	spare  []byte // the memory for the following next
	caches bool   // the caches survive a power failure as well (eADR)
	trap   int    // write-backs until sprung is called; 0 for no trap
	sprung func()
}

// Open simulates the memory in the file at path, on tmpfs. It takes everything in the
// file for durable. If caches is set, CPU caches survive a power failure (eADR), and
// every store is durable.
func Open(path string, caches bool) (*Memory, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the mapping stays
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	live, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &Memory{live: live, medium: append([]byte(nil), live...), caches: caches}, nil
}

// A Span is a piece of a file, and where it lies in the memory.
type Span struct {
	Path string
	// Off is where in the file the piece begins, At where in the memory. They and Len are
	// multiples of a page, in bytes.
	Off, At, Len uint64
}

// OpenSpans is Open for memory of size bytes that consists of pieces of several files.
// Between them it is zero.
func OpenSpans(spans []Span, size uint64, caches bool) (*Memory, error) {
	all, err := vmem.Reserve(size, 2<<20)
	if err != nil {
		return nil, err
	}
	err = unix.Mprotect(all.Bytes(), unix.PROT_READ|unix.PROT_WRITE)
	for _, s := range spans {
		if err == nil {
			err = mapSpan(all, s)
		}
	}
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return &Memory{live: all.Bytes(), all: all, medium: append([]byte(nil), all.Bytes()...), caches: caches}, nil
}

func mapSpan(all *vmem.Range, s Span) error {
	f, err := os.OpenFile(s.Path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = all.Map(s.At, f, s.Off, s.Len, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return errors.Join(err, f.Close()) // the mapping stays
}

// Close unmaps the file.
func (m *Memory) Close() error {
	live := m.live
	m.live = nil
	if m.all != nil {
		return m.all.Close()
	}
	if live == nil {
		return nil
	}
	return unix.Munmap(live)
}

// Lines makes n bytes at off of the file durable, as CLWB and SFENCE do.
func (m *Memory) Lines(off, n uint64) {
	m.spring()
	m.writeBack(int(off), int(n))
}

// Flushed makes n bytes at off of the file durable, as a native FLUSH does.
func (m *Memory) Flushed(off uint64, n uint32) { m.writeBack(int(off), int(n)) }

// Pushed makes n bytes at off of the file durable and nothing else of their lines, as an
// adapter does that places past the caches. A store beside them stays volatile.
func (m *Memory) Pushed(off uint64, n uint32) { m.copy(int(off), int(off)+int(n)) }

func (m *Memory) writeBack(off, n int) {
	if off+n > len(m.live) {
		panic(fmt.Errorf("%w: %d bytes at %d of %d", ErrLine, n, off, len(m.live)))
	}
	if n > 0 {
		m.copy(off/Line*Line, min((off+n+Line-1)/Line*Line, len(m.live)))
	}
}

func (m *Memory) copy(from, to int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next != nil {
		return // the machine is off: what still runs has no effect
	}
	copy(m.medium[from:to], m.live[from:to])
}

// Trap calls f when Lines is called for the nth time from now, before that call writes
// anything back. n = 0 removes the trap.
func (m *Memory) Trap(n int, f func()) {
	m.mu.Lock()
	m.trap, m.sprung = n, f
	m.mu.Unlock()
}

func (m *Memory) spring() {
	var f func()
	m.mu.Lock()
	if m.trap > 0 {
		if m.trap--; m.trap == 0 {
			f = m.sprung
		}
	}
	m.mu.Unlock()
	if f != nil {
		f()
	}
}

// A Chance says whether a cache line happened to be written back, by the line's number.
type Chance func(line int) bool

// Seeded returns a Chance of part in 256 that is always the same for a seed.
func Seeded(seed uint64, part uint8) Chance {
	return func(line int) bool {
		x := seed + uint64(line)*0x9e3779b97f4a7c15 // splitmix64 (Steele et al., 2014)
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return uint8(x>>56) < part
	}
}

// Evict writes back the lines that chance picks, as a cache does when it needs room.
func (m *Memory) Evict(chance Chance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		evict(m.medium, m.live, chance)
	}
}

func evict(medium, live []byte, chance Chance) {
	for off := 0; off < len(live); off += Line {
		end := min(off+Line, len(live))
		if string(medium[off:end]) != string(live[off:end]) && chance(off/Line) {
			copy(medium[off:end], live[off:end])
		}
	}
}

// PowerOff cuts the power. Everything that is not durable is lost, except the lines that
// chance picks. Goroutines may continue to use the memory until Restart, without effect.
func (m *Memory) PowerOff(chance Chance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next != nil {
		return
	}
	if m.caches {
		chance = func(int) bool { return true }
	}
	evict(m.medium, m.live, chance)
	m.next = append(m.spare[:0], m.medium...)
}

// Durable calls f with what the next process is sure to find: what Restart restores, or on a running
// machine what a power failure leaves at least. f must not keep it, nor call a method of m.
func (m *Memory) Durable(f func(medium []byte)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.next != nil:
		f(m.next)
	case m.caches:
		f(m.live)
	default:
		f(m.medium)
	}
}

// Kill ends the process that uses the memory. Nothing is lost. As after PowerOff, what
// the process still does has no effect.
func (m *Memory) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		m.next = append(m.spare[:0], m.live...)
	}
}

// Restart restores the file to what the next process finds. It returns a copy, which is
// valid until the next PowerOff or Kill. Nobody may use the memory during the call.
func (m *Memory) Restart() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.next
	copy(m.live, found)
	m.next, m.spare = nil, found
	return found
}
