package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

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
		acceptLoss: d.cfg.AcceptLoss,
	}
	if s.refused, err = d.leg.probe(ctx); err != nil {
		return err
	}
	if s.boot, err = bootID(); err != nil {
		return fmt.Errorf("tell whether the window is of this boot: %w", err)
	}
	if d.claim, err = claimRegion(d.cfg.StateDir, d.cfg.ID, s.refused.UUID); err != nil {
		return err
	}
	if err := d.checkName(&s); err != nil {
		return err
	}
	if d.file, err = openWindowFile(d.cfg.WindowDir, d.cfg.ID, s.refused.UUID); err != nil {
		return err
	}
	s.windowDir, s.path, s.header = d.file.dir.path, d.file.f.Name(), d.file.header()
	s.otherDir, s.lastBoot = d.otherDir(s.refused.UUID), d.lastBoot(s.refused.UUID)
	for {
		next := decide(&s)
		switch next.act {
		case actEnd:
			return next.err
		case actOpen:
			return d.prepare(&s, &next)
		case actAsk:
			if s.resumed, err = d.leg.askWhose(ctx, &s.header); err != nil {
				return fmt.Errorf("ask whether the previous pmnbd was granted the region: %w", err)
			}
			continue
		case actReplay:
			if err := d.adopt(ctx); err != nil {
				err = fmt.Errorf("go on where the previous pmnbd ended: %w", err)
				if !errors.As(err, new(*LossError)) {
					return err
				}
				s.lost = &LossError{err.Error()}
				continue
			}
			s.header, s.replayed = d.file.header(), true
		case actProbe:
			s.lost, s.looked = next.lost, true
		}
		if s.refused, err = d.leg.probe(ctx); err != nil {
			return err
		}
	}
}

// prepare readies the window file for the session that open asks for. The header is written
// before OPEN: if this run is killed, the next one can ask by RESUME whether OPEN was granted.
func (d *Device) prepare(s *situation, open *decision) error {
	d.leg.takesOver(&s.refused)
	if open.note != "" {
		d.log.Info(open.note, zap.String("region", d.cfg.Region))
	}
	if open.lost != nil {
		d.accept(open.lost)
		if err := d.file.wipe(); err != nil {
			return err
		}
	}
	opening := &d.leg.opening
	opening.expect, opening.strict, d.lineage = open.epoch, true, open.from.Lineage
	if open.from.State == 0 {
		d.lineage = uuid.New()
	}
	if open.owner != (persist.Owner{}) {
		d.leg.owner, opening.asked = open.owner, true
	} else if err := d.leg.drawOwner(); err != nil {
		return err
	}
	opening.unclean = s.refused.Flags&wire.OpenedUnclean != 0 && !opening.asked
	chunks := uint32(d.cfg.Window / backend.ChunkSize)
	d.file.update(func(h *header) {
		*h = header{
			State: windowLive, Lanes: uint32(d.cfg.Lanes), Entries: uint32(d.entries()), Window: chunks,
			Chunks: chunks + uint32(d.cfg.Connections), Stripe: stripe,
			Owner: d.leg.owner, Epoch: opening.expect, UUID: s.refused.UUID, Boot: s.boot, Lineage: d.lineage,
			ContentsID: open.from.ContentsID, Mark: open.from.Mark,
		}
	})
	return d.file.shape()
}

// accept logs that this start goes on without what is lost.
func (d *Device) accept(lost *LossError) {
	d.log.Warn("ACCEPTING A LOSS: a client that kept the device open may miss acknowledged writes, or find other contents",
		zap.String("region", d.cfg.Region), zap.String("lost", lost.text))
}

// probe asks the target who has the region, by an OPEN that the target always refuses. It
// returns the refusal, which is CodeBusy while another id holds the region.
func (g *leg) probe(ctx context.Context) (refused wire.Refused, err error) {
	err = g.insist(ctx, func(ctx context.Context) (err error) {
		refused, err = g.tryProbe(ctx)
		return err
	})
	return refused, err
}

func (g *leg) tryProbe(ctx context.Context) (refused wire.Refused, err error) {
	if err := g.openDomain(ctx); err != nil {
		return refused, err
	}
	c, err := g.connect(ctx, 0, nil)
	if err != nil {
		return refused, err
	}
	defer func() { _ = c.conn.Close() }() // it has said what it had to
	msg := g.request(persist.Owner{ID: g.cfg.ID, Nonce: [16]byte{1}})
	var opened wire.Opened
	t, err := g.petition(ctx, &c, &msg, false, &opened, &refused)
	switch {
	case err != nil:
		return refused, fmt.Errorf("ask for the region: %w", err)
	case t != wire.TypeRefused:
		return refused, fmt.Errorf("the target grants epoch 0: %w", wire.ErrMalformed)
	case refused.Code == wire.CodeBusy && refused.UUID != [16]byte{}:
	case refused.Code != wire.CodeEpoch:
		return refused, &RefusedError{Region: g.cfg.Region, Refused: refused}
	}
	return refused, nil
}

// bootRecord is the name of the file that says in which boot this host last had the region.
// It is there only if all clients were local then.
func (d *Device) bootRecord(region [16]byte) string {
	return fileOf(d.cfg.ID, region, "boot")
}

// lastBoot is what the boot record of region says, Nil if it says nothing.
func (d *Device) lastBoot(region [16]byte) uuid.UUID {
	b, _ := d.claim.state.Read(d.bootRecord(region)) // an unreadable record counts as none
	boot, _ := uuid.ParseBytes(b)
	return boot
}

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
	state, record := d.claim.state, d.bootRecord(g.UUID)
	if err := state.Remove(record); err != nil {
		return fmt.Errorf("remove the record of the former boot: %w", err)
	}
	if err := state.Write(fileOf(d.cfg.ID, g.UUID, "last"), []byte(d.file.dir.path+"\n"), false); err != nil {
		return fmt.Errorf("note where the window is: %w", err)
	}
	if !d.cfg.LocalClients {
		return nil // a client on another host may outlive this host's boot
	}
	if err := state.Write(record, []byte(uuid.UUID(left.Boot).String()), false); err != nil {
		return fmt.Errorf("note this boot: %w", err)
	}
	return nil
}

// errAdopted is why the lanes of an adopted window have no connection.
var errAdopted = errors.New("the window was adopted")

// adopt brings what the file's window holds to the target, as the owner that it names,
// in its shape, and gives the session back. Nothing is in one that is drained.
func (d *Device) adopt(ctx context.Context) (err error) {
	h := d.file.header()
	if err := h.check(); err != nil {
		return loss("%v", err)
	}
	cfg := d.cfg
	cfg.Lanes = int(h.Lanes)
	a := &Device{cfg: cfg, log: cfg.Log, file: d.file, adopted: true}
	if a.leg, err = newLeg(cfg, a); err != nil {
		return err
	}
	a.leg.owner = h.Owner
	a.leg.granted = wire.Opened{UUID: h.UUID, Size: h.Size, Class: persist.Class(h.Class), ContentsID: h.ContentsID, Epoch: h.Epoch}
	a.leg.mark.Store(h.Mark)
	if h.State == windowDrained {
		err = d.file.shape() // its memory was given back
	} else {
		err = d.file.mmap(int64(h.arenaOff()) + int64(h.Chunks)*backend.ChunkSize)
	}
	if err != nil {
		return errors.Join(err, a.leg.close())
	}
	var window *backend.Window
	a.arenas.Write, window = d.file.window(int(h.Chunks)) // nobody receives
	serves := false
	defer func() {
		if !serves { // else Close did it
			if a.core != nil {
				a.core.bury()
			}
			err = errors.Join(err, a.release())
		}
	}()
	if err := window.Adopt(h.Size); err != nil {
		return loss("%v", err)
	}
	a.core = newCore(newLife(cfg.Log), window, cfg.Lanes)
	a.leg.attach(a.core, &a.arenas)
	if a.arenas.Read, err = backend.NewArena(1); err != nil { // nobody reads
		return err
	}
	a.ready()
	for _, l := range a.leg.lanes {
		l.broken = errAdopted
		for at := l.ring.Covered(); at < l.ring.Head(); at++ {
			l.wrote += uint64(l.ring.At(at).Len)
		}
	}
	d.log.Info("adopting the window of the pmnbd before", zap.String("region", cfg.Region), zap.Uint64("unflushed_bytes", a.Unflushed()))
	a.core.life.step(eventLost, errAdopted)
	asking, asked := d.leg.patient(ctx)
	defer asked()
	for n := 0; ; n++ {
		_, err := a.leg.resume(asking, attemptLimit(n))
		if err == nil {
			break
		}
		var end *lastingError
		if errors.As(err, &end) {
			return loss("%v; %d acknowledged bytes were not flushed", err, a.Unflushed())
		}
		select {
		case <-time.After(backoff(n, 0)):
		case <-asking.Done():
			return err
		}
	}
	a.leg.serve()
	serves = true
	// Close waits as long as it takes for a target that went again, or whose disk hangs.
	closed, watched := make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); a.leg.watchReplay(closed) }()
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(ended); a.fail(context.Cause(ctx)) })
	err = a.Close()
	close(closed)
	<-watched
	if !stop() {
		<-ended
	}
	return err
}
