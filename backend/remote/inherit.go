package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/google/uuid"

	"pmnbd/backend"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// A LossError tells that a start would lose something that clients of this initiator may rely
// on: writes that an earlier run acknowledged, or the contents that they last saw. It keeps the
// window file as it was. Config.AcceptLoss opens the device without what is lost, which is safe
// once no client uses the device any more.
type LossError struct{ text string }

func (e *LossError) Error() string { return e.text }

func loss(format string, args ...any) error { return &LossError{fmt.Sprintf(format, args...)} }

// inherit brings to the target what the previous run of this initiator left in the region's
// window file, and readies that file for a new window: probe, gather, decide, act, until the
// decision is to open the region or to end the start.
func (d *Device) inherit(ctx context.Context) (err error) {
	s := situation{
		id: d.cfg.ID, region: d.cfg.Region, localClients: d.cfg.LocalClients,
		acceptLoss: d.cfg.AcceptLoss, takeover: d.cfg.Takeover,
	}
	if s.refused, err = d.legs[0].probe(ctx); err != nil {
		return err
	}
	if said := s.refused; said.Record != (persist.Record{}) && !d.cfg.Single {
		said.Code = wire.CodeMember // whatever the window of an earlier run says
		return &RefusedError{Region: d.cfg.Region, said: said}
	}
	if s.boot, err = bootID(); err != nil {
		return fmt.Errorf("tell whether the window is of this boot: %w", err)
	}
	if err = d.takeClaim(s.refused.UUID); err != nil {
		return err
	}
	if err := d.checkName(&s); err != nil {
		return err
	}
	if d.file, err = openWindowFile(d.cfg.WindowDir, d.cfg.ID, s.refused.UUID); err != nil {
		return err
	}
	s.windowDir, s.path, s.header = d.file.dir.path, d.file.f.Name(), d.file.header()
	s.otherDir, s.hadBoot = d.last(s.refused.UUID)
	s.lastBoot = d.lastBoot(s.refused.UUID)
	over := s.refused.Holder != s.id && s.refused.Epoch != s.header.Epoch // the target grants nothing of that run any more
	d.behind = s.unserved() && !over
	var v vigil
	for {
		next := decide(&s)
		switch next.act {
		case actEnd:
			return next.err
		case actOpen:
			return d.prepare(&s, &next)
		case actAsk:
			if s.resumed, err = d.legs[0].askWhose(ctx, &s.header); err != nil {
				return fmt.Errorf("ask whether the previous pmnbd was granted the region: %w", err)
			}
			continue
		case actAdopt:
			if err := d.adopt(ctx, nil); err != nil {
				err = fmt.Errorf("go on where the previous pmnbd ended: %w", err)
				if !errors.As(err, new(*LossError)) {
					return err
				}
				s.lost, s.header = &LossError{err.Error()}, d.file.header() // the RESUME was this start's
				continue
			}
			s.header, s.adopted = d.file.header(), true
		case actProbe:
			s.lost, s.looked = next.lost, true
		case actWait:
			if v.hear(s.refused.Seconds) {
				return livesElsewhere(d.cfg.Region, s.refused)
			}
			if err := d.await(ctx, &v); err != nil {
				return err
			}
		}
		if s.refused, err = d.legs[0].probe(ctx); err != nil {
			return err
		}
	}
}

// prepare readies the window file for the session that open asks for. The header is written
// before OPEN: if this run is killed, the next one can ask by RESUME whether OPEN was granted.
func (d *Device) prepare(s *situation, open *decision) error {
	if s.refused.Holder != s.id || s.heard() {
		d.legs[0].takesOver(&s.refused)
	}
	if open.note != "" {
		d.log.Info(open.note, slog.String("region", d.cfg.Region))
	}
	if open.lost != nil {
		d.accept(open.lost)
		if err := d.file.wipe(); err != nil {
			return err
		}
	}
	opening := &d.legs[0].opening
	opening.expect, opening.strict, d.lineage = open.epoch, true, open.from.Lineage
	if open.from.State == 0 {
		d.lineage = uuid.New()
	}
	if open.owner != (persist.Owner{}) {
		d.legs[0].owner, opening.asked = open.owner, true
	} else if err := d.legs[0].drawOwner(); err != nil {
		return err
	}
	opening.unclean = s.refused.Flags&wire.OpenedUnclean != 0 && !opening.asked
	chunks := uint32(d.cfg.Window / backend.ChunkSize)
	d.file.update(func(h *header) {
		*h = header{
			State: windowLive, Lanes: uint32(d.cfg.Lanes), Entries: uint32(d.entries()), Window: chunks,
			Chunks: chunks + uint32(d.cfg.Connections), Stripe: stripe,
			Owner: d.legs[0].owner, Epoch: opening.expect, UUID: s.refused.UUID, Boot: s.boot, Lineage: d.lineage,
			ContentsID: open.from.ContentsID, Mark: open.from.Mark,
		}
	})
	return d.file.shape()
}

// accept logs that this start goes on without what is lost.
func (d *Device) accept(lost *LossError) {
	d.log.Warn("ACCEPTING A LOSS: a client that kept the device open may miss acknowledged writes, or find other contents",
		slog.String("region", d.cfg.Region), slog.String("lost", lost.text))
}

// probe asks the target who has the region, by an OPEN that the target always refuses. It
// returns the refusal, which is CodeBusy while another id holds the region. The lease at the arbiter says
// that nobody else has the mirror, but only of those who ask the arbiter before each generation: the record
// that their members have says so (mirror §4.8). From others only Config.Takeover takes the region.
func (g *leg) probe(ctx context.Context) (said wire.Refused, err error) {
	knew := g.arbitrated
	if said, err = g.probeOnce(ctx); err != nil {
		return said, err
	}
	g.arbitrated = g.cfg.Arbiter != nil && said.Record.Arbiter
	if said.Code == wire.CodeBusy && g.arbitrated && !knew {
		return g.probeOnce(ctx)
	}
	return said, nil
}

func (g *leg) probeOnce(ctx context.Context) (said wire.Refused, err error) {
	m := g.request(persist.Owner{ID: g.cfg.ID, Nonce: [16]byte{1}})
	err = g.inquire(ctx, m, false, func(t wire.Type, refused *wire.Refused) error {
		said = *refused
		switch {
		case t != wire.TypeRefused:
			return fmt.Errorf("the target grants epoch 0: %w", wire.ErrMalformed)
		case said.Code == wire.CodeEpoch, said.Code == wire.CodeBusy && said.UUID != [16]byte{}:
			return nil
		}
		return &RefusedError{Region: g.cfg.Region, said: said}
	})
	return said, err
}

// askWhose asks by RESUME whether the owner in h was granted the region by an OPEN whose
// answer it never noted. If so, nobody else has had it since.
func (g *leg) askWhose(ctx context.Context, h *header) (is answer, err error) {
	m := g.request(h.Owner)
	m.Epoch = h.Epoch
	m.Flags &^= wire.OpenTakeover
	err = g.inquire(ctx, m, true, func(t wire.Type, refused *wire.Refused) error {
		switch {
		case t == wire.TypeOpened:
			is = answerGranted
		case refused.Code == wire.CodeNotOwner:
			is = answerRefused
		default:
			return &RefusedError{Region: g.cfg.Region, said: *refused}
		}
		return nil
	})
	return is, err
}

// inquire sends m, as a RESUME or an OPEN, on a connection that serves for nothing else. It asks
// again if the connection is lost, or if heard returns an error that may pass.
func (g *leg) inquire(ctx context.Context, m wire.Open, resume bool, heard func(t wire.Type, refused *wire.Refused) error) error {
	return g.insist(ctx, func(ctx context.Context) error {
		m := m // each connection has a nonce of its own
		if err := g.openDomain(ctx); err != nil {
			return err
		}
		c, err := g.connect(ctx, 0, nil)
		if err != nil {
			return err
		}
		defer func() { _ = c.conn.Close() }() // its one answer has come, or never will
		if resume {
			if m.Methods, err = g.methods(c.conn); err != nil {
				return err
			}
		}
		var opened wire.Opened
		var refused wire.Refused
		t, err := g.petition(ctx, &c, &m, resume, &opened, &refused)
		if err != nil {
			return fmt.Errorf("ask for the region: %w", err)
		}
		return heard(t, &refused)
	})
}

// bootRecord is the name of the file that says in which boot this host last had the region.
// It is there only if all clients were local then.
func (d *Device) bootRecord(region [16]byte) string {
	return fileOf(d.cfg.ID, region, "boot")
}

// lastBoot is what the boot record of region says, Nil if it says nothing.
func (d *Device) lastBoot(region [16]byte) uuid.UUID {
	b, _ := d.claims[0].state.Read(d.bootRecord(region)) // an unreadable record counts as none
	boot, _ := uuid.ParseBytes(b)
	return boot
}

// bootID is the id of this boot of the host.
func bootID() (uuid.UUID, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return uuid.Nil, err
	}
	return uuid.ParseBytes(bytes.TrimSpace(b))
}

// noteGrant compares what OPEN granted with what the previous run left, and notes it in the
// window file, before anything is acknowledged.
func (d *Device) noteGrant(g *wire.Opened) error {
	if d.file == nil {
		return nil
	}
	left := d.file.header()
	if lost := left.granted(d.cfg.Region, g); lost != nil {
		if !d.cfg.AcceptLoss {
			return lost
		}
		d.accept(lost)
		d.lineage = uuid.New()
	}
	d.file.update(func(h *header) {
		h.Lineage = d.lineage
		h.Opened, h.Epoch, h.Mark, h.Size, h.Class, h.ContentsID = 1, g.Epoch, g.Mark, g.Size, uint32(g.Class), g.ContentsID
	})
	return d.noteBoot(g.UUID, left.Boot)
}

// noteBoot keeps in the state directory that this host has region, a region's UUID or that of a mirror's
// set, in this boot.
func (d *Device) noteBoot(region [16]byte, boot uuid.UUID) error {
	state, record := d.claims[0].state, d.bootRecord(region)
	if err := state.Remove(record); err != nil {
		return fmt.Errorf("remove the record of the former boot: %w", err)
	}
	if err := d.noteLast(region, boot); err != nil {
		return fmt.Errorf("note where the window is: %w", err)
	}
	if !d.cfg.LocalClients {
		return nil // a client on another host may outlive this host's boot
	}
	if err := state.Write(record, []byte(boot.String()), false); err != nil {
		return fmt.Errorf("note this boot: %w", err)
	}
	return nil
}
