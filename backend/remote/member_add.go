package remote

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// A member is added in two steps. PrepareMember looks at the region, and opens and closes it, so that
// its epoch tells whether anybody has had it since. AddMember has the mirror take it.

// A Prepared region can become a member of a mirror.
type Prepared struct {
	UUID  uuid.UUID `json:"uuid"`
	Epoch uint64    `json:"epoch"` // in which it was closed
	Class string    `json:"class"`
}

// A DataError tells that a region which is to be overwritten holds data.
type DataError struct{ text string }

func (e *DataError) Error() string { return e.text }

// PrepareMember readies the region of the only target in Config.Members to become a member of mirror
// set, whose size in bytes it must have. Nobody may serve it, and it must have been closed, unless
// Config.AcceptLoss. It must hold zeroes, and must not be a member of a mirror, or the error is a
// *DataError. With overwrite it may hold anything, and may have been a member of set before: that ends
// here. A member of another mirror is always refused.
func PrepareMember(ctx context.Context, cfg Config, set uuid.UUID, size uint64, overwrite bool) (p Prepared, err error) {
	cfg.Lanes, cfg.AllowVolatile = 1, true
	if err := cfg.complete(); err != nil {
		return p, err
	}
	if len(cfg.Members) != 1 {
		return p, errors.New("one region at a time is prepared")
	}
	c := &creation{device: &Device{cfg: cfg, log: cfg.Log}}
	defer func() { err = errors.Join(err, c.device.release()) }()
	if err := c.device.makeLegs(); err != nil {
		return p, err
	}
	if err := c.probe(ctx); err != nil {
		return p, err
	}
	g, r := c.device.legs[0], &c.found[0]
	member := r.Record != persist.Record{}
	switch {
	case member && r.Record.Set != set:
		return p, fmt.Errorf("region %s is a member of mirror %s", c.name(0), uuid.UUID(r.Record.Set))
	case member && !overwrite:
		return p, &DataError{fmt.Sprintf("region %s has the record of a member of this mirror, with data of its own", c.name(0))}
	}
	if err := c.closed(); err != nil {
		return p, err
	}
	g.opening = opening{expect: r.Epoch, strict: true}
	if member {
		g.life = max(r.Life, r.Record.Life) + 1
	}
	opening, cancel := context.WithTimeout(ctx, maxAttempt)
	o, conns, err := g.tryOpen(opening)
	cancel()
	if err != nil {
		return p, fmt.Errorf("region %s: %w", c.name(0), err)
	}
	conn := &conns[0]
	conn.secret = nil // within a session nothing is signed
	c.conns[0], c.grants[0] = *conn, o
	defer func() { err = errors.Join(err, conn.conn.Close()) }()
	unfit := fmt.Errorf("region %s has %d bytes, and the mirror has %d: members are of one size", c.name(0), o.Size, size)
	if o.Size == size {
		unfit = nil
		if !overwrite {
			unfit = c.holdsZeroes(ctx)
		}
	}
	if unfit == nil && member {
		err = g.renounce(ctx, conn, o.Epoch)
	} else {
		end, closed := wire.Close{Epoch: o.Epoch}, wire.Closed{}
		err = g.demand(context.WithoutCancel(ctx), conn, end.Append(nil), &closed)
	}
	if err = errors.Join(unfit, err); err != nil {
		return p, err
	}
	return Prepared{UUID: o.UUID, Epoch: o.Epoch, Class: o.Class.String()}, nil
}

// holdsZeroes returns a DataError if the region does not.
func (c *creation) holdsZeroes(ctx context.Context) error {
	size := c.grants[0].Size
	zero := make([]byte, min(wire.MaxDigest, size))
	for off := uint64(0); off < size; off += wire.MaxDigest {
		n := min(wire.MaxDigest, size-off)
		var sum wire.Digested
		m := wire.Digest{Seq: off / wire.MaxDigest, Off: off, Len: n}
		if err := c.ask(0, m.Append(nil), &sum); err != nil {
			return fmt.Errorf("look whether region %s holds data: %w", c.name(0), err)
		}
		if sum.Sum != sha256.Sum256(zero[:n]) {
			return &DataError{fmt.Sprintf("region %s holds data, in the MiB at byte %d", c.name(0), off)}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// AddMember makes a region that PrepareMember has prepared a member of the mirror, and returns its slot.
// When it returns, the generation is active that names it. It is copied in full while the mirror serves.
// Until then it is no copy. A region that the mirror names already, and that has no record, is taken up
// where an earlier call ended.
func (d *Device) AddMember(ctx context.Context, t Target, p Prepared) (slot int, err error) {
	ctx, done, err := d.beginAdding(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	k := d.core.copies
	g, err := k.place(t)
	if err != nil {
		return 0, err
	}
	if err := g.untouched(ctx, p); err != nil {
		return 0, err
	}
	if err := d.takeClaim(p.UUID); err != nil {
		return 0, err
	}
	slot, err = k.admit(ctx, p)
	if err != nil {
		return 0, errors.Join(err, d.dropClaim(p.UUID))
	}
	c := &k.core.commit
	c.mu.Lock()
	k.placeLocked(g, slot)
	g.vacant, g.joins, g.silentAt = false, true, g.pulse.epoch
	c.mu.Unlock()
	d.log.Info("a member is added to the mirror, and is copied in full", slog.String("region", t.Region), slog.String("target", t.Addr), slog.String("member", persist.Member(slot).String()))
	select {
	case g.broke <- struct{}{}: // the keeper reaches its target
	default:
	}
	return slot, nil
}

// CheckMember returns the error with which AddMember would refuse the region if there were a place for it.
// It changes nothing. In a full mirror a member has to leave first, and what it has is lost then: call
// CheckMember before RemoveMember, so that a mistake costs no copy.
func (d *Device) CheckMember(ctx context.Context, t Target, p Prepared) (err error) {
	ctx, done, err := d.beginAdding(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := d.core.copies.isNew(t, p); err != nil {
		return err
	}
	cfg := d.cfg
	cfg.leadTo(t)
	g, err := newLeg(cfg, 0, d) // no place is empty
	if err != nil {
		return err
	}
	return errors.Join(g.untouched(ctx, p), g.close())
}

// beginAdding keeps the device from being given back until done is called. The context that it returns
// ends with ctx, and with the device.
func (d *Device) beginAdding(ctx context.Context) (_ context.Context, done func(), err error) {
	k := d.core.copies
	if k == nil {
		return nil, nil, ErrNoMirror
	}
	select {
	case k.adding <- struct{}{}:
	case <-k.life.Done():
		return nil, nil, errStopped
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.life, func() { cancel(errStopped) })
	done = func() {
		stop()
		cancel(nil)
		<-k.adding
	}
	if k.life.Err() != nil {
		done()
		return nil, nil, errStopped
	}
	return ctx, done, nil
}

// untouched returns an error if anybody has had the region of g since it was prepared.
func (g *leg) untouched(ctx context.Context, p Prepared) error {
	said, err := g.probe(ctx)
	switch {
	case err != nil:
		return err
	case said.UUID != p.UUID || said.Epoch != p.Epoch || said.Code != wire.CodeEpoch:
		return fmt.Errorf("somebody had region %s at %s since it was looked at: try again", g.cfg.Region, g.cfg.Addr)
	case said.Record != persist.Record{}:
		return fmt.Errorf("region %s at %s is a member of mirror %s", g.cfg.Region, g.cfg.Addr, uuid.UUID(said.Record.Set))
	}
	return nil
}

// isNew returns an error if the mirror knows t, or names the region under another address.
func (k *copies) isNew(t Target, p Prepared) error {
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot, m := range k.view.Record.Members {
		if m.UUID == p.UUID {
			return fmt.Errorf("region %s at %s is member %s already", t.Region, t.Addr, persist.Member(slot))
		}
	}
	return k.isNoTargetLocked(t)
}

// isNoTargetLocked returns an error if a leg has t. The caller holds commit.mu.
func (k *copies) isNoTargetLocked(t Target) error {
	for _, g := range k.core.legs {
		if g.vacant || g.cfg.Addr != t.Addr || g.cfg.Region != t.Region {
			continue
		}
		if l := (mirror.Leg{Record: g.record}); l.MemberOf(&k.view.Record) || g.joins {
			return fmt.Errorf("region %s at %s is a member already", t.Region, t.Addr)
		}
		return fmt.Errorf("region %s at %s is a target of this pmnbd, and no member: start pmnbd without it, and add it then", t.Region, t.Addr)
	}
	return nil
}

// place returns an empty place, which then has t.
func (k *copies) place(t Target) (*leg, error) {
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := k.isNoTargetLocked(t); err != nil {
		return nil, err
	}
	for _, g := range k.core.legs {
		if g.vacant && g.leaver == nil {
			g.cfg.leadTo(t)
			return g, nil
		}
	}
	return nil, fmt.Errorf("all %d places are taken: remove a member first, or start pmnbd without the targets that are no members", persist.MaxMembers)
}

// admit begins the generation that names a region, unless the mirror names it already.
func (k *copies) admit(ctx context.Context, p Prepared) (slot int, err error) {
	_, err = k.alter(ctx, func(v *mirror.View) (mirror.View, error) {
		for at, m := range v.Record.Members {
			if m.UUID == p.UUID {
				slot = at
				return *v, nil
			}
		}
		for slot = range persist.MaxMembers {
			if !v.Record.Present().Has(slot) {
				return v.Add(slot, p.UUID, p.Epoch)
			}
		}
		return *v, fmt.Errorf("the mirror has %d members, and that is the most", persist.MaxMembers)
	})
	return slot, err
}

// joiningLocked returns what counts as the record of a region that has none: that of a member which is
// half copied, if the mirror has just been given the region. The caller holds commit.mu.
func (k *copies) joiningLocked(g *leg, region [16]byte, has persist.Record) persist.Record {
	if !g.joins || has != (persist.Record{}) {
		return has
	}
	for slot, m := range k.view.Record.Members {
		if m.UUID == region && !k.view.Record.F.Has(slot) {
			r, _ := k.view.RecordFor(slot)
			return r
		}
	}
	return has
}

// sizeLocked is the size of the device in bytes, 0 before a session. The caller holds commit.mu.
func (k *copies) sizeLocked() uint64 {
	for _, g := range k.core.legs {
		if g.granted.Epoch != 0 && !g.joins {
			return g.granted.Size
		}
	}
	return 0
}

// unfinished returns the slot of the region of leg i if an earlier run was about to add it, or -1: the
// mirror names it and no contents of it, it has no record, and nobody else has had it since.
func (b *beginning) unfinished(i int, r *persist.Record) int {
	told := &b.told[i]
	if b.found.Legs[i].Reach == mirror.Away || told.Record != (persist.Record{}) {
		return -1
	}
	for slot, m := range r.Members {
		ours := told.Holder == b.device.cfg.ID && told.Flags&wire.OpenedUnclean != 0
		if m.UUID == told.UUID && m.Contents == [16]byte{} && (ours || told.Epoch == m.Epoch) {
			return slot
		}
	}
	return -1
}

// compareTargets logs what is wrong with the list of targets: members that none of them leads to, and
// regions that are no members.
func (b *beginning) compareTargets(m *persist.Record) {
	missing, away := m.Present(), false
	for i := range b.found.Legs {
		l, g := &b.found.Legs[i], b.device.legs[i]
		switch {
		case l.Reach == mirror.Away:
			away = true
		case l.MemberOf(m):
			missing &^= persist.Member(int(l.Record.Slot))
		case g.joins:
			missing &^= persist.Member(g.slot)
		default:
			g.log.Warn("A TARGET IS NO MEMBER OF THE MIRROR: it was removed, or never added. Take it out of --target, or add it with pmnbd mirror add",
				slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr))
		}
	}
	if missing != 0 && !away {
		b.device.log.Warn("NO TARGET LEADS TO A MEMBER OF THE MIRROR: name the targets of all members in --target, or remove the member with pmnbd mirror remove",
			slog.String("member", missing.String()), slog.Int("members", m.Present().Count()), slog.Int("targets", len(b.found.Legs)))
	}
}
