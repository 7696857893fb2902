// Package image keeps the image of a region of class protected: the file that its memory is
// saved to before the power goes, and loaded from at the next start. It is part of
// persist/region.
//
// It exists so that one place has the order of writes in which an image is at every moment
// either whole, or known to be worthless. It owns the file's contents. It knows neither
// superblocks, which it keeps for its owner, nor what makes memory dirty.
//
// The header is in two copies. The newer one that is valid says what the image is.
//
//   - Nobody may change the memory unless *both* copies say live (Changeable). So if one of
//     them rots, the other cannot call old blocks whole.
//   - A save overwrites blocks in place, since a live image is worthless anyway: blocks, table,
//     sync; then one copy that says whole, sync.
//
// A power failure in between leaves an image that is live, or the one that was whole before
// and that still is what the memory was.
package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ErrTorn means that an image says that it is whole, and is not: a block or the table does
// not have its CRC.
var ErrTorn = errors.New("image torn")

// A File is where an image lies. Reads and writes are direct: no cache holds them, and
// offsets, lengths and addresses are multiples of 4096.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes what was written durable.
	Sync() error
	Name() string
}

// An Image is an open image. One goroutine at a time may call its methods, except Speed, SetSpeed
// and Hangs.
type Image struct {
	f    *patient
	lay  layout
	head Header
	at   int // the copy that has head
	// unread is why one copy of the header could not be read when the image was opened, or nil.
	unread error
	// tried is the header that was given to the file last. If that failed, the file may have it all the same.
	tried Header
	// live says which copies are known to say live, durably.
	live       [2]bool
	generation uint64 // the highest one ever used
	table      []uint32
	speed      atomic.Uint64 // bytes a second; 0: nobody knows
}

// Size returns how many bytes an image of a memory of some bytes has.
func Size(bytes uint64) int64 { return layoutOf(bytes).total() }

// Create makes an image in f, whose Size(h.Bytes) bytes are allocated. It is live until the
// first Save. An error of ErrDamaged means that h makes no sense.
func Create(f File, h Header) (*Image, error) {
	im := &Image{f: &patient{File: f}, lay: layoutOf(h.Bytes), head: h, at: 1}
	im.head.Generation, im.head.State = 1, Live
	if err := im.head.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	im.table = make([]uint32, im.lay.n)
	if err := im.MakeLive(func(*Header) {}); err != nil {
		return nil, err
	}
	return im, nil
}

// Open reads the header of the image in f, of size bytes. What it finds is durable when it
// returns. The error is ErrNone, ErrVersion or ErrDamaged, or one of reading.
func Open(f File, size int64) (*Image, error) {
	if size < 2*headerSize {
		return nil, fmt.Errorf("%s: %w: it has %d bytes", f.Name(), ErrNone, size)
	}
	im := &Image{f: &patient{File: f}}
	// A process may have been killed between a write and its sync.
	if err := im.sync(); err != nil {
		return nil, err
	}
	if err := im.open(size); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return im, nil
}

func (im *Image) open(size int64) error {
	b, err := buffer(2 * headerSize)
	if err != nil {
		return err
	}
	var heads [2]Header
	at := 0
	if im.unread, err = readCopies(im.f, b); err == nil {
		heads, at, err = choose(b)
		if err != nil && im.unread != nil {
			err = fmt.Errorf("%w; and the other one: %s", im.unread, err.Error()) // not damaged: the disk may read it later
		}
	}
	if err = errors.Join(err, unix.Munmap(b)); err != nil {
		return err
	}
	for i := range heads {
		im.live[i] = heads[i].State == Live
	}
	im.head, im.at = heads[at], at
	im.generation = im.head.Generation
	im.speed.Store(im.head.Speed)
	im.lay = layoutOf(im.head.Bytes)
	if size < im.lay.total() {
		return fmt.Errorf("%w: it has %d bytes, and an image of %d needs %d", ErrDamaged, size, im.head.Bytes, im.lay.total())
	}
	im.table = make([]uint32, im.lay.n)
	return nil
}

// readCopies reads both copies of the header into b, one by one: a disk may have lost the sectors of one. That
// one counts as damaged, which is sound for the same reason, and unread says why. With an error neither can be read.
func readCopies(f io.ReaderAt, b []byte) (unread, err error) {
	for i := range int64(2) {
		part := b[i*headerSize : (i+1)*headerSize]
		if _, failed := f.ReadAt(part, i*headerSize); failed != nil {
			clear(part)
			failed = fmt.Errorf("read copy %d of its header: %w", i, failed)
			if unread != nil {
				return nil, errors.Join(unread, failed)
			}
			unread = failed
		}
	}
	return unread, nil
}

// choose reads both copies of the header from b, and says which is the newer one that is valid.
// The other one is zero if it is not.
func choose(b []byte) (heads [2]Header, at int, err error) {
	var errs [2]error
	for i := range heads {
		heads[i], errs[i] = decode(b[i*headerSize:])
		if errors.Is(errs[i], ErrVersion) {
			return heads, 0, errs[i]
		}
	}
	h, other := &heads[0], &heads[1]
	switch {
	case errs[0] != nil && errs[1] != nil:
		if errors.Is(errs[0], ErrNone) && errors.Is(errs[1], ErrNone) {
			return heads, 0, ErrNone
		}
		return heads, 0, fmt.Errorf("%w: copy 0: %w, copy 1: %w", ErrDamaged, errs[0], errs[1])
	case errs[0] != nil:
		return heads, 1, nil
	case errs[1] != nil:
		return heads, 0, nil
	case h.UUID != other.UUID || h.Name != other.Name || h.Bytes != other.Bytes || h.Generation == other.Generation:
		return heads, 0, fmt.Errorf("%w: its copies belong to different regions", ErrDamaged)
	case other.Generation > h.Generation:
		return heads, 1, nil
	}
	return heads, 0, nil
}

// Close closes the file. It changes nothing there.
func (im *Image) Close() error { return im.f.Close() }

// Hangs reports whether the disk still has writes or syncs that took longer than Patience. It may
// still read the memory that they came from.
func (im *Image) Hangs() bool { return im.f.hangs() }

// Header returns the newest header.
func (im *Image) Header() Header { return im.head }

// Unread returns why one copy of the header could not be read when the image was opened, or nil. Where the
// other one says live, that one may say whole.
func (im *Image) Unread() error { return im.unread }

// Speed returns how many bytes the disk takes in a second, or 0 if nobody knows.
func (im *Image) Speed() uint64 { return im.speed.Load() }

// SetSpeed sets the speed, which later headers have.
func (im *Image) SetSpeed(n uint64) { im.speed.Store(n) }

// Path returns where the image is.
func (im *Image) Path() string { return im.f.Name() }

// Blocks returns how many blocks the memory has.
func (im *Image) Blocks() int { return im.lay.n }

// Changeable reports whether the memory may change: no copy of the header says, or may say,
// that the blocks are what the memory is.
func (im *Image) Changeable() bool { return im.live[0] && im.live[1] }

// Intact reports whether the file has the header that it was given last, and its end. It asks the disk, and no cache.
// A disk that hangs tells nothing, so the file counts as intact until it answers.
func (im *Image) Intact() bool {
	if im.Hangs() {
		return true
	}
	b, err := buffer(2 * headerSize)
	if err != nil {
		return false
	}
	intact := false
	err = im.f.do(func() error {
		_, err := im.f.ReadAt(b[:pageSize], im.lay.total()-pageSize)
		if err == nil {
			_, err = readCopies(im.f, b)
		}
		return err
	})
	if err == nil {
		heads, at, err := choose(b)
		intact = err == nil && (heads[at] == im.head || heads[at] == im.tried)
	}
	err = release(b, err)
	return err == nil && intact || errors.Is(err, ErrHangs)
}

// Distrust notes that somebody else has changed the file. Nobody knows what its copies of the header
// say, so the image is not Changeable, and the next MakeLive or Save writes both.
func (im *Image) Distrust() { im.live = [2]bool{} }

// MakeLive makes a live header durable, with what set changes in it, and leaves the image
// Changeable. After an error it may be called again, and the image is as Changeable says.
func (im *Image) MakeLive(set func(*Header)) error {
	next := im.head
	set(&next)
	next.State, next.Speed, next.Table = Live, im.Speed(), 0
	if err := im.write(next); err != nil {
		return err
	}
	if im.Changeable() {
		return nil
	}
	return im.write(next)
}

// write makes h durable in the older copy of the header, which then is the newer one. An
// error leaves the older copy with old, new or no contents.
func (im *Image) write(h Header) error {
	im.generation++ // also after a failed write: no number is used twice
	h.Generation = im.generation
	if err := h.check(); err != nil {
		return fmt.Errorf("%s: header not written: %w", im.f.Name(), err)
	}
	at := 1 - im.at
	im.live[at] = im.live[at] && h.State == Live // half of it written, a copy that said live says nothing
	b, err := buffer(headerSize)
	if err != nil {
		return err
	}
	h.encode(b)
	im.tried = h
	_, err = im.f.WriteAt(b, int64(at)*headerSize)
	if err = release(b, err); err != nil {
		return fmt.Errorf("write the header of %s: %w", im.f.Name(), err)
	}
	if err := im.sync(); err != nil {
		return err
	}
	im.head, im.at, im.live[at] = h, at, h.State == Live
	return nil
}

func (im *Image) sync() error {
	if err := im.f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", im.f.Name(), err)
	}
	return nil
}

// buffer returns n bytes that direct I/O can use. The caller unmaps them.
func buffer(n int64) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, int(roundUp(n, int64(os.Getpagesize()))), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("a buffer of %d bytes: %w", n, err)
	}
	return b[:n], nil
}

// Inspect reads the newest header of an image without opening it, which may be cached reads
// of a file that somebody changes.
func Inspect(f io.ReaderAt) (Header, error) {
	var b, before [2 * headerSize]byte
	for range 16 { // two equal reads are no mixture of old and new
		if _, err := f.ReadAt(b[:], 0); errors.Is(err, io.EOF) {
			return Header{}, ErrNone
		} else if err != nil {
			return Header{}, err
		}
		if b == before {
			break
		}
		before = b
	}
	heads, at, err := choose(b[:])
	return heads[at], err
}
