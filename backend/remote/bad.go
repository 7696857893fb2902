package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"pmnbd/backend"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// ErrBadPlace: the target's medium has lost what the request names, or a block of which it names a part.
// Only that request fails.
var ErrBadPlace = errors.New("the medium has lost what is there")

// partBad, in Op.Parts, says that a part of the op is bad.
const partBad int32 = 1 << 30

// A badLeg is what the target of a leg says of bad places. Nobody changes one.
type badLeg struct {
	places persist.BadPlaces
	clears bool // overwriting whole blocks makes them good
}

func (b *badLeg) touched(off, n uint64) bool {
	_, bad := b.places.Touched(off, n)
	return bad
}

func (b *badLeg) bytes() uint64 {
	if b == nil {
		return 0
	}
	return b.places.Bytes()
}

// A badCore is what a device knows of the bad places of all legs.
type badCore struct {
	requests atomic.Uint64             // that failed
	legs     atomic.Pointer[[]*badLeg] // of legs that have any; nil: none has
	mu       sync.Mutex                // of those who change it; innermost
}

// refuse returns an error if op, a WRITE or WRITE_ZEROES, must not be begun: no leg could be given what it
// names a part of. A part of a block does not make a bad one good.
func (b *badCore) refuse(op *backend.Op) error {
	legs := b.legs.Load()
	if legs == nil {
		return nil
	}
	for _, g := range *legs {
		if g.places.Torn(op.Off, op.Len) || !g.clears && g.touched(op.Off, op.Len) {
			b.requests.Add(1)
			return ErrBadPlace
		}
	}
	return nil
}

// knowBad notes what the target of g says of bad places. They are known before a lane of the session posts
// anything.
func (g *leg) knowBad(bad *badLeg) { g.changeBad(func(*badLeg) *badLeg { return bad }) }

// changeBad replaces what is known of g by what change makes of it.
func (g *leg) changeBad(change func(*badLeg) *badLeg) {
	b := &g.core.bad
	b.mu.Lock()
	defer b.mu.Unlock()
	g.badPlaces.Store(change(g.badPlaces.Load()))
	var all []*badLeg
	for _, other := range g.core.legs {
		if bad := other.badPlaces.Load(); bad != nil {
			all = append(all, bad)
		}
	}
	if all == nil {
		b.legs.Store(nil)
		return
	}
	b.legs.Store(&all)
}

// forgetBadLocked forgets what the targets have lost that the mirror does without while they are away: a write there
// is only refused for the sake of a member that gets it. A member that comes back says it again. The caller holds commit.mu.
func (x *core) forgetBadLocked() {
	for _, g := range x.legs {
		if g.badPlaces.Load() != nil && !g.up.Load() && !g.touches.Load() && !g.follow.on && !x.needsLocked(g) {
			g.knowBad(nil)
		}
	}
}

// askBad asks for the bad places of the region that o grants. A target that has none, or an older one, does
// not say that there are any.
func (g *leg) askBad(ctx context.Context, c *dialed, o *wire.Opened) (*badLeg, error) {
	if o.Flags&wire.OpenedBad == 0 {
		return nil, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() }) // wakes Wait
	bad, err := g.exchangeBad(c, o.Size)
	if !stop() {
		return nil, fmt.Errorf("%w: %w", rdma.ErrTimeout, ctx.Err()) // the connection is closed
	}
	return bad, err
}

func (g *leg) exchangeBad(c *dialed, size uint64) (*badLeg, error) {
	bad := &badLeg{}
	ask := wire.Bad{}
	for {
		ask.Seq++
		n := copy(c.sends.Mem, ask.Append(nil))
		wr := rdma.WorkRequest{ID: tagControl, Op: rdma.OpSend, Signaled: true, Local: rdma.SGE{Region: c.sends, Len: uint32(n)}}
		if _, err := c.conn.Post([]rdma.WorkRequest{wr}); err != nil {
			return nil, err
		}
		msg, again, err := g.answer(c.conn, c.recvs)
		if err != nil {
			return nil, err
		}
		var said wire.BadPlaces
		if err := said.Decode(msg); err != nil {
			return nil, fmt.Errorf("the target's answer: %w", err)
		}
		if err := c.conn.PostRecv([]rdma.WorkRequest{again}); err != nil {
			return nil, err
		}
		bad.places, bad.clears = append(bad.places, said.Places...), said.Clears
		if n := len(said.Places); said.Seq != ask.Seq || len(bad.places) > persist.MaxBad ||
			n > 0 && (said.Places[0].Off < ask.From || said.Places[n-1].End() > size) {
			return nil, fmt.Errorf("the target tells of bad places out of order, outside the region, or of more than %d: %w", persist.MaxBad, wire.ErrMalformed)
		}
		if !said.More {
			break
		}
		ask.From = said.Places[len(said.Places)-1].End()
	}
	if len(bad.places) == 0 {
		return nil, nil
	}
	return bad, nil
}

// avoidLocked ends READ part i, which was at the head of the queue, without asking the target: some of it is
// bad there. Another leg that serves READs and has it all is asked instead (mirror §3.7), or waited for.
func (l *lane) avoidLocked(i int) {
	r := &l.reads[i]
	waits := false
	for _, other := range l.lanes {
		switch bad := other.leg.badPlaces.Load(); {
		case !other.serves || bad != nil && bad.touched(r.off, uint64(r.len)):
		case !other.connected || other.behind:
			waits = true // for it to come back, or to be let go; for its replay
		default:
			other.pushReadLocked(i)
			l.divert = true
			return
		}
	}
	if waits {
		r.lane = nil
		return
	}
	if r.op.Parts.Or(partBad)&partBad == 0 {
		l.core.bad.requests.Add(1)
	}
	l.endReadLocked(&l.poster, i)
}

// postOthers posts what l has left to the other lanes of its stream.
func (l *lane) postOthers() {
	for _, other := range l.lanes {
		if other != l {
			other.post()
		}
	}
}

// mayWriteLocked reports whether the entry at pos of the ring, which is the next one to go out, may. It must
// not touch a place that the target's medium has lost: the target's CPU could not place it. If it and those behind
// it overwrite whole blocks, a ZERO of these goes first. Its ack makes them good.
//
//	ZERO of the blocks ─► ack: the leg's list is without them ─► the entry
//
// Otherwise the entry came before the place was known to be bad. It was acknowledged and is not durable, so the
// session ends as after a barrier that failed.
func (l *lane) mayWriteLocked(bad *badLeg, pos uint64) bool {
	e := l.ring.At(pos)
	g, touches := bad.places.Touched(e.Off, uint64(e.Len))
	switch {
	case !touches:
		return true
	case !bad.clears || !l.coversLocked(pos, g):
		l.stuck = &lastingError{fmt.Errorf("%d bytes at %d were acknowledged, and the target has lost the place since: %w", e.Len, e.Off, ErrBadPlace)}
		return false
	}
	l.mendLocked(g)
	return false
}

// mendLocked sends a ZERO of bad blocks, if there is a credit. What overlaps it waits for its ack.
func (l *lane) mendLocked(g persist.Range) {
	msg, ok := l.zeroes.message(&backend.Entry{Off: g.Off, Len: uint32(g.Len)})
	if !ok {
		return // the ack of an earlier one goes on
	}
	l.addLocked(rdma.WorkRequest{ID: tagControl, Op: rdma.OpSend, Inline: msg})
	// The target has to hear which barrier makes durable what comes in the place of the zeroes: until then it
	// tells of the blocks as bad.
	l.mends = true
}

// coversLocked reports whether the entry at pos, and those that go on where it ends, overwrite all of g. Pieces of
// one WRITE do, wherever it was cut, because they are published together.
func (l *lane) coversLocked(pos uint64, g persist.Range) bool {
	at := l.ring.At(pos).Off
	if at > g.Off {
		return false
	}
	for head := l.ring.Head(); pos < head; pos++ {
		e := l.ring.At(pos)
		if e.Off != at {
			return false
		}
		if at += uint64(e.Len); at >= g.End() {
			return true
		}
	}
	return false
}

// mendedLocked notes that the target has executed the zero z: bad blocks in it are good.
func (l *lane) mendedLocked(z wire.Zero) {
	if l.leg.badPlaces.Load() == nil {
		return
	}
	l.leg.changeBad(func(b *badLeg) *badLeg {
		if b == nil {
			return nil
		}
		left := b.places.Without(persist.Range{Off: z.Off, Len: z.Len})
		if len(left) == 0 {
			return nil
		}
		return &badLeg{left, b.clears}
	})
}

// lacks reports whether some of p's next bytes is bad at the target of g.
func (g *leg) lacks(p *piece) bool {
	bad := g.badPlaces.Load()
	return bad != nil && bad.touched(p.off, uint64(p.len()))
}

// soundLocked returns a lane from which p can be read as a whole: src, or another one that READs may come on. It
// returns nil if there is none.
func (p *piece) soundLocked(src, dst *lane) *lane {
	if src == nil || !src.leg.lacks(p) {
		return src
	}
	for _, l := range p.stream.lanes {
		if l != dst && l.readable && !l.behind && !l.leg.lacks(p) {
			return l
		}
	}
	return nil
}

// mayStoreLocked reports whether p, which is to be written next, may: bad blocks at the target are made good first.
func (l *lane) mayStoreLocked(p *piece) bool {
	bad := l.leg.badPlaces.Load()
	if bad == nil {
		return true
	}
	g, touches := bad.places.Touched(p.off, uint64(p.len()))
	switch {
	case !touches:
		return true
	case !bad.clears:
		l.stuck = &lastingError{fmt.Errorf("%d bytes at %d cannot be copied to %s, which has lost the place and cannot make it good: %w", g.Len, g.Off, l.leg.cfg.Addr, ErrBadPlace)}
	default:
		l.mendLocked(g)
	}
	return false
}
