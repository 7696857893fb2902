package region

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// badPlaces are the places of a region that its medium has lost. Touching one is a fault, or a machine
// check: nobody may read there.
type badPlaces struct {
	list    atomic.Pointer[persist.BadPlaces] // lost, and the blocks of mending; nil: none; stored under mu
	mu      sync.Mutex                        // outside the region's lock
	lost    persist.BadPlaces                 // what cannot be touched, or was under repair when the region was opened; guarded by mu
	gone    atomic.Pointer[persist.BadPlaces] // lost, for callers that must not wait for mu; stored under mu
	losses  atomic.Uint64                     // how often Lose has added to it
	repairs repairs                           // guarded by mu
	unknown error                             // why there may be more; set once
	clears  bool                              // overwriting whole blocks makes them good; set once
	ram     bool                              // it does not, because the file is RAM; set once
	mends   atomic.Uint64                     // how many blocks were made good, ever; 0 while mending is empty
	mended  uint64                            // the same, also then; guarded by mu
	mending []mended                          // guarded by mu
}

// findBad finds what was lost of r before it was opened. m is its memory.
func (r *Region) findBad(m *medium.Memory) {
	if r.parts == nil {
		r.bad.find(r.file, m, r.size, r.medium)
	} else {
		r.bad.findParts(r.parts, r.size, r.medium)
	}
	r.bad.addRepairs(r.mem, r.size)
}

// find reads the bad places of the file or device f, of a region with a data extent of size bytes. It
// does not fail: a fault tells of places that it has not found.
func (b *badPlaces) find(f *os.File, m *medium.Memory, size uint64, on medium.Medium) {
	b.clears, b.ram = mendable(m), m.RAM
	found, err := on.Bad(f, m)
	b.keep(f, fromData(found, DataOffset), err, size)
}

// fromData returns what of found lies at data or behind, as seen from there.
func fromData(found []persist.Range, data uint64) (extent []persist.Range) {
	for _, g := range found {
		if g.Off > maxSize || g.Len > maxSize || g.End() <= data {
			continue
		}
		if g.Off < data {
			g = persist.Range{Off: data, Len: g.End() - data}
		}
		extent = append(extent, persist.Range{Off: g.Off - data, Len: g.Len})
	}
	return extent
}

// keep keeps the bad places of a data extent of size bytes, which were found with an error or without.
func (b *badPlaces) keep(f *os.File, extent []persist.Range, err error, size uint64) {
	list := persist.MakeBad(extent, size)
	if len(list) > persist.MaxBad {
		err = errTooManyBad(len(list))
		list = list[:persist.MaxBad]
	}
	if err != nil {
		b.unknown = fmt.Errorf("%s: look for bad places: %w", f.Name(), err)
	}
	b.lost = list
	b.tellLocked(size)
}

func errTooManyBad(n int) error {
	return fmt.Errorf("%d bad places are more than the %d that a region may have: replace the memory", n, persist.MaxBad)
}

// tellLocked tells of what is bad, once that has changed. size is that of the data extent in bytes. The caller holds
// mu, or is alone.
func (b *badPlaces) tellLocked(size uint64) {
	lost := b.lost
	b.gone.Store(&lost)
	list := b.tells(lost, size)
	if len(list) == 0 {
		b.list.Store(nil)
		return
	}
	b.list.Store(&list)
}

// tells returns what initiators are told of if lost cannot be touched.
func (b *badPlaces) tells(lost persist.BadPlaces, size uint64) persist.BadPlaces {
	all := slices.Clone([]persist.Range(lost))
	for _, m := range b.mending {
		all = append(all, m.block)
	}
	return persist.MakeBad(all, size)
}

func (b *badPlaces) places() persist.BadPlaces {
	if list := b.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Bad returns the places of the data extent that the medium has lost. The caller changes nothing in it.
func (r *Region) Bad() persist.BadPlaces { return r.bad.places() }

// Lost returns a place in ranges that cannot be touched: a bad one that nobody has made good. ok is false if there is
// none. What was stored there since it was found is lost, too.
func (r *Region) Lost(ranges []persist.Range) (g persist.Range, ok bool) {
	lost := r.bad.gone.Load()
	if lost == nil || len(*lost) == 0 {
		return g, false
	}
	for _, want := range ranges {
		if g, ok = lost.Touched(want.Off, want.Len); ok {
			return g, true
		}
	}
	return g, false
}

// BadUnknown returns why there may be bad places beside those of Bad, or nil.
func (r *Region) BadUnknown() error { return r.bad.unknown }

// FlushReadable makes a range of the data extent durable, but for its bad places: what nobody can read
// needs no flush. A barrier, which promises what it names, calls Flush.
func (r *Region) FlushReadable(g persist.Range) error {
	bad := r.Bad()
	if len(bad) == 0 {
		return r.Flush([]persist.Range{g})
	}
	return r.Flush(bad.Outside(g))
}

// maxLost is how many bytes one fault can add to the bad places.
const maxLost = 256 << 10

// Lose notes that the medium has lost the block at address addr of the mapping, because reading it was a
// fault, and the blocks behind it that cannot be read either. It returns them, as a range of the data
// extent. If that is no loss of single blocks, the region fails: the address is not in the data extent, the
// file has become shorter, or there are more bad places than a region may have.
func (r *Region) Lose(addr uintptr) (persist.Range, error) {
	cause := fmt.Errorf("%w at address %#x", ErrFault, addr)
	off := uint64(addr - address(r.mem)) // wraps to beyond the end for an address in front of mem
	if off < DataOffset || off-DataOffset >= r.size {
		return persist.Range{}, r.Fail(cause)
	}
	if err := r.whole(); err != nil {
		return persist.Range{}, r.Fail(errors.Join(cause, err))
	}
	off = (off - DataOffset) / persist.BadBlock * persist.BadBlock
	lost := persist.Range{Off: off, Len: min(persist.BadBlock, r.size-off)}
	for lost.Len < maxLost && lost.End() < r.size {
		if readable(r.Data()[lost.End():min(lost.End()+persist.BadBlock, r.size)]) == nil {
			break
		}
		lost.Len += persist.BadBlock
	}
	r.bad.mu.Lock()
	defer r.bad.mu.Unlock()
	list := persist.MakeBad(append(slices.Clone([]persist.Range(r.bad.lost)), lost), r.size)
	if len(r.bad.tells(list, r.size)) > persist.MaxBad {
		return persist.Range{}, r.Fail(fmt.Errorf("%w, and more than %d places are bad", cause, persist.MaxBad))
	}
	r.bad.lost = list
	r.bad.mending = slices.DeleteFunc(r.bad.mending, func(m mended) bool { return m.block.Off < lost.End() && lost.Off < m.block.End() })
	r.bad.tellLocked(r.size)
	r.bad.losses.Add(1) // after the list: a caller that reads the number first and then the list misses no loss
	return lost, nil
}

// Losses returns how often Lose has found bad places. If it returns what it did before Lost found none, then none
// has come since.
func (r *Region) Losses() uint64 { return r.bad.losses.Load() }

// whole returns an error if the region's file is shorter than it was.
func (r *Region) whole() error {
	if r.parts != nil {
		return r.wholeParts()
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(r.file.Fd()), &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && uint64(st.Size) < DataOffset+r.size {
		return fmt.Errorf("%w: it has %d bytes", ErrTruncated, st.Size)
	}
	return nil
}
