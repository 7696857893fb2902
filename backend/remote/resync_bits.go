package remote

import (
	"errors"
	"fmt"
	"math/bits"

	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// chunks are those that a leg may lack: a bit for each, as its target has them.
type chunks struct {
	size uint64 // of the device, in bytes
	each uint64 // bytes of a chunk
	bits []byte
	next uint64 // no chunk before it is set
	left int    // how many are set
}

// bytes is how many bytes the chunks have that are left, the last one taken for a whole one.
func (c *chunks) bytes() uint64 { return min(uint64(c.left)*c.each, c.size) }

// take removes the first chunk that is left, and returns its place. There is one.
func (c *chunks) take() (off, n uint64) {
	i := c.next / 8
	for c.bits[i] == 0 {
		i++
	}
	bit := bits.TrailingZeros8(c.bits[i])
	c.bits[i] &^= 1 << bit
	c.next = i * 8
	c.left--
	off = (i*8 + uint64(bit)) * c.each
	return off, min(c.each, c.size-off)
}

// put takes the chunk at off back, which was taken.
func (c *chunks) put(off uint64) {
	i := off / c.each
	c.bits[i/8] |= 1 << (i % 8)
	c.next = min(c.next, i/8*8)
	c.left++
}

// fill sets all bits.
func (c *chunks) fill() {
	for i := range c.bits {
		c.bits[i] = 0xff
	}
}

// count counts the bits, without those behind the last chunk.
func (c *chunks) count() {
	if n := (c.size + c.each - 1) / c.each; n%8 != 0 {
		c.bits[n/8] &= 1<<(n%8) - 1
	}
	c.left = 0
	for _, b := range c.bits {
		c.left += bits.OnesCount8(b)
	}
}

// errNoSource: no leg that has everything can be asked.
var errNoSource = errors.New("no target that has everything is there")

// readBits asks an equal leg which chunks r's leg may lack. The leg is connected, so whatever is not
// noted there yet comes through its queues.
func (r *resync) readBits() error {
	src := r.source()
	if src == nil {
		return errNoSource
	}
	ctx, cancel := r.context()
	defer cancel()
	commit := &r.copies.core.commit
	commit.mu.Lock()
	c, session, slot := chunks{size: src.granted.Size}, src.generation.Load(), r.leg.slot
	commit.mu.Unlock()
	for {
		from := uint64(len(c.bits)) * 8
		if c.each > 0 && from*c.each >= c.size {
			break
		}
		var seq uint64
		msg, err := src.call(ctx, session, func(n uint64) []byte {
			if !r.copies.keepBits(slot) {
				return nil
			}
			seq = n
			m := wire.Bits{Seq: n, From: from, Slot: uint8(slot)}
			return m.Append(nil)
		})
		if err != nil {
			return fmt.Errorf("read the bits: %w", err)
		}
		var m wire.Bitmap
		err = m.Decode(msg)
		if err == nil && (m.Seq != seq || m.From != from || int(m.Slot) != slot || len(m.Bits) == 0 || c.each > 0 && uint64(m.Chunk) != c.each || m.Chunk > stripe) {
			err = fmt.Errorf("%w: bits of slot %d from chunk %d, chunks of %d bytes", wire.ErrMalformed, m.Slot, m.From, m.Chunk)
		}
		if err != nil {
			src.lanes[0].abort(fmt.Errorf("%w: %w", rdma.ErrLost, err))
			return err
		}
		c.each = uint64(m.Chunk)
		c.bits = append(c.bits, m.Bits...)
	}
	c.bits = c.bits[:(c.size+c.each*8-1)/(c.each*8)]
	if r.all {
		c.fill()
	}
	c.count()
	r.todo = c
	return nil
}

// source returns an equal leg that keeps bits and has a session, or nil.
func (r *resync) source() *leg {
	k := r.copies
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range k.core.legs {
		if g != r.leg && g.up.Load() && k.view.Equal.Has(g.slot) && k.view.Record.F.Has(g.slot) {
			return g
		}
	}
	return nil
}

// keepBits reports whether all targets of equal legs keep bits for the member in slot. While that member is being removed,
// or added, some of them have a record without it, and BITS would end the session of such a one. Call it in the turn of
// the call that asks: each record comes to its target in a call, too.
func (k *copies) keepBits(slot int) bool {
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	return k.view.Record.Present().Has(slot) && (!k.view.Serves() || k.known.Present().Has(slot))
}
