package remote

import "pmnbd/persist"

// The members in F keep bits for a follower as for every member outside F: each barrier sets those of
// what it covers. So if this process dies, a resync of what lagged is enough (mirror §7). A bit may be
// cleared when the follower has acknowledged every barrier that set it (mirror §3.5). Another one of the
// same chunk may lie between that and the barrier which carries the clear, and its bit must stay.

// maxClean is how many chunks of a stream wait for a barrier that clears them. The bits of more stay, and
// cost a comparison when the follower is copied to again.
const maxClean = 1 << 14

// A followedBits knows which bits of a follower the members in F may clear. commit.mu guards it.
type followedBits struct {
	each  uint64            // bytes of a chunk; 0: not known, and no bit is cleared
	size  uint64            // of the device
	last  map[uint64]uint64 // the newest barrier that the follower lacks, by chunk
	clean [][]uint64        // by stream, chunks whose bits nobody needs
	told  []int             // by stream, how many of clean the barrier in flight clears
	sweep bool              // bits are to be read that were set before it followed
}

// begin forgets all, for g which has everything.
func (f *followedBits) begin(g *leg, streams int) {
	*f = followedBits{size: g.granted.Size, last: make(map[uint64]uint64), clean: make([][]uint64, streams), told: make([]int, streams), sweep: true}
	if r := g.copying; r != nil {
		f.each = r.todo.each
	}
}

// each calls do for every chunk of what b covers on stream i.
func (f *followedBits) chunks(x *core, b *barrier, i int, do func(chunk uint64)) {
	ring := x.streams[i].ring
	for at := b.shares[i].from; at < b.shares[i].to; at++ {
		e := ring.At(at)
		for chunk := e.Off / f.each; chunk*f.each < e.Off+uint64(e.Len); chunk++ {
			do(chunk)
		}
	}
}

// note notes that the follower lacks b.
func (f *followedBits) note(x *core, b *barrier) {
	if f.each == 0 {
		return
	}
	for i := range b.shares {
		f.chunks(x, b, i, func(chunk uint64) { f.last[chunk] = b.seq })
	}
}

// has notes that the follower has b. Bits of chunks that no later barrier wrote may be cleared.
func (f *followedBits) has(x *core, b *barrier) {
	if f.each == 0 {
		return
	}
	for i := range b.shares {
		f.chunks(x, b, i, func(chunk uint64) {
			if f.last[chunk] == b.seq {
				delete(f.last, chunk)
				f.add(i, chunk)
			}
		})
	}
}

func (f *followedBits) add(stream int, chunk uint64) {
	if len(f.clean[stream]) < maxClean {
		f.clean[stream] = append(f.clean[stream], chunk)
	}
}

// tell returns up to limit ranges of stream i whose bits may be cleared by a barrier that is queued now.
// They stand first in clean. A chunk that was written since the follower had it is dropped: its turn comes
// again.
func (f *followedBits) tell(i, limit int) (ranges []persist.Range) {
	if f.each == 0 || len(f.clean[i]) == 0 {
		return nil
	}
	list := f.clean[i]
	kept, at := 0, 0
	for ; at < len(list) && kept < limit; at++ {
		chunk := list[at]
		if _, lacks := f.last[chunk]; lacks {
			continue
		}
		list[kept] = chunk
		kept++
		off := chunk * f.each
		ranges = append(ranges, persist.Range{Off: off, Len: min(f.each, f.size-off)})
	}
	f.clean[i] = append(list[:kept], list[at:]...)
	return ranges
}

// untell forgets what a barrier that was cut off would have cleared, and reports whether stream i has bits to clear.
func (f *followedBits) untell(i int) bool {
	if f.told == nil {
		return false
	}
	f.told[i] = 0
	return len(f.clean[i]) > 0
}

// settle notes that the barrier in flight has succeeded.
func (f *followedBits) settle(i int) {
	if f.told != nil {
		f.clean[i] = f.clean[i][f.told[i]:]
		f.told[i] = 0
	}
}
