// Package region keeps regions, only for this module; it promises nothing to other
// programs. A region is a named extent of memory on a target, of a fixed size, with its
// superblock in front of the data extent (design §5). It is one file or device, or several
// behind each other (part.go).
//
// It exists so that one place knows what a region's memory is, what makes writes to it
// durable, and what has happened to it. It detects the class, keeps the superblock in two
// copies that survive a crash at any step, and remembers a failure for good. It owns the
// mapping, the region's only open file description, and the lock on it. Sessions, leases
// and keys belong to persist/target, which keeps them in the superblock through Update.
//
// Each region has one lock. It covers reading, changing and writing the superblock, and
// every sync of a file: of two syncs at a time, each could collect the other's error. Different
// files are synced at the same time (partsync.go).
// Superblock, Failed, Data and what never changes are read without the lock, so nobody
// waits for a slow disk to learn the state of a region. The bitmaps of a mirror's members
// have a lock of their own (bits.go), which is taken inside the other one.
package region

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pmnbd/internal/latency"
	"pmnbd/internal/vmem"
	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// PathMemfd is the path that stands for anonymous memory. Such a region exists only while
// it is open.
const PathMemfd = "memfd:"

var (
	// ErrInUse means that another process, or another Open in this one, holds the region.
	ErrInUse = errors.New("region is in use")
	// ErrTruncated means that the file is shorter than the superblock says.
	ErrTruncated = errors.New("file is truncated")
	// ErrClosed means that the region was closed.
	ErrClosed = errors.New("region is closed")
)

// OpenOptions says what the caller of Open expects and allows.
type OpenOptions struct {
	// Name must be the region's name. An empty Name matches any region.
	Name string
	// AllowVolatile permits class volatile. It does not change the class.
	AllowVolatile bool
	// Save is the directory where the image of a region of class protected lies. A region
	// of another class is refused with it, and one of class protected without it (ErrSave).
	Save string
	// Saving opens a region of class protected only to save or clear it. The memory need not be locked, and nobody
	// measures the disk.
	Saving bool
	// CreateSize, unless 0, creates a region of that size in bytes, named Name, if path
	// does not exist. An existing region must have that size. PathMemfd requires it.
	CreateSize uint64
	// Parts are the paths of the region's further parts, in their order. Open does not
	// create them: a region of several parts needs Create.
	Parts []string
	// Wrap, unless nil, gets the machine's medium and returns the one that the region
	// uses. Only tests set it, through persist/region/regiontest.
	Wrap func(medium.Medium) medium.Medium
}

// A Region is an open region. Several goroutines may call its methods at the same time.
// Close must wait until all others have returned.
type Region struct {
	path  string
	file  *os.File // holds the flock
	mem   []byte   // header and data
	name  string
	size  uint64
	class persist.Class
	uuid  [16]byte

	platform Platform
	medium   medium.Medium

	sb     atomic.Pointer[Superblock] // stored under mu
	failed atomic.Pointer[string]     // stored under mu; never reset
	begun  atomic.Uint64              // how many syncs have begun
	synced latency.Stopwatch

	mu         sync.Mutex
	newer      int       // the index of the newer copy of the superblock
	left       [2]uint64 // the generations that this process left in the copies
	generation uint64    // the highest one ever used
	done       uint64    // the last successful sync, as begun counts them
	closed     bool

	bits bitmaps
	bad  badPlaces

	saving *saving // nil, but for class protected

	// parts are those of a region of several, the first one with file. The slice and the
	// files stay; it is nil for a region that is one file or device.
	parts []part
	space *vmem.Range   // what mem lies in, of a region of several parts
	noted atomic.Uint32 // parts that the next Flush of nothing syncs (partflush.go)
}

// Open opens the region at path and locks it against every other Open, Create and Clear.
// It also opens a failed or suspect region, so that the target can tell initiators: see
// Failed and Superblock. When Open returns, the consequences of a crash or a new boot are
// durable.
func Open(path string, o OpenOptions) (*Region, error) {
	on := thisMachine
	if o.Wrap != nil {
		on = o.Wrap(on)
	}
	return open(path, o, on)
}

func open(path string, o OpenOptions, on medium.Medium) (*Region, error) {
	if o.Save != "" && len(o.Parts) > 0 {
		return nil, fmt.Errorf("%s: %w: a region of class %v cannot have several parts", path, ErrSave, persist.ClassProtected)
	}
	if o.Save != "" {
		return openProtected(path, o, on)
	}
	f, mem, err := openOrCreate(path, o, on)
	if err != nil {
		return nil, err
	}
	r, err := loadParts(f, path, mem, o.Parts, o.AllowVolatile, on)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := r.expect(o); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// openOrCreate opens the file of a region, locked. If o.CreateSize is set it creates a
// missing file first.
func openOrCreate(path string, o OpenOptions, on medium.Medium) (*os.File, medium.Memory, error) {
	if path == PathMemfd && len(o.Parts) == 0 {
		return createMemfd(o, on)
	}
	if o.CreateSize != 0 && len(o.Parts) == 0 {
		f, mem, err := createFile(path, CreateOptions{Name: o.Name, Size: o.CreateSize}, o.AllowVolatile, on)
		if !errors.Is(err, os.ErrExist) {
			return f, mem, err
		}
	}
	f, mem, err := openLocked(path, on)
	if errors.Is(err, os.ErrNotExist) && !amongDevices(path) {
		err = fmt.Errorf("%w: make it with `pmnbd-target region create NAME PATH --size SIZE`", err)
	}
	if err == nil && mem.Class == persist.ClassVolatile && !o.AllowVolatile {
		err = refuseVolatile(path, mem.Why)
		if isProtected(f, &mem) {
			err = needsSave(path)
		}
		err = errors.Join(err, f.Close())
	}
	return f, mem, err
}

func refuseVolatile(path, why string) error {
	if why != "" {
		return fmt.Errorf("%s: %w: %s; --allow-volatile permits that", path, ErrVolatile, why)
	}
	return fmt.Errorf("%s: %w: it loses its contents with the power; --allow-volatile permits that", path, ErrVolatile)
}

// openLocked opens an existing file that no other user can change, locks it and
// identifies its memory.
func openLocked(path string, on medium.Medium) (*os.File, medium.Memory, error) {
	f, err := openNode(path, os.O_RDWR)
	if err != nil {
		return nil, medium.Memory{}, err
	}
	mem, err := lockAndClassify(f, on)
	if err == nil {
		err = named(f)
	}
	if err != nil {
		return nil, medium.Memory{}, errors.Join(err, f.Close())
	}
	return f, mem, nil
}

// named returns an error if f, which is locked, has no name any more: whoever had the lock before has removed it.
func named(f *os.File) error {
	own, err := f.Stat()
	if err != nil {
		return err
	}
	if at, err := os.Stat(f.Name()); err != nil || !os.SameFile(at, own) {
		return fmt.Errorf("%s: %w: somebody has just removed it, or put another file there: try again", f.Name(), ErrInUse)
	}
	return nil
}

// lockAndClassify identifies the memory of f and takes the lock that gives a region one
// user for as long as f is open.
func lockAndClassify(f *os.File, on medium.Medium) (medium.Memory, error) {
	mem, err := on.Identify(f)
	if err != nil {
		return medium.Memory{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return medium.Memory{}, fmt.Errorf("%s: %w: a pmnbd-target serves or changes it", f.Name(), ErrInUse)
	case err != nil:
		return medium.Memory{}, fmt.Errorf("%s: flock: %w", f.Name(), err)
	}
	return mem, nil
}

// load maps the region in f, which is locked, and brings its superblock up to date. On
// success the region owns f, and the files of parts: none, or all parts of the region.
func load(f *os.File, path string, m medium.Memory, on medium.Medium, parts ...part) (*Region, error) {
	var header [2 * CopySize]byte
	if err := readHeader(f, &m, header[:]); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	found, err := readCopies(header[:])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, notRegion(err, header[:]))
	}
	sb := &found.best
	if sb.Class == persist.ClassProtected && m.Class != sb.Class {
		return nil, needsSave(path)
	}
	if err := readParts(parts, &found); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if parts != nil {
		if m, err = weakest(parts); err != nil {
			return nil, err
		}
		found.lost = lostStamp(parts, sb)
	}
	if sb.Class != m.Class {
		return nil, fmt.Errorf("%s: %w: it was made as class %v and is class %v now: create a region here and copy the data into it",
			path, ErrClass, sb.Class, m.Class)
	}
	boot, err := on.BootID()
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	mem, space, err := mapRegion(f, &m, parts, sb.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := &Region{
		parts: parts, space: space,
		path: path, file: f, mem: mem, name: sb.Name, size: sb.Size, class: m.Class, uuid: sb.UUID,
		platform: m.Platform, medium: on, newer: found.at, generation: sb.Generation,
	}
	r.bits.shape(r.size)
	for i := range r.left {
		r.left[i] = binary.LittleEndian.Uint64(header[i*CopySize+offGeneration:])
	}
	r.findBad(&m)
	r.sb.Store(sb)
	if sb.Failed {
		r.setFailed(sb.Failure)
	}
	next := onOpen(found, &m, boot, newID())
	if err := r.establish(found, next); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), r.unmap())
	}
	return r, nil
}

// establish makes the superblock that Open found durable, or next if it differs. The
// process that wrote the newer copy may have been killed before its last step was
// durable. Once the target has told an initiator about the superblock, for example its
// epoch, a power failure must not revert it.
func (r *Region) establish(found copies, next Superblock) (err error) {
	defer caught(r.mem, debug.SetPanicOnFault(true), &err)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case found.best.Failed:
	case r.parts != nil:
		err = r.persistHeadsLocked()
	case r.class == persist.ClassFile:
		err = r.medium.Sync(r.file)
	default:
		r.medium.WriteBack(r.mem, 0, 2*CopySize)
	}
	if err == nil && r.bad.repairs.generation != 0 && !found.best.Failed && !r.headSynced() {
		r.medium.WriteBack(r.mem, repairsOffset, 2*repairsSize)
	}
	if err == nil {
		err = r.ownLocked()
	}
	if write := next != found.best || !found.good(); err == nil && (write || r.unsettled(&next)) {
		err = r.renewAtOpenLocked(next)
	}
	if err == nil && !found.best.Failed {
		err = r.settleBitsLocked()
	}
	if err != nil {
		err = errors.Join(err, r.failLocked(err)) // Open has no other way to report it
	}
	return err
}

// expect compares the region with what the caller of Open expects.
func (r *Region) expect(o OpenOptions) error {
	if o.Name != "" && o.Name != r.name {
		return fmt.Errorf("%s: %w: it is %q, not %q", r.path, ErrName, r.name, o.Name)
	}
	if o.CreateSize != 0 && o.CreateSize != r.size {
		return fmt.Errorf("%s: %w: it has %d bytes, not %d: a region keeps its size, so leave the size out, or name another path", r.path, ErrSize, r.size, o.CreateSize)
	}
	return nil
}

// Close unmaps the region and releases its lock. It does not mark the region clean: only
// a session's CLOSE does that.
func (r *Region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.endSyncersLocked()
	var err error
	if r.saving == nil || !r.saving.im.Hangs() { // or the disk may still read the memory: it stays mapped
		err = r.unmap()
	}
	err = errors.Join(err, release(r.file), closeFurther(r.parts))
	if r.saving != nil {
		err = errors.Join(err, r.saving.im.Close())
	}
	return err
}

// Name returns the region's name.
func (r *Region) Name() string { return r.name }

// Path returns the path at which the region was opened.
func (r *Region) Path() string { return r.path }

// UUID returns the id that no other region has.
func (r *Region) UUID() [16]byte { return r.uuid }

// Size returns the size of the data extent in bytes.
func (r *Region) Size() uint64 { return r.size }

// Class returns the class of the region's memory.
func (r *Region) Class() persist.Class { return r.class }

// Platform returns what the machine says about the memory beneath the region.
func (r *Region) Platform() Platform { return r.platform }

// Data returns the data extent, mapped and page-aligned. It is valid until Close.
// Touching it can raise SIGBUS. A caller that gets a SIGBUS calls Fail.
func (r *Region) Data() []byte { return r.mem[DataOffset : DataOffset+r.size : DataOffset+r.size] }

// Superblock returns a copy of the current superblock.
func (r *Region) Superblock() Superblock { return *r.sb.Load() }

func (r *Region) errClosed() error { return fmt.Errorf("region %q: %w", r.name, ErrClosed) }
