package region

import (
	"fmt"

	"pmnbd/persist"
)

// A Progress hears how far something is that takes long: which step is under way, and how many
// bytes of how many it has done. A total of 0 is a step of which nobody knows. It is called from
// the goroutine that does the work, a few times for each gigabyte or more often, and must not wait.
// Nil hears nothing.
type Progress func(step string, done, total uint64)

func (p Progress) tell(step string, done, total uint64) {
	if p != nil {
		p(step, done, total)
	}
}

// showPiece is how many bytes of memory are read or written back before Progress hears of it.
const showPiece = 64 << 20

// readBack reads all that the region has in memory, so that what cannot be read is found, and writes
// it back with the CPU. failed reports whether an error is one of making it durable.
func (r *Region) readBack(p Progress) (failed bool, err error) {
	all := r.mem[bitsOffset : DataOffset+r.size]
	total := uint64(len(all))
	var bad persist.BadPlaces // of all: nobody can read them, so nothing of them is to be durable
	for _, g := range r.Bad() {
		bad = append(bad, persist.Range{Off: DataOffset - bitsOffset + g.Off, Len: g.Len})
	}
	for off := uint64(0); off < total; off += showPiece {
		p.tell("read", off, total)
		piece := persist.Range{Off: off, Len: min(showPiece, total-off)}
		for _, g := range bad.Outside(piece) {
			if err := readable(all[g.Off:g.End()]); err != nil {
				return false, fmt.Errorf("region %q: read it: %w", r.name, err)
			}
		}
	}
	for off := uint64(0); off < r.size; off += showPiece {
		p.tell("write back", off, r.size)
		if err := r.writeBack(r.Bad().Outside(persist.Range{Off: off, Len: min(showPiece, r.size-off)})); err != nil {
			return true, err
		}
	}
	return false, nil
}
