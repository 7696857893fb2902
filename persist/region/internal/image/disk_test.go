package image

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errCut    = errors.New("the power is off")
	errBroken = errors.New("broken")
	errUnread = errors.New("medium error")
)

const sector = 512

type pages map[int64]*[pageSize]byte

// A disk is a File that forgets what was not synced. It counts writes and syncs, loses its power
// at one of them, and fails others.
type disk struct {
	mu      sync.Mutex
	durable pages
	pending []piece // one page of a write each, in order
	ops     int
	cutAt   int // the power goes off at this op; -1: never
	broken  func(op int) bool
	bad     int // the copy of the header that cannot be read; -1: neither
	rng     *rand.Rand
}

type piece struct {
	page int64
	b    [pageSize]byte
}

func newDisk(seed uint64) *disk {
	return &disk{durable: pages{}, cutAt: -1, bad: -1, broken: func(int) bool { return false }, rng: rand.New(rand.NewPCG(seed, 0))}
}

func (d *disk) Name() string { return "disk" }
func (d *disk) Close() error { return nil }

// step counts an op. what the op did before it failed, if it fails, is for chance to say.
func (d *disk) step() error {
	op := d.ops
	d.ops++
	switch {
	case d.cutAt >= 0 && op >= d.cutAt:
		return errCut
	case d.broken(op):
		return errBroken
	}
	return nil
}

func (d *disk) WriteAt(b []byte, off int64) (int, error) {
	if off%pageSize != 0 || len(b)%pageSize != 0 {
		panic("not direct I/O")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.step()
	if errors.Is(err, errCut) && d.ops-1 > d.cutAt {
		return 0, err // off since an earlier op
	}
	for i := 0; i < len(b); i += pageSize {
		if err == nil || d.rng.IntN(2) == 0 {
			d.pending = append(d.pending, piece{(off + int64(i)) / pageSize, [pageSize]byte(b[i:])})
		}
	}
	return len(b), err
}

func (d *disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step(); err != nil {
		return err
	}
	for _, p := range d.pending {
		d.durable[p.page] = &p.b
	}
	d.pending = nil
	return nil
}

func (d *disk) ReadAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := int64(d.bad) * headerSize; d.bad >= 0 && off < at+headerSize && at < off+int64(len(b)) {
		return 0, errUnread
	}
	n := 0
	for i := 0; i < len(b); i += pageSize {
		var page [pageSize]byte
		at := (off + int64(i)) / pageSize
		if p := d.durable[at]; p != nil {
			page = *p
		}
		for _, p := range d.pending {
			if p.page == at {
				page = p.b
			}
		}
		n += copy(b[i:], page[:])
	}
	if n < len(b) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

// after returns the disk as a power failure leaves it: of what was not synced, any sectors are
// there.
func (d *disk) after(seed uint64) *disk {
	next := newDisk(seed)
	next.durable = maps.Clone(d.durable)
	for _, p := range d.pending {
		var page [pageSize]byte
		if old := next.durable[p.page]; old != nil {
			page = *old
		}
		how := next.rng.IntN(3) // nothing, all, or some sectors
		for s := 0; s < pageSize; s += sector {
			if how == 1 || how == 2 && next.rng.IntN(2) == 0 {
				copy(page[s:s+sector], p.b[s:])
			}
		}
		next.durable[p.page] = &page
	}
	return next
}

// rot damages a copy of the header.
func (d *disk) rot(at int) *disk {
	next := newDisk(0)
	next.durable = maps.Clone(d.durable)
	var page [pageSize]byte
	if old := next.durable[int64(at)*headerSize/pageSize]; old != nil {
		page = *old
	}
	page[100] ^= 0x10
	next.durable[int64(at)*headerSize/pageSize] = &page
	return next
}

// unreadable is d, which cannot read a copy of the header.
func (d *disk) unreadable(at int) *disk {
	next := newDisk(0)
	next.durable, next.bad = d.durable, at
	return next
}
