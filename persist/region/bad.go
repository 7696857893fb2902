package region

import (
	"fmt"
	"os"
	"sync/atomic"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// badPlaces are the places of a region that its medium has lost. Touching one is a fault, or a machine
// check: nobody may read there.
type badPlaces struct {
	list    atomic.Pointer[persist.BadPlaces] // nil: none
	unknown error                             // why there may be more; set once
}

// find reads the bad places of the file or device f, of a region with a data extent of size bytes. It
// does not fail: a fault tells of places that it has not found.
func (b *badPlaces) find(f *os.File, m *medium.Memory, size uint64, on medium.Medium) {
	found, err := on.Bad(f, m)
	var extent []persist.Range
	for _, g := range found {
		if g.Off > maxSize || g.Len > maxSize || g.End() <= DataOffset {
			continue
		}
		if g.Off < DataOffset {
			g = persist.Range{Off: DataOffset, Len: g.End() - DataOffset}
		}
		extent = append(extent, persist.Range{Off: g.Off - DataOffset, Len: g.Len})
	}
	list := persist.MakeBad(extent, size)
	if len(list) > persist.MaxBad {
		err = fmt.Errorf("%d bad places are more than the %d that a region may have: replace the memory", len(list), persist.MaxBad)
		list = list[:persist.MaxBad]
	}
	if err != nil {
		b.unknown = fmt.Errorf("%s: look for bad places: %w", f.Name(), err)
	}
	if len(list) > 0 {
		b.list.Store(&list)
	}
}

func (b *badPlaces) places() persist.BadPlaces {
	if list := b.list.Load(); list != nil {
		return *list
	}
	return nil
}

// Bad returns the places of the data extent that the medium has lost. The caller changes nothing in it.
func (r *Region) Bad() persist.BadPlaces { return r.bad.places() }

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
