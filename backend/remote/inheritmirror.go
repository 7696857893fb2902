package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/google/uuid"

	"pmnbd/backend"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// inheritMirror brings to the members what the previous run of this initiator left in the mirror's
// window file, and readies that file for a new window: probe, decide, act, until the decision is to
// open the members or to end the start.
func (d *Device) inheritMirror(ctx context.Context) error {
	b := d.newBeginning()
	s := &legacy{situation: situation{
		id: d.cfg.ID, region: d.cfg.Region, mirror: d.cfg.mirrorName(), localClients: d.cfg.LocalClients, acceptLoss: d.cfg.AcceptLoss,
		takeover: d.cfg.Takeover,
	}, degraded: d.cfg.Degraded}
	var err error
	if s.refused.UUID, err = b.findSet(ctx); err != nil {
		return err
	}
	if err := d.gather(s); err != nil {
		return err
	}
	d.behind = s.unserved()
	if err := s.unasked(d.cfg.Arbiter != nil || d.cfg.WithoutArbiter); err != nil {
		return err
	}
	if err := b.join(ctx, s.refused.UUID); err != nil {
		return err
	}
	if d.term != nil {
		b.probe(ctx) // the wait may have been long
	}
	var v vigil
	for n := 0; ; n++ {
		if err := b.ask(ctx); err != nil {
			if err := b.pause(ctx, n, err.Error()); err != nil {
				return err
			}
			b.probe(ctx)
			continue
		}
		b.regard(s)
		next := decideMirror(s)
		switch next.act {
		case actEnd:
			return next.err
		case actOpen:
			return d.prepareMirror(s, &next)
		case actAdopt:
			if err := d.adoptMirror(ctx, s, b.found.Legs); err != nil {
				return err
			}
		case actProbe:
			if err := b.await(ctx, n, &s.decision); err != nil {
				return err
			}
		case actWait:
			if v.hear(s.left) {
				return livesElsewhere(d.legs[s.by].cfg.Region, b.told[s.by])
			}
			if err := b.pause(ctx, n, errHeard.Error()); err != nil {
				return err
			}
		}
		b.probe(ctx)
	}
}

// mirrorName is what messages call the mirror.
func (c *Config) mirrorName() string {
	var members []string
	for _, m := range c.Members {
		members = append(members, m.Region+" at "+m.Addr)
	}
	return "the mirror on " + strings.Join(members, ", ")
}

// findSet probes until a member tells the UUID of the mirror's set.
func (b *beginning) findSet(ctx context.Context) (set [16]byte, err error) {
	for n := 0; ; n++ {
		b.probe(ctx)
		decision := mirror.Decide(b.found)
		switch {
		case decision.Newest != (persist.Record{}):
			return decision.Newest.Set, nil
		case decision.Outcome == mirror.Refuse:
			return set, &MirrorError{decision.Why}
		}
		if err := b.pause(ctx, n, decision.Why); err != nil {
			return set, err
		}
	}
}

// gather takes the set's lock and opens its window file, and notes in s what else lies on this host.
func (d *Device) gather(s *legacy) (err error) {
	set := s.refused.UUID
	if s.boot, err = bootID(); err != nil {
		return fmt.Errorf("tell whether the window is of this boot: %w", err)
	}
	if err = d.takeClaim(set); err != nil {
		return err
	}
	if err := d.checkName(&s.situation); err != nil {
		return err
	}
	if d.file, err = openWindowFile(d.cfg.WindowDir, d.cfg.ID, set); err != nil {
		return err
	}
	s.windowDir, s.path, s.header = d.file.dir.path, d.file.f.Name(), d.file.header()
	s.otherDir, s.hadBoot = d.last(set)
	s.lastBoot = d.lastBoot(set)
	return nil
}

// adoptMirror adopts the window, and notes in s what became of it.
func (d *Device) adoptMirror(ctx context.Context, s *legacy, found []mirror.Leg) error {
	err := d.adopt(ctx, found)
	switch {
	case err == nil:
		s.header, s.adopted = d.file.header(), true
		return nil
	case errors.As(err, new(closedError)) && !s.again:
		d.log.Info("the life that the previous pmnbd closed does not go on", slog.Any("error", err))
		s.header, s.again = d.file.header(), true
		return nil
	case !errors.As(err, new(*LossError)):
		return fmt.Errorf("go on where the previous pmnbd ended: %w", err)
	case s.header.Opened == 0: // it had not served
		d.log.Info("the life that the previous pmnbd was about to begin does not go on", slog.Any("error", err))
		s.header.State, s.header.Mirror = windowLive, mirror.View{}
		return nil
	}
	s.lost = &LossError{fmt.Sprintf("go on where the previous pmnbd ended: %v", err)}
	return nil
}

// prepareMirror readies the window file for the life that begins.
func (d *Device) prepareMirror(s *legacy, open *decision) error {
	if open.note != "" {
		d.log.Info(open.note, slog.String("mirror", s.mirror))
	}
	if open.lost != nil {
		d.accept(open.lost)
		if err := d.file.wipe(); err != nil {
			return err
		}
		s.lost = open.lost
	}
	d.legacy, d.lineage = s, open.from.Lineage
	if open.from.State == 0 {
		d.lineage = uuid.New()
	}
	from := mirror.View{Record: open.from.Mirror.Record}
	if s.lost == nil {
		from.Equal = open.from.Mirror.Equal // if this start ends early, the next one has to know
	}
	chunks := uint32(d.cfg.Window / backend.ChunkSize)
	d.file.update(func(h *header) {
		*h = header{
			State: windowLive, Opened: open.from.Opened, Lanes: uint32(d.cfg.Lanes), Entries: uint32(d.entries()), Window: chunks,
			Chunks: chunks + uint32(d.cfg.Connections), Stripe: stripe,
			UUID: s.refused.UUID, Boot: s.boot, Lineage: d.lineage, Mirror: from,
		}
	})
	return d.file.shape()
}

// regard notes in s what the members said last.
func (b *beginning) regard(s *legacy) {
	s.decision, s.ours, s.closed, s.left = b.decide(), false, false, 0
	newest := &s.decision.Newest
	for i := range b.found.Legs {
		l, told := &b.found.Legs[i], &b.told[i]
		if l.Reach != mirror.Away && l.MemberOf(newest) && told.Holder == s.id && told.Seconds > s.left {
			s.left, s.by = told.Seconds, i
		}
		if l.Reach == mirror.Away || !l.MemberOf(newest) || !newest.F.Has(int(l.Record.Slot)) {
			continue
		}
		s.ours = s.ours || told.Holder == s.id
		s.closed = s.closed || l.Record.Generation == newest.Generation && told.Flags&wire.OpenedUnclean == 0
	}
}

// judge decides again about what the previous run left: a member may have said more since.
func (b *beginning) judge() error {
	d := b.device
	if d.legacy == nil {
		return nil
	}
	s := *d.legacy
	s.adopted = true
	b.regard(&s)
	next := decideMirror(&s)
	switch {
	case next.act == actEnd:
		return next.err
	case next.act == actWait:
		return errHeard
	case next.lost != nil && s.lost == nil:
		b.accept(next.lost)
	}
	return nil
}
