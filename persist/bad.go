package persist

import (
	"cmp"
	"slices"
	"sort"
)

// BadBlock is the unit of bad places in bytes: a medium that lost some bytes gives none of the page
// around them.
const BadBlock = 4096

// MaxBad is how many ranges the BadPlaces of a region can have. It bounds what a target tells. A place that is
// overwritten block by block, here and there, falls into many.
const MaxBad = 1 << 16

// BadPlaces are the places of a data extent whose bytes the medium has lost: whole BadBlocks, as ranges
// that are sorted and do not touch each other. Nobody changes one; nil has none.
type BadPlaces []Range

// MakeBad returns the places of a data extent of size bytes that ranges touch. Their ends may overflow.
func MakeBad(ranges []Range, size uint64) (b BadPlaces) {
	for _, g := range ranges {
		if g.Len == 0 || g.Off >= size {
			continue
		}
		end := g.Off + min(g.Len, size-g.Off)
		off := g.Off / BadBlock * BadBlock
		b = append(b, Range{off, (end+BadBlock-1)/BadBlock*BadBlock - off})
	}
	slices.SortFunc(b, func(x, y Range) int { return cmp.Compare(x.Off, y.Off) })
	n := 0
	for _, g := range b {
		if n > 0 && g.Off <= b[n-1].End() {
			b[n-1].Len = max(b[n-1].End(), g.End()) - b[n-1].Off
			continue
		}
		b[n] = g
		n++
	}
	return b[:n:n]
}

// Touched returns the first bad range in n bytes at off, cut at whole blocks around them. ok is false if there
// is none.
func (b BadPlaces) Touched(off, n uint64) (g Range, ok bool) {
	i := sort.Search(len(b), func(i int) bool { return b[i].End() > off })
	if n == 0 || i == len(b) || b[i].Off >= off+n {
		return Range{}, false
	}
	from := max(b[i].Off, off/BadBlock*BadBlock)
	to := min(b[i].End(), (off+n+BadBlock-1)/BadBlock*BadBlock)
	return Range{from, to - from}, true
}

// Torn reports whether n bytes at off are a part of a bad block, and not the whole.
func (b BadPlaces) Torn(off, n uint64) bool {
	part := func(at uint64) bool {
		if at%BadBlock == 0 {
			return false
		}
		_, bad := b.Touched(at, 1)
		return bad
	}
	return n > 0 && (part(off) || part(off+n))
}

// Without returns b without the blocks that lie as a whole in g.
func (b BadPlaces) Without(g Range) (left BadPlaces) {
	from, to := (g.Off+BadBlock-1)/BadBlock*BadBlock, g.End()/BadBlock*BadBlock
	for _, bad := range b {
		if bad.End() <= from || bad.Off >= to || from >= to {
			left = append(left, bad)
			continue
		}
		if bad.Off < from {
			left = append(left, Range{bad.Off, from - bad.Off})
		}
		if bad.End() > to {
			left = append(left, Range{to, bad.End() - to})
		}
	}
	return left
}

// Outside returns what of g is not bad.
func (b BadPlaces) Outside(g Range) (good []Range) {
	off := g.Off
	for _, bad := range b {
		if bad.End() <= off || bad.Off >= g.End() {
			continue
		}
		if bad.Off > off {
			good = append(good, Range{off, bad.Off - off})
		}
		off = min(bad.End(), g.End())
	}
	if off < g.End() {
		good = append(good, Range{off, g.End() - off})
	}
	return good
}

// Bytes returns how many bytes are bad.
func (b BadPlaces) Bytes() (n uint64) {
	for _, g := range b {
		n += g.Len
	}
	return n
}
