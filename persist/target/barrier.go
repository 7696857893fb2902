package target

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// flush makes the ranges of a part of a barrier durable, with the bits of members that lack
// them, and acknowledges it. For class file, and in doubt, the syncer does that.
func (c *conn) flush(b *wire.Barrier) error {
	if c.dead.Load() {
		return errEnded // a grant waits for this lane, and the syncer looks only at barriers that it has not answered yet
	}
	e := c.session.export
	if !inside(b.Ranges, e.r.Size()) || !inside(b.Clear, e.r.Size()) {
		return errors.Join(fmt.Errorf("%w: barrier %d names bytes outside the region", errStranger, b.Seq),
			c.fail(b.Seq, wire.CodeInvalid, "range outside the region", &c.out))
	}
	if !c.midway {
		c.losses = e.r.Losses()
	}
	c.midway = !b.Last
	if spoilt, err := c.spoils(b); spoilt {
		return err
	}
	if err := c.keepBits(b); errors.Is(err, region.ErrSlot) {
		return errors.Join(fmt.Errorf("%w: barrier %d clears bits: %w", errStranger, b.Seq, err),
			c.fail(b.Seq, wire.CodeInvalid, "bits of a slot without a member", &c.out))
	} else if err != nil {
		return c.fail(b.Seq, wire.CodeFailed, err.Error(), &c.out)
	}
	if number := e.r.Mending(); number != 0 {
		if err := e.settlings.cover(c, b, number, e.r.Bad()); err != nil {
			return err
		}
	}
	if (!e.r.MayBlock() || e.r.Notes()) && c.beside(b.Ranges) {
		return c.hand(b)
	}
	if !e.r.MayBlock() {
		began := time.Now()
		err := e.r.Flush(b.Ranges)
		e.wrote[c.lane].Note(time.Since(began))
		if errors.Is(err, region.ErrSave) {
			return err // the region is well: the owner comes back when the disk of its image is
		}
		if err != nil {
			return c.fail(b.Seq, wire.CodeFailed, err.Error(), &c.out)
		}
	} else if err := e.r.Note(b.Ranges); err != nil { // the syncer knows no ranges of files
		return c.fail(b.Seq, wire.CodeFailed, err.Error(), &c.out)
	}
	if (b.Last || c.follows()) && (e.r.MayBlock() || e.syncer.doubt.Load()) {
		c.behind = true
		return e.syncer.add(syncJob{c: c, seq: b.Seq, last: b.Last, losses: c.losses})
	}
	return c.ack(wire.BarrierAck{Seq: b.Seq, Last: b.Last}, c.losses, &c.out)
}

// keepBits changes the bits that b asks for. First it clears those of chunks that a member
// has got, then it sets those of chunks that members outside F do not get with b (mirror
// §3.4, §3.5). For class file the sync that b waits for makes them durable.
//
// Only barriers change bits. The target sees neither the Writes nor the barriers of the
// methods apm and flush, so while a member is outside F an initiator sends its barriers here
// under every method.
func (c *conn) keepBits(b *wire.Barrier) error {
	r := c.session.export.r
	outside := r.Outside()
	if outside == 0 && len(b.Clear) == 0 {
		return nil
	}
	if len(b.Clear) > 0 {
		slot := int(b.ClearSlot)
		if err := c.session.fills.clear(slot, b.Fills, func() error { return r.ClearBits(slot, b.Clear) }); err != nil {
			return err
		}
		if err := r.FlushBits(persist.Member(slot), b.Clear); err != nil {
			return err
		}
	}
	b.Ranges = c.fewer(b.Ranges)
	if err := r.SetBits(outside, b.Ranges); err != nil {
		return err
	}
	return r.FlushBits(outside, b.Ranges)
}

// zero stores zeroes on the lane's goroutine, so every barrier behind the ZERO finds them
// stored. Under methods whose barriers do not name them, it also makes them durable at
// once (design §4.7).
func (c *conn) zero(m wire.Zero) error {
	r := c.session.export.r
	if m.Len > wire.MaxZero || !inside([]persist.Range{{Off: m.Off, Len: m.Len}}, r.Size()) {
		return fmt.Errorf("%w: ZERO of %d bytes at %d", errStranger, m.Len, m.Off)
	}
	if err := r.Zero(persist.Range{Off: m.Off, Len: m.Len}); err != nil {
		if errors.Is(err, region.ErrBadPlace) && !c.learns() {
			return r.Fail(err)
		}
		return err // a ZERO has no answer for that; the next barrier has, or the list of bad places
	}
	if c.session.method != persist.MethodGPSPM {
		// No barrier of the session names ranges to this CPU, except in doubt or for the
		// bits of a member outside F.
		if err := r.Flush([]persist.Range{{Off: m.Off, Len: m.Len}}); err != nil {
			return err
		}
	}
	ack := wire.ZeroAck{Seq: m.Seq}
	return c.out.send(c, ack.Append(c.out.buf[:0]))
}

// ack acknowledges a part of a barrier. losses is what Region.Losses said when the barrier came. If the medium has lost
// something since, the barrier may name it. Then ack fails, and the connection ends: the initiator still has the data,
// and sends it again.
func (c *conn) ack(m wire.BarrierAck, losses uint64, out *outbox) error {
	if m.Last {
		if c.failed.Load() == m.Seq+1 {
			return fmt.Errorf("a part of barrier %d has failed", m.Seq)
		}
		if c.session.export.r.Losses() != losses {
			return fmt.Errorf("the medium has lost something since barrier %d came", m.Seq)
		}
		if err := c.session.export.settlings.durable(c, m.Seq); err != nil {
			return c.fail(m.Seq, wire.CodeFailed, err.Error(), out)
		}
		c.session.export.noteDurable(c, m.Seq)
		c.session.export.barriers.Add(1)
	}
	return out.send(c, m.Append(out.buf[:0]))
}

// fail answers a barrier that the target could not make durable. No later part of it makes up for that.
func (c *conn) fail(seq uint64, code wire.Code, text string, out *outbox) error {
	c.log.Error("barrier failed", slog.String("region", c.session.export.r.Name()), slog.Uint64("barrier", seq), slog.String("cause", text))
	c.failed.Store(seq + 1)
	m := wire.BarrierFail{Seq: seq, Code: code, Text: text}
	return out.send(c, m.Append(nil))
}
