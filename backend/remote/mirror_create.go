package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// A NewMirror says what CreateMirror makes of Config.Members.
type NewMirror struct {
	// MinCopies is how many members must have a write before its FLUSH succeeds; 0: one less than
	// there are members, and one at least.
	MinCopies int
	// Async is how many of the members, the last ones, are asynchronous: they follow the others, which do
	// not wait for them. MinCopies does not count them.
	Async int
	// From is the number of the member whose contents are kept where they differ, counted from 1;
	// 0: none, and then they must not differ.
	From int
}

// A DifferError tells that regions that were to become a mirror have different contents.
type DifferError struct{ text string }

func (e *DifferError) Error() string { return e.text }

// CreateMirror makes Config.Members, two to four regions of equal size, the members of a new mirror.
// No other initiator may hold any of them, and each must have been closed, unless Config.AcceptLoss:
// a run that was killed may have left a window of it, which nothing adopts afterwards.
//
// If all members have equal contents, each has all data. Otherwise NewMirror.From has, and what the
// others have is overwritten by the first Dial of the mirror; without From the error is a
// *DifferError, and nothing has changed.
//
//	probe ─► open ─► compare ─► RECORD on those without the data ─► RECORD on those with it ─► close
//
// A mirror begins only with members that have the data. So the records of these are written last. As
// long as nobody began the mirror, all members that have the data must have their records, and a
// majority is not enough (mirror §4.2): a mirror of which some members know nothing is not begun.
// CreateMirror can be called again after it was interrupted anywhere, with the same members: it
// compares them anew, and begins a new generation of the same set.
func CreateMirror(ctx context.Context, cfg Config, made NewMirror) (_ *MirrorSnapshot, err error) {
	all := len(cfg.Members)
	n := all - made.Async // that can be in F
	if made.MinCopies == 0 {
		made.MinCopies = max(n-1, 1)
	}
	cfg.Lanes, cfg.AllowVolatile = 1, true
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	switch {
	case all < 2:
		return nil, errors.New("a mirror has two members at least")
	case made.Async < 0 || n < 1:
		return nil, fmt.Errorf("%d asynchronous members of %d: at least one must be none", made.Async, all)
	case made.MinCopies < 0 || made.MinCopies > n:
		return nil, fmt.Errorf("the least number of copies is %d: use 1 to %d", made.MinCopies, n)
	case made.From < 0 || made.From > n:
		return nil, fmt.Errorf("member %d of %d cannot be kept", made.From, n)
	}
	c := &creation{device: &Device{cfg: cfg, log: cfg.Log}, made: made}
	defer func() { err = errors.Join(err, c.device.release()) }()
	if err := c.device.makeLegs(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return c.run(ctx)
}

// A creation is one call of CreateMirror. Its slices are by leg.
type creation struct {
	device *Device
	made   NewMirror
	found  []wire.Refused
	grants []wire.Opened // Epoch is 0 until there is a session
	conns  []dialed
	record persist.Record // without Slot and Torn
}

func (c *creation) run(ctx context.Context) (*MirrorSnapshot, error) {
	if err := c.probe(ctx); err != nil {
		return nil, err
	}
	slots, err := c.unborn()
	if err != nil {
		return nil, err
	}
	for i, g := range c.device.legs {
		g.slot = slots[i]
	}
	if err := c.closed(); err != nil {
		return nil, err
	}
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	f, err := c.compare(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.compose(f); err != nil {
		return nil, err
	}
	if err := c.arbitrate(ctx); err != nil {
		return nil, err
	}
	for _, i := range c.order(f) {
		if err := c.write(i); err != nil {
			return nil, err
		}
	}
	return c.shown(), nil
}

// order returns the legs in the order in which they get their records: those of f last.
func (c *creation) order(f persist.Members) (legs []int) {
	for _, inF := range []bool{false, true} {
		for i, g := range c.device.legs {
			if f.Has(g.slot) == inF {
				legs = append(legs, i)
			}
		}
	}
	return legs
}

// name is what messages call the region of leg i.
func (c *creation) name(i int) string {
	g := c.device.legs[i]
	return g.cfg.Region + " at " + g.cfg.Addr
}

// probe asks all targets what they know of the regions, and takes the regions' locks.
func (c *creation) probe(ctx context.Context) error {
	legs := c.device.legs
	c.found, c.grants, c.conns = make([]wire.Refused, len(legs)), make([]wire.Opened, len(legs)), make([]dialed, len(legs))
	for i, g := range legs {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		r, err := g.probe(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("region %s: %w", c.name(i), err)
		}
		c.found[i] = r
		if r.Code != wire.CodeEpoch {
			return fmt.Errorf("region %s: %w", c.name(i), &RefusedError{Region: g.cfg.Region, said: r})
		}
		for j := range i {
			if c.found[j].UUID == r.UUID {
				return fmt.Errorf("%s and %s are one region", c.name(j), c.name(i))
			}
		}
		if err := c.device.takeClaim(r.UUID); err != nil {
			return err
		}
	}
	return nil
}

// closed refuses a region whose last session was not closed: a window of it may be left.
func (c *creation) closed() error {
	for i := range c.found {
		if c.found[i].Flags&wire.OpenedUnclean != 0 && !c.device.cfg.AcceptLoss && !c.interrupted(i) {
			return loss("the last session of region %s was not closed: what a pmnbd had acknowledged there and not flushed may be in its window still. Serve the region and end that pmnbd in order", c.name(i))
		}
	}
	return nil
}

// noteName is the name of the file that says in which epoch and life a creation opens the region of
// leg i.
func (c *creation) noteName(i int) string {
	return fileOf(c.device.cfg.ID, c.found[i].UUID, "create")
}

// state is the state directory.
func (c *creation) state() *directory { return c.device.claims[0].state }

// interrupted reports whether the session of the region of leg i that was not closed is one of a
// CreateMirror, which acknowledges nothing.
func (c *creation) interrupted(i int) bool {
	r := &c.found[i]
	b, _ := c.state().Read(c.noteName(i)) // an unreadable note counts as none
	var epoch, life uint64
	_, err := fmt.Sscan(string(b), &epoch, &life)
	return err == nil && r.Holder == c.device.cfg.ID && r.Epoch == epoch && r.Life == life
}

// unborn returns the slots of the members. It refuses regions that belong to a mirror, but for one
// that an interrupted creation of the same mirror left: no life has begun on it, or its record would
// have a lineage.
func (c *creation) unborn() (slots []int, err error) {
	slots = make([]int, len(c.found))
	for i := range c.found {
		slots[i] = i
		r := &c.found[i].Record
		switch {
		case *r == persist.Record{}:
			continue
		case r.Lineage[0] != persist.Ancestor{}, !c.names(r):
			return nil, fmt.Errorf("region %s is a member of mirror %s already", c.name(i), uuid.UUID(r.Set))
		case c.record.Set != [16]byte{} && c.record.Set != r.Set:
			return nil, fmt.Errorf("region %s is a member of mirror %s, and another one of %s", c.name(i), uuid.UUID(r.Set), uuid.UUID(c.record.Set))
		}
		c.record.Set, c.record.Members = r.Set, r.Members
	}
	if c.record.Set == [16]byte{} {
		c.record.Set = uuid.New()
		return slots, nil
	}
	for i := range c.found {
		for slot := range c.record.Members {
			if c.record.Members[slot].UUID == c.found[i].UUID {
				slots[i] = slot
			}
		}
	}
	return slots, nil
}

// names reports whether the members of r are the regions of this creation.
func (c *creation) names(r *persist.Record) bool {
	for i := range c.found {
		known := false
		for slot := range r.Members {
			known = known || r.Members[slot].UUID == c.found[i].UUID
		}
		if !known {
			return false
		}
	}
	return r.Present().Count() == len(c.found)
}

// open opens all regions, so that nobody changes them during the comparison.
func (c *creation) open(ctx context.Context) error {
	var found mirror.Found
	for i := range c.found {
		found.Legs = append(found.Legs, mirror.Leg{Record: c.found[i].Record, Life: c.found[i].Life})
	}
	life := mirror.NextLife(&found)
	for i, g := range c.device.legs {
		r := &c.found[i]
		if err := c.state().Write(c.noteName(i), fmt.Appendln(nil, r.Epoch+1, life), false); err != nil {
			return fmt.Errorf("note that region %s is opened: %w", c.name(i), err)
		}
		g.life, g.joins, g.opening = life, true, opening{expect: r.Epoch, strict: true}
		ctx, cancel := context.WithTimeout(ctx, maxAttempt)
		o, conns, err := g.tryOpen(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("region %s: %w", c.name(i), err)
		}
		c.grants[i], c.conns[i] = o, conns[0]
		c.conns[i].secret = nil // within a session nothing is signed
		switch first := &c.grants[0]; {
		case o.Record != r.Record:
			return fmt.Errorf("region %s became a member of a mirror just now", c.name(i))
		case o.Size != first.Size:
			return fmt.Errorf("region %s has %d bytes, and %s has %d: the members of a mirror are of one size", c.name(i), o.Size, c.name(0), first.Size)
		}
	}
	c.record.Generation = persist.Generation{Life: life, Count: 1}
	if _, err := rand.Read(c.record.Nonce[:]); err != nil {
		return fmt.Errorf("draw a nonce: %w", err)
	}
	return nil
}

// synchronous is how many legs, the first ones, have members that can be in F.
func (c *creation) synchronous() int { return len(c.device.legs) - c.made.Async }

// comparing is how often the log says how far a comparison has come.
const comparing = 10 * time.Second

// compare returns the members that have all data: all, or the one to keep.
func (c *creation) compare(ctx context.Context) (f persist.Members, err error) {
	size := c.grants[0].Size
	sums := make([]wire.Digested, c.synchronous()) // the others are copied to in any case
	errs := make([]error, len(sums))
	said := time.Now()
	for off := uint64(0); off < size; off += wire.MaxDigest {
		var asked sync.WaitGroup
		for i := range sums {
			asked.Go(func() {
				m := wire.Digest{Seq: off / wire.MaxDigest, Off: off, Len: min(wire.MaxDigest, size-off)}
				errs[i] = c.ask(i, m.Append(nil), &sums[i])
			})
		}
		asked.Wait()
		for i := range sums {
			if errs[i] != nil {
				return 0, fmt.Errorf("compare region %s: %w", c.name(i), errs[i])
			}
			if sums[i].Sum != sums[0].Sum {
				return c.differ(i, off)
			}
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if time.Since(said) > comparing {
			said = time.Now()
			c.device.log.Info("comparing the members", slog.Uint64("bytes", off), slog.Uint64("of", size))
		}
	}
	for _, g := range c.device.legs[:len(sums)] {
		f |= persist.Member(g.slot)
	}
	return f, nil
}

// differ decides what becomes of members of which number i differs from the first in the MiB at off.
func (c *creation) differ(i int, off uint64) (persist.Members, error) {
	if c.made.From == 0 {
		return 0, &DifferError{fmt.Sprintf("%s and %s differ in the MiB at byte %d", c.name(0), c.name(i), off)}
	}
	return persist.Member(c.device.legs[c.made.From-1].slot), nil
}

// ask makes a request on the connection of leg i, on which nothing else happens. No context of the
// caller ends it: the connection would end with it, and the region could not be closed.
func (c *creation) ask(i int, msg []byte, answer interface{ Decode([]byte) error }) error {
	ctx, cancel := context.WithTimeout(context.Background(), maxAttempt)
	defer cancel()
	var refused wire.Refused
	t, err := c.device.legs[i].ask(ctx, &c.conns[i], msg, answer, &refused)
	if err == nil && t == wire.TypeRefused {
		err = &RefusedError{Region: c.device.legs[i].cfg.Region, said: refused}
	}
	return err
}

// compose makes the record of a mirror that begins with f.
func (c *creation) compose(f persist.Members) error {
	c.record.MinCopies, c.record.F, c.record.Async = uint8(c.made.MinCopies), f, 0
	for i, g := range c.device.legs {
		if i >= c.synchronous() {
			c.record.Async |= persist.Member(g.slot)
		}
		o := &c.grants[i]
		c.record.Members[g.slot] = persist.Membership{UUID: o.UUID, Contents: o.ContentsID, Epoch: o.Epoch}
	}
	r := c.record
	r.Slot, r.Torn = uint8(c.device.legs[0].slot), !f.Has(c.device.legs[0].slot)
	return r.Check()
}

// write makes the record durable on leg i. Nobody knows what the members outside F lack.
func (c *creation) write(i int) error {
	r, slot := c.record, c.device.legs[i].slot
	r.Slot, r.Torn = uint8(slot), !r.F.Has(slot)
	m := wire.Record{Seq: 1, Record: r}
	if !r.Torn {
		m.Fill = r.Present() &^ r.F
	}
	var done wire.Recorded
	if err := c.ask(i, m.Append(nil), &done); err != nil {
		return fmt.Errorf("write the record of the mirror to region %s: %w; run it again", c.name(i), err)
	}
	return nil
}

// close ends the sessions, and closes the regions: those that were read from stay as clean as they
// were found.
func (c *creation) close() (err error) {
	for i := range c.conns {
		conn := c.conns[i].conn
		if conn == nil {
			continue
		}
		m, closed := wire.Close{Epoch: c.grants[i].Epoch}, wire.Closed{}
		failed := c.ask(i, m.Append(nil), &closed)
		if failed == nil {
			failed = c.state().Remove(c.noteName(i))
		}
		if failed != nil {
			failed = fmt.Errorf("close region %s: %w", c.name(i), failed)
		}
		err = errors.Join(err, failed, conn.Close())
	}
	return err
}

// shown is the mirror that was made.
func (c *creation) shown() *MirrorSnapshot {
	v := mirror.View{Record: c.record, Active: c.record.F, Equal: c.record.F}
	s := shown(&v)
	for i, g := range c.device.legs {
		o := &c.grants[i]
		l := LegSnapshot{
			Target: g.cfg.Addr, Region: g.cfg.Region, Slot: persist.Member(g.slot).String(),
			Class: o.Class.String(), Epoch: o.Epoch, State: LegInSync, Behind: new(uint64),
		}
		if !c.record.F.Has(g.slot) {
			l.State, l.Behind, l.Cause = LegTorn, &c.grants[i].Size, "the first start copies to it"
		}
		s.Legs = append(s.Legs, l)
	}
	return s
}
