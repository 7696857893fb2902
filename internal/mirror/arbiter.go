package mirror

import (
	"math/bits"

	"pmnbd/persist"
)

// Arbitrated returns what the arbiter is to hold of v's newest generation.
func (v *View) Arbitrated() persist.Record {
	r := v.Record
	r.Slot, r.Torn, r.Follows = uint8(bits.TrailingZeros8(uint8(r.F))), false, persist.Point{}
	return r
}

// Replaces reports whether v's pending generation may take the place of held, which the arbiter holds.
// It may if held is a generation that v descends from: nobody has begun another one since. held is zero
// if the arbiter holds nothing: then v's must be the first of its life, which decided what that means.
func (v *View) Replaces(held *persist.Record) bool {
	if *held == (persist.Record{}) {
		return v.Degraded || v.Record.Life == v.Life && v.Record.Count == 1
	}
	return held.Set == v.Record.Set && knows(&v.Record, held.Generation)
}

// Own reports whether held is a generation of v's own life.
func (v *View) Own(held *persist.Record) bool {
	return held.Set == v.Record.Set && held.Life == v.Life && held.Nonce == v.Nonce
}
