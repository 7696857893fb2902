package region

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// ErrSave means that a region cannot be saved, or that its image cannot be used. Only regions
// of class protected have an image.
var ErrSave = errors.New("save refused")

// lostMemory says what to do about memory that has lost something.
const lostMemory = "copy the device elsewhere, and create the region again, or give these bytes up (docs/regions.md, Repairing bad blocks)"

// DefaultSaveWithin is how long a save may take if nobody says it.
const DefaultSaveWithin = 2 * time.Minute

// DiskPatience is how long one write or sync of an image may take. What takes longer fails.
const DiskPatience = image.Patience

// Saved says what a Save did.
type Saved struct {
	// Bytes is how many it wrote: the blocks that differed from the image.
	Bytes uint64
	Took  time.Duration
}

// Protection says how far a region of class protected is from its image.
type Protection struct {
	// Image is the path of the image.
	Image string
	// Whole: the image has everything that the memory has. Otherwise a power failure now
	// loses the region.
	Whole bool
	// SavedAt is the time of the last save, zero if there was none.
	SavedAt time.Time
	// Dirty is how many bytes a save would write now, of Size in all.
	Dirty, Size uint64
	// Speed is what the disk took when it was measured last, in bytes a second: at creation,
	// at each open, and at a save of some length. It is 0 if nobody could measure it.
	Speed uint64
	// Expected is how long a save would take now, Longest how long one of everything would,
	// and SaveWithin how long a save may take. If nobody knows the speed, each is SaveWithin.
	Expected, Longest, SaveWithin time.Duration
	// Saving says how far a save is that is under way; nil: there is none.
	Saving *Saving
	// Losses counts how often the contents were lost, LostAt says when that was last.
	Losses uint32
	LostAt time.Time
	// Lost says why this open of the region lost them, or is "".
	Lost string
	// Loaded: this open of the region read the contents from the image, in LoadTook.
	Loaded   bool
	LoadTook time.Duration
}

// saving is what a region of class protected has beside the others.
type saving struct {
	im   *image.Image // under the region's lock
	path string       // of the image
	file os.FileInfo  // as it was opened
	// head is the newest header, for those who do not wait for the lock.
	head atomic.Pointer[image.Header]
	// changeable is what im says. Before it is set nothing may change the memory.
	changeable atomic.Bool
	progress   atomic.Pointer[progress] // of a save under way, or nil
	noteworthy uint64                   // how many bytes a save has at least whose speed counts
	measured   time.Time                // when SaveTrouble or the open last measured the disk; only they use it
	// dirty has a bit for each block that may differ from the image's.
	dirty []atomic.Uint64

	mu sync.Mutex // of the rest, inside the region's lock
	// unknown: the session of epoch does not tell what it stores, or not yet.
	unknown bool
	epoch   uint64

	lost     string
	loaded   bool
	loadTook time.Duration
}

func newSaving(im *image.Image) *saving {
	s := &saving{im: im, path: im.Path(), noteworthy: noteworthy, dirty: make([]atomic.Uint64, (im.Blocks()+63)/64)}
	s.showLocked()
	return s
}

// showLocked makes what the image is visible to callers that hold no lock.
func (s *saving) showLocked() {
	h := s.im.Header()
	s.head.Store(&h)
	s.changeable.Store(s.im.Changeable())
}

// liveLocked makes the image live, with next as the superblock, unless it is so already and
// names next's epoch and record. So nobody finds it whole once the memory has changed, and
// after a loss the epoch goes on from the highest one. If the disk fails, the region does not:
// nothing has changed.
func (r *Region) liveLocked(next *Superblock) error {
	s := r.saving
	if s == nil {
		return nil
	}
	old := r.Superblock()
	if s.im.Changeable() && next.Epoch <= s.im.Header().Epoch && next.Record == old.Record {
		return nil
	}
	err := s.inPlace()
	if err == nil {
		err = s.im.MakeLive(func(h *image.Header) { describe(h, next) })
	}
	s.showLocked()
	if err != nil {
		return fmt.Errorf("region %q: %w: nothing changes while its image cannot say so: %w", r.name, ErrSave, err)
	}
	return nil
}

// describe puts what a header says of a superblock into h. The epoch never goes back.
func describe(h *image.Header, sb *Superblock) {
	h.Epoch, h.Contents, h.Boot = max(h.Epoch, sb.Epoch), sb.Contents, sb.Boot
	sb.encode(h.Superblock[:])
}

// changing is called before ranges change, or after a session has changed them.
func (r *Region) changing(ranges []persist.Range) error {
	s := r.saving
	if s == nil {
		return nil
	}
	if !s.changeable.Load() {
		if err := r.makeLive(); err != nil {
			return err
		}
	}
	for _, g := range ranges {
		s.mark(g)
	}
	return nil
}

func (r *Region) makeLive() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.errClosed()
	}
	sb := r.Superblock()
	return r.liveLocked(&sb)
}

// mark notes that the image lacks a range of the data extent.
func (s *saving) mark(g persist.Range) {
	if g.Len == 0 {
		return
	}
	for i := (DataOffset + g.Off) / image.BlockSize; i <= (DataOffset+g.Off+g.Len-1)/image.BlockSize; i++ {
		s.dirty[i/64].Or(1 << (i % 64))
	}
}

// markAll notes that the image lacks everything.
func (s *saving) markAll() {
	for i := range s.dirty {
		s.dirty[i].Store(^uint64(0))
	}
}

// unknownFrom notes that a session, from epoch on, may store anywhere: everything is dirty until Known or a Save.
// If the former epoch did not end with Known, everything stays dirty until a Save.
func (s *saving) unknownFrom(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unknown && s.epoch != epoch {
		s.markAll() // the former epoch did not say what it stored
	}
	s.unknown, s.epoch = true, epoch
}

// Known notes that the session of the present epoch has ended with CLOSE, and that all that it
// stored lies in ranges that Flush or Zero got. Only those, and what was dirty before, are
// dirty.
func (r *Region) Known() {
	s := r.saving
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == r.sb.Load().Epoch {
		s.unknown = false
	}
}

// lacks returns what says whether a block is dirty, and how many bytes the image lacks. The first
// block has the superblock: whenever the memory may change, so may that.
func (s *saving) lacks(size uint64) (dirty func(int) bool, n uint64) {
	s.mu.Lock()
	all := s.unknown
	s.mu.Unlock()
	if all {
		return func(int) bool { return true }, size
	}
	live := s.head.Load().State == image.Live
	dirty = func(i int) bool { return s.dirty[i/64].Load()&(1<<(i%64)) != 0 }
	if s.dirty[0].Load()&1 == 0 && live {
		n = image.BlockSize
	}
	for i := range s.dirty {
		n += uint64(bits.OnesCount64(s.dirty[i].Load())) * image.BlockSize
	}
	return dirty, min(n, size) // the last block may be shorter
}

// Save writes what differs from the image to it, and returns when the image is whole and
// durable. Nobody may change the memory meanwhile: sessions have ended, and their memory keys
// are destroyed. If ctx ends, or a write fails, the image is not whole, and the region goes on
// as before: another Save may succeed. It saves a failed region, too, with the failure. Memory that it
// cannot read becomes a bad place.
func (r *Region) Save(ctx context.Context) (Saved, error) {
	if r.saving == nil {
		return Saved{}, r.errUnprotected()
	}
	saved, err := r.save(ctx)
	var fault *faultError
	if !errors.As(err, &fault) {
		return saved, err
	}
	g, failed := r.Lose(address(r.mem) + fault.off)
	if failed != nil {
		return saved, failed
	}
	return saved, fmt.Errorf("%w: the memory has lost %d bytes at %d: %s", err, g.Len, g.Off, lostMemory)
}

func (r *Region) save(ctx context.Context) (Saved, error) {
	s := r.saving
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Saved{}, r.errClosed()
	}
	if err := r.ownLocked(); err != nil {
		return Saved{}, r.failLocked(err)
	}
	h := s.im.Header()
	err := s.displacedLocked()
	overwritten := errors.Is(err, errOverwritten)
	if overwritten { // the file is in its place, so write all of it
		s.im.Distrust()
		s.markAll()
		err = s.completeAtPath()
	}
	if err != nil {
		return Saved{}, fmt.Errorf("region %q is not saved: %w", r.name, err)
	}
	began, alone := time.Now(), underWay.begin()
	defer alone()
	if err := r.settleLocked(); err != nil {
		return Saved{}, fmt.Errorf("save region %q: %w", r.name, err)
	}
	sb := r.Superblock()
	dirty, n := s.lacks(uint64(len(r.mem)))
	equal := h.State == image.Whole && same(&h, &sb) && !overwritten
	if equal && n == 0 {
		return Saved{}, nil
	}
	// The first block has superblock and bits, which no range tells. A failure changes it, too, and makes
	// no image live.
	saved, err := r.saveLocked(ctx, &sb, func(i int) bool { return i == 0 && !equal || dirty(i) })
	s.showLocked()
	if err != nil {
		return saved, fmt.Errorf("save region %q: %w", r.name, err)
	}
	if err := s.displacedLocked(); err != nil { // a save can take minutes
		return saved, fmt.Errorf("region %q is not saved: %w", r.name, err)
	}
	s.mu.Lock()
	s.unknown = false
	s.mu.Unlock()
	for i := range s.dirty {
		s.dirty[i].Store(0)
	}
	saved.Took = time.Since(began)
	if alone() && saved.Bytes >= s.noteworthy {
		s.im.SetSpeed(image.SpeedOf(saved.Bytes, saved.Took))
	}
	return saved, nil
}

// settleLocked settles the doubt: what can be read is durable when it is saved. If the image had
// the doubt, the next start would settle it, and with that end the image. If the image lacks anything, the
// superblock gets another generation, which tells this memory from a copy that somebody made of it before.
func (r *Region) settleLocked() error {
	sb := r.Superblock()
	if sb.Failed || !sb.Doubt && r.saving.im.Header().State == image.Whole {
		return nil
	}
	if err := r.liveLocked(&sb); err != nil {
		return err
	}
	r.medium.Fence()
	sb.Doubt = false
	if err := r.writeLocked(sb); err != nil {
		return r.failLocked(err)
	}
	return nil
}

func (r *Region) saveLocked(ctx context.Context, sb *Superblock, dirty func(int) bool) (Saved, error) {
	s := r.saving
	s.changeable.Store(false) // a caller of changing waits, and then makes the image live
	p := &progress{began: time.Now()}
	s.progress.Store(p)
	defer s.progress.Store(nil)
	err := s.im.Save(ctx, r.mem, dirty, r.sum, func(h *image.Header) {
		describe(h, sb)
		h.SavedAt = time.Now().UnixNano()
	}, &p.Progress)
	return Saved{Bytes: p.Written.Load()}, err
}

// sum is sum of b, a part of the region's mapping. The offset of its faultError is that in the mapping.
func (r *Region) sum(b []byte) (uint32, error) {
	crc, err := sum(b)
	var fault *faultError
	if errors.As(err, &fault) {
		err = &faultError{address(b) - address(r.mem) + fault.off}
	}
	return crc, err
}

// sum returns the CRC32C of b, a part of a mapping.
func sum(b []byte) (crc uint32, err error) {
	defer caught(b, debug.SetPanicOnFault(true), &err)
	return crc32.Checksum(b, castagnoli), nil
}

// same reports whether the superblock of h is sb, but for the boot and for which memory it is.
func same(h *image.Header, sb *Superblock) bool {
	saved, err := decode(h.Superblock[:])
	saved.Boot, saved.Memory = sb.Boot, sb.Memory
	return err == nil && saved == *sb
}

// Protection says how the image is. ok is false for any other class than protected.
func (r *Region) Protection() (p Protection, ok bool) {
	s := r.saving
	if s == nil {
		return Protection{}, false
	}
	h := *s.head.Load()
	h.Speed = s.im.Speed()
	p = protectionOf(s.path, &h)
	p.Whole = p.Whole && !s.changeable.Load()
	_, p.Dirty = s.lacks(p.Size)
	p.Expected = p.takes(p.Dirty)
	p.Saving = s.progress.Load().saving(&p)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Lost, p.Loaded, p.LoadTook = s.lost, s.loaded, s.loadTook
	return p, true
}

// protectionOf says what a header tells. Nobody knows what is dirty if it is live.
func protectionOf(path string, h *image.Header) Protection {
	p := Protection{Image: path, Whole: h.State == image.Whole, Size: h.Bytes, Speed: h.Speed, SaveWithin: h.Within, Losses: h.Losses}
	if h.SavedAt != 0 {
		p.SavedAt = time.Unix(0, h.SavedAt)
	}
	if h.LostAt != 0 {
		p.LostAt = time.Unix(0, h.LostAt)
	}
	if !p.Whole {
		p.Dirty = p.Size
	}
	p.Expected, p.Longest = p.takes(p.Dirty), p.takes(p.Size)
	return p
}

func (r *Region) errUnprotected() error {
	return fmt.Errorf("region %q: %w: it is of class %v and has no image", r.name, ErrSave, r.class)
}
