package region

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// findParts is find for a region of several parts.
func (b *badPlaces) findParts(parts []part, size uint64, on medium.Medium) {
	var extent []persist.Range
	var errs []error
	b.clears = true
	for i := range parts {
		p := &parts[i]
		b.clears = b.clears && mendable(&p.mem) // initiators are told one thing of the region
		found, err := on.Bad(p.file, &p.mem)
		if err != nil {
			errs = append(errs, fmt.Errorf("part %d, %s: %w", i, p.path, err))
		}
		for _, g := range fromData(found, p.data) {
			if g.Off < p.size { // files and devices can be longer
				extent = append(extent, persist.Range{Off: p.start + g.Off, Len: min(g.Len, p.size-g.Off)})
			}
		}
	}
	b.keep(parts[0].file, extent, errors.Join(errs...), size)
}

// wholeParts is whole for a region of several parts.
func (r *Region) wholeParts() error {
	for i := range r.parts {
		p := &r.parts[i]
		var st unix.Stat_t
		if err := unix.Fstat(int(p.file.Fd()), &st); err != nil {
			return fmt.Errorf("stat: %w", err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && uint64(st.Size) < p.data+p.size {
			return fmt.Errorf("part %d, %s: %w: it has %d bytes", i, p.path, ErrTruncated, st.Size)
		}
	}
	return nil
}
