package remote

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// A windowFile holds the window of an initiator and region, so that the window survives the
// process: it may have the only copy of writes that were acknowledged and not flushed. The pair
// names the file. A process that opens it has the claim of the pair, and locks the file, too. For a
// mirror the UUID of its set stands in the place of the region's.
//
// The file belongs on a filesystem in memory, which a reboot of this host empties. On a disk a
// loss of power can leave any mixture of what the file ever held, and a replay would bring back
// writes that newer ones replaced long ago. So a file of another boot counts for nothing.
//
//	0            4096             4096+index            a multiple of ChunkSize
//	+------------+----------------+----------···--------+------------------+
//	| header × 2 | index rings    |                     | write arena      |
//	+------------+----------------+----------···--------+------------------+
//
// pmnbd writes the header to the two halves of its page in turn, each with a generation
// and a CRC, because a process can be killed in the middle.
type windowFile struct {
	dir  *directory
	own  bool // Close closes dir
	f    *os.File
	page []byte // the header's two halves, mapped
	mem  []byte // the whole file, mapped; nil while there is no window

	mu         sync.Mutex // guards h and generation
	h          header
	generation uint64 // of h
}

// A windowState says how a run left a window file.
type windowState uint32

const (
	// windowLive: the writes of the index that no barrier covered were acknowledged, and this
	// may be their only copy.
	windowLive windowState = iota + 1
	// windowDrained: all writes were flushed. The run closed the session, or was about to.
	windowDrained
	// windowFailed: the device failed for good, and writes that it acknowledged may be lost.
	windowFailed
	// windowDamaged: no header can be read. No header says so.
	windowDamaged
	// windowForeign: a release with another WindowVersion wrote the file, which Failure has. No
	// header says so.
	windowForeign
)

// A header says what a window file holds. It has a fixed size.
type header struct {
	State windowState
	// Opened: Owner had a session in Epoch, and the fields about the region are of that
	// session. Otherwise nothing was ever acknowledged, Epoch is the one that OPEN names, and
	// ContentsID is what the previous run left, or zero. For a mirror: this run, or the one that it
	// continues, has served clients in this boot.
	Opened uint32
	// Lanes, Entries (of the index) and Chunks (of the arena) are the window's shape. Window
	// is how many of the chunks may hold payloads that no barrier covers. Stripe is a constant
	// of the release, in bytes.
	Lanes, Entries, Chunks, Window uint32
	Stripe                         uint64
	Owner                          persist.Owner
	Epoch                          uint64
	Mark                           uint64 // the highest mark that the target has told
	UUID, ContentsID               [16]byte
	Size                           uint64
	Class                          uint32
	// Boot is the host's boot id.
	Boot [16]byte
	// Lineage stays the same over restarts as long as nothing that was acknowledged is lost.
	Lineage [16]byte
	Failure [256]byte // why the device failed, if State is windowFailed
	// Mirror is what the run knew of its mirror, and Sessions what it had on each member, by
	// slot. UUID is then the set's; Epoch, Mark, ContentsID and Class are zero. Before the run
	// begins a generation of its own, only Mirror.Record is set, the one that it goes on from, and Mirror.Equal, what
	// clients have read from by then.
	Mirror   mirror.View
	Sessions [persist.MaxMembers]session
}

// WindowVersion is the version of the window files that this release writes and adopts. Any change
// of the header, the index or the arena is a new version, and a release reads that of the release
// before it, too (docs/compatibility.md).
const WindowVersion = 5

const (
	headerPage   = 4096
	headerAnyone = 0x706d6e62_64770000 // "pmnbdw", and room for a version of 16 bits
	headerMagic  = headerAnyone | WindowVersion
	headerPrefix = 8 + 8 + 4 // magic, generation, CRC of the other fields and the generation
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrWindow means that a window file cannot be used.
var ErrWindow = errors.New("window file")

// openWindowFile opens the window file of an initiator and region in dir. If there is none it
// makes one, whose header has State 0. The State is windowDamaged if no header can be read.
func openWindowFile(dir string, id, region [16]byte) (*windowFile, error) {
	windows, err := openDirectory(dir)
	if err != nil {
		return nil, fmt.Errorf("the directory of window files: %w", err)
	}
	w, err := loadWindowFile(windows, fileOf(id, region, "window"), unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, errors.Join(err, windows.Close())
	}
	w.own = true
	return w, nil
}

// loadWindowFile opens and locks file name of dir. The claim alone would not keep every other
// process out: it lies in the state directory, and each process can have its own.
func loadWindowFile(dir *directory, name string, flags int) (*windowFile, error) {
	f, err := dir.lock(name, flags)
	if err != nil {
		return nil, fmt.Errorf("open the window file: %w", err)
	}
	w := &windowFile{dir: dir, f: f}
	if err := w.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w %s: %w", ErrWindow, f.Name(), err), w.Close())
	}
	return w, nil
}

func (w *windowFile) load() (err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.f.Fd()), &st); err != nil {
		return err
	}
	if st.Uid != uint32(os.Geteuid()) || st.Mode&0o077 != 0 {
		return errors.New("it belongs to somebody else, or others have access to it")
	}
	fresh := st.Size == 0
	if fresh {
		if err := allocate(int(w.f.Fd()), headerPage); err != nil {
			return fmt.Errorf("allocate its header: %w", err)
		}
	}
	if w.page, err = unix.Mmap(int(w.f.Fd()), 0, headerPage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map its header: %w", err)
	}
	if fresh {
		return nil
	}
	found := false
	for i := range 2 {
		if h, n, ok := decodeHeader(w.page[i*headerPage/2:][:headerPage/2]); ok && n > w.generation {
			w.h, w.generation, found = h, n, true
		}
	}
	if !found && !bytes.Equal(w.page, make([]byte, headerPage)) {
		w.h.State = windowDamaged
		if v := w.writtenBy(); v != 0 {
			w.h.State = windowForeign
			copy(w.h.Failure[:], fmt.Sprintf("version %d, and this release reads version %d", v, WindowVersion))
		}
	}
	return nil // all zeroes: the process that made the file was killed
}

// writtenBy is the version of the release that wrote the header, 0 if it is ours or no header.
func (w *windowFile) writtenBy() uint16 {
	for i := range 2 {
		magic := binary.LittleEndian.Uint64(w.page[i*headerPage/2:])
		if magic != headerMagic && magic&^0xffff == headerAnyone {
			return uint16(magic)
		}
	}
	return 0
}

// wipe empties the file, the page of the header too: another release might believe a header
// that this one cannot read.
func (w *windowFile) wipe() error {
	if err := w.shrink(); err != nil {
		return fmt.Errorf("%w %s: make it empty: %w", ErrWindow, w.f.Name(), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.page)
	w.h, w.generation = header{}, 0
	return nil
}

// decodeHeader decodes one half of the page.
func decodeHeader(b []byte) (h header, generation uint64, ok bool) {
	size := binary.Size(h)
	body := b[headerPrefix:][:size]
	generation = binary.LittleEndian.Uint64(b[8:])
	if binary.LittleEndian.Uint64(b) != headerMagic || binary.LittleEndian.Uint32(b[16:]) != headerCRC(generation, body) {
		return h, 0, false
	}
	_, err := binary.Decode(body, binary.LittleEndian, &h)
	return h, generation, err == nil
}

func headerCRC(generation uint64, body []byte) uint32 {
	var g [8]byte
	binary.LittleEndian.PutUint64(g[:], generation)
	return crc32.Update(crc32.Checksum(g[:], castagnoli), castagnoli, body)
}

// header returns a copy of the header.
func (w *windowFile) header() header {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.h
}

// update changes the header.
func (w *windowFile) update(change func(h *header)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.h)
	w.generation++
	half := w.page[int(w.generation%2)*headerPage/2:][:headerPage/2]
	body := half[headerPrefix:][:binary.Size(w.h)]
	clear(half[:headerPrefix])                            // this half is invalid while it is written
	_, _ = binary.Encode(body, binary.LittleEndian, &w.h) // it fits
	binary.LittleEndian.PutUint64(half[8:], w.generation)
	binary.LittleEndian.PutUint32(half[16:], headerCRC(w.generation, body))
	binary.LittleEndian.PutUint64(half, headerMagic)
}

// fail notes that the device failed.
func (w *windowFile) fail(cause error) {
	w.update(func(h *header) {
		h.State = windowFailed
		h.Failure = [256]byte{}
		copy(h.Failure[:], cause.Error())
	})
}

// failure says why the device failed.
func (h *header) failure() string { return strings.TrimRight(string(h.Failure[:]), "\x00") }

// indexSize is the size of the index in bytes.
func (h *header) indexSize() int { return backend.IndexSize(int(h.Lanes), int(h.Entries)) }

// arenaOff is the offset of the arena in the file, in bytes.
func (h *header) arenaOff() int {
	return (headerPage + h.indexSize() + backend.ChunkSize - 1) / backend.ChunkSize * backend.ChunkSize
}

// check returns an error if no run can have left a window of h's shape.
func (h *header) check() error {
	if h.Lanes == 0 || h.Lanes > MaxLanes || h.Stripe != stripe || h.Window > h.Chunks ||
		h.Chunks > MaxWindow/backend.ChunkSize*2 || h.Entries == 0 || h.Entries > 1<<30 {
		return fmt.Errorf("%w of %d lanes, %d entries, %d chunks and stripes of %d bytes", ErrWindow, h.Lanes, h.Entries, h.Chunks, h.Stripe)
	}
	return nil
}

// shape makes room for a new window of the header's shape, and drops the old one.
func (w *windowFile) shape() error {
	if err := w.unmap(); err != nil {
		return err
	}
	h := w.header()
	size := int64(h.arenaOff()) + int64(h.Chunks)*backend.ChunkSize
	fd := int(w.f.Fd())
	if err := unix.Ftruncate(fd, headerPage); err != nil {
		return fmt.Errorf("%w %s: make it empty: %w", ErrWindow, w.f.Name(), err)
	}
	// Allocate all of it now: a full filesystem has to show here, not as SIGBUS under a write.
	if err := allocate(fd, size); err != nil {
		return fmt.Errorf("%w %s: allocate %d bytes: %w: use a smaller window, or a directory with more room", ErrWindow, w.f.Name(), size, err)
	}
	return w.mmap(size)
}

// allocate gives a file size bytes. A signal that comes meanwhile, one of Go's runtime too, ends that in tmpfs.
func allocate(fd int, size int64) (err error) {
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Fallocate(fd, 0, 0, size)
	}
	return err
}

// mmap maps the window that the file holds.
func (w *windowFile) mmap(size int64) (err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.f.Fd()), &st); err != nil {
		return err
	}
	if st.Size < size {
		return loss("%v %s has %d bytes, and its header says %d", ErrWindow, w.f.Name(), st.Size, size)
	}
	w.mem, err = unix.Mmap(int(w.f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("%w %s: map %d bytes: %w", ErrWindow, w.f.Name(), size, err)
	}
	return nil
}

// window returns the arena and the index in the file. At most chunks of the arena's chunks may
// hold payloads that no barrier covers.
func (w *windowFile) window(chunks int) (*backend.Arena, *backend.Window) {
	h := w.header()
	arena := backend.NewArenaOn(w.mem[h.arenaOff():][:int(h.Chunks)*backend.ChunkSize])
	index := w.mem[headerPage:][:h.indexSize()]
	return arena, backend.NewWindowOn(index, arena, chunks, int(h.Lanes), int(h.Entries))
}

// shrink frees the memory of a window that nobody needs any more. The header stays.
func (w *windowFile) shrink() error {
	if err := w.unmap(); err != nil {
		return err
	}
	return unix.Ftruncate(int(w.f.Fd()), headerPage)
}

func (w *windowFile) unmap() error {
	mem := w.mem
	w.mem = nil
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

// Close unmaps and closes the file. It does not remove it.
func (w *windowFile) Close() error {
	err := w.unmap()
	if w.page != nil {
		err = errors.Join(err, unix.Munmap(w.page))
		w.page = nil
	}
	if err = errors.Join(err, w.f.Close()); w.own {
		err = errors.Join(err, w.dir.Close())
	}
	return err
}

// remove removes the file's name. The file stays open and locked until Close.
func (w *windowFile) remove() error {
	return w.dir.Remove(filepath.Base(w.f.Name()))
}
