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

// A LossError tells that a device cannot be opened without that something may be lost
// which its clients believe in. Config.AcceptLoss goes on.
type LossError struct{ text string }

func (e *LossError) Error() string {
	return e.text + ": --accept-loss goes on without it, once nobody uses the device any more"
}

func loss(format string, args ...any) error { return &LossError{fmt.Sprintf(format, args...)} }

// inherit finds out what the run of this initiator before left of the region's window,
// replays it, and readies the window file for a new one. Early-acknowledged writes may
// be forgotten only if their clients saw the device die: the kernel, and QEMU, send a
// new pmnbd only what was not answered (design §6).
//
//	live ──► adopt: RESUME as the owner before, replay, barrier, CLOSE ──► drained
//	drained ──► OPEN, in the epoch that it was left in, or not at all
//	failed, or lost ──► a LossError; if that is accepted, OPEN in any epoch
func (d *Device) inherit(ctx context.Context) error {
	refused, err := d.probe(ctx)
	if err != nil {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return fmt.Errorf("tell whether the window is of this boot: %w", err)
	}
	if d.claim, err = claimRegion(d.cfg.StateDir, d.cfg.ID, refused.UUID); err != nil {
		return err
	}
	if err := d.leads(&refused, boot); err != nil {
		return err
	}
	if d.file, err = openWindowFile(d.cfg.WindowDir, d.cfg.ID, refused.UUID); err != nil {
		return err
	}
	// The flag may be there for another region, or still: it counts where it is needed.
	h, err := d.left(ctx, &refused, boot)
	var lost *LossError
	if errors.As(err, &lost) && d.cfg.AcceptLoss {
		h = header{}
		refused, err = d.probe(ctx) // a RESUME may have raised the epoch
	}
	if err == nil && refused.Code == wire.CodeBusy {
		err = &RefusedError{Region: d.cfg.Region, Refused: refused} // what was left stays as it is
	}
	if err != nil {
		return err
	}
	d.takesOver(&refused)
	if lost != nil {
		d.accept(lost)
		if err := d.file.wipe(); err != nil {
			return err
		}
	}
	d.expect, d.lineage = refused.Epoch, h.Lineage
	if h.State == 0 {
		d.lineage = uuid.New()
	}
	if d.asked {
		d.expect = h.Epoch // as the owner that the target may have granted it to
	} else if err := d.drawOwner(); err != nil {
		return err
	}
	d.unclean = refused.Flags&wire.OpenedUnclean != 0 && !d.asked
	chunks := uint32(d.cfg.Window / backend.ChunkSize)
	contents, mark := h.ContentsID, h.Mark
	d.file.update(func(h *header) {
		*h = header{
			State: windowLive, Lanes: uint32(d.cfg.Lanes), Entries: uint32(d.entries()), Window: chunks,
			Chunks: chunks + uint32(d.cfg.Connections), Stripe: stripe,
			Owner: d.owner, Epoch: d.expect, UUID: refused.UUID, Boot: boot, Lineage: d.lineage,
			ContentsID: contents, Mark: mark,
		}
	})
	return d.file.shape()
}

// left makes of what the run before left something to go on with: the header of a window
// in which nothing is, or an empty one where nobody misses one. refused is what the target
// last said of the region.
func (d *Device) left(ctx context.Context, refused *wire.Refused, boot uuid.UUID) (h header, err error) {
	h = d.file.header()
	if h.State == windowDamaged {
		return h, loss("the header of %v %s is damaged, or of another release: that one could go on with it", ErrWindow, d.file.f.Name())
	}
	if h.Boot != boot {
		h = header{} // a reboot takes windows, wherever they lie
	}
	if h.State != 0 && h.UUID != refused.UUID {
		return h, loss("%v %s is of region %s, not of %s", ErrWindow, d.file.f.Name(), uuid.UUID(h.UUID), uuid.UUID(refused.UUID))
	}
	if (h.State == windowLive || h.State == windowDrained) && refused.Holder == d.cfg.ID && refused.Epoch > h.Epoch {
		if there := d.elsewhereLeft(refused.UUID); there != "" {
			return h, loss("%s; the window here is of epoch %d, and the region is in epoch %d", there, h.Epoch, refused.Epoch)
		}
	}
	if h.State == windowLive && h.Opened != 0 || h.State == windowDrained && d.holds(refused, h.Epoch) {
		// A drained one was perhaps resumed without hearing of it, when CLOSE broke: RESUME tells.
		// Also if another id holds the region. A RESUME is granted to nobody but the owner
		// that is persisted, so the refusal is then for good.
		if err := d.adopt(ctx); err != nil {
			return h, fmt.Errorf("go on where the pmnbd before ended: %w", err)
		}
		if *refused, err = d.probe(ctx); err != nil {
			return h, err
		}
		h = d.file.header()
	}
	switch {
	case h.State == windowFailed:
		return h, loss("the device failed in the run before: %s", h.failure())
	case refused.Code == wire.CodeBusy:
		// Nothing was lost, and what there is to compare is not known before it is free.
	case h.State == 0:
		return h, d.forgotten(refused, boot)
	case refused.Mark < h.Mark:
		return h, d.restored(h.Mark, refused.Mark)
	case h.State == windowLive && d.holds(refused, h.Epoch):
		// Granted, perhaps, and killed before it was noted: nothing was acknowledged.
		granted, err := d.regains(ctx, &h)
		if err != nil {
			return h, fmt.Errorf("ask whether the pmnbd before was granted the region: %w", err)
		}
		if !granted {
			return h, d.otherwise(&h, refused)
		}
		d.owner, d.asked = h.Owner, true
	case h.ContentsID != ([16]byte{}) && refused.Epoch == h.Epoch && refused.Holder != d.cfg.ID:
		return h, loss("somebody else had region %s since this initiator left it: it was restored from a copy, and came to epoch %d again", d.cfg.Region, h.Epoch)
	case refused.Epoch != h.Epoch:
		return h, d.otherwise(&h, refused)
	}
	return h, nil
}

// otherwise says that the region is not as h left it.
func (d *Device) otherwise(h *header, refused *wire.Refused) error {
	return loss("somebody else had region %s since this initiator left it in epoch %d: it is in epoch %d, and clients that stayed would meet other contents",
		d.cfg.Region, h.Epoch, refused.Epoch)
}

// restored is the loss of a region that has an older mark than it had when this initiator
// left it.
func (d *Device) restored(left, has uint64) *LossError {
	return &LossError{fmt.Sprintf("region %s was restored from a copy since this initiator left it: it has mark %d, and had mark %d. It lacks the writes that were flushed in between",
		d.cfg.Region, has, left)}
}

// accept says what is gone on without.
func (d *Device) accept(lost *LossError) {
	d.log.Warn("ACCEPTING A LOSS: who kept the device since may miss what was acknowledged, or meet other contents",
		zap.String("region", d.cfg.Region), zap.String("lost", lost.text))
}

// probe asks the target who has the region, by an OPEN that is always refused. One that
// another id holds is refused as busy: that is for the caller to judge.
func (d *Device) probe(ctx context.Context) (refused wire.Refused, err error) {
	err = d.insist(ctx, func(ctx context.Context) (err error) {
		refused, err = d.tryProbe(ctx)
		return err
	})
	return refused, err
}

func (d *Device) tryProbe(ctx context.Context) (refused wire.Refused, err error) {
	if err := d.openDomain(ctx); err != nil {
		return refused, err
	}
	c, err := d.connect(ctx, 0, nil)
	if err != nil {
		return refused, err
	}
	defer func() { _ = c.conn.Close() }() // it has said what it had to
	msg := d.request(persist.Owner{ID: d.cfg.ID, Nonce: [16]byte{1}})
	var opened wire.Opened
	t, err := d.petition(ctx, &c, &msg, false, &opened, &refused)
	switch {
	case err != nil:
		return refused, fmt.Errorf("ask for the region: %w", err)
	case t != wire.TypeRefused:
		return refused, fmt.Errorf("the target grants epoch 0: %w", wire.ErrMalformed)
	case refused.Code == wire.CodeBusy && refused.UUID != [16]byte{}:
	case refused.Code != wire.CodeEpoch:
		return refused, &RefusedError{Region: d.cfg.Region, Refused: refused}
	}
	return refused, nil
}

// forgotten tells whether the run before may have acknowledged what is lost, where it left
// no window file in this boot.
func (d *Device) forgotten(refused *wire.Refused, boot uuid.UUID) error {
	if refused.Holder != d.cfg.ID || refused.Flags&wire.OpenedUnclean == 0 {
		return nil
	}
	// Since this host booted nobody here can have been its client; if there are none
	// elsewhere, none has survived.
	record, _ := d.claim.state.Read(d.bootRecord(refused.UUID)) // what cannot be read shows nothing
	if before, err := uuid.ParseBytes(record); err == nil && d.cfg.LocalClients && before != boot {
		d.log.Info("this host was booted since the run before: nobody is left who knew what it had acknowledged", zap.String("region", d.cfg.Region))
		return nil
	}
	if there := d.elsewhereLeft(refused.UUID); there != "" {
		return loss("%s; without that window the acknowledged writes that no FLUSH covered are lost", there)
	}
	return loss("the run of this initiator before did not close region %s, and its window is not in %s, or is from before this host booted: what it acknowledged and did not flush is lost", d.cfg.Region, d.cfg.WindowDir)
}

// bootRecord is the file that says in which boot this host last had the region, if that
// was for local clients only.
func (d *Device) bootRecord(region [16]byte) string {
	return fileOf(d.cfg.ID, region, "boot")
}

func bootID() (uuid.UUID, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return uuid.Nil, err
	}
	return uuid.ParseBytes(bytes.TrimSpace(b))
}

// opened notes in the window file what was granted, before anything is acknowledged, if
// it is what the run before left.
func (d *Device) opened(g *wire.Opened) error {
	if d.file == nil {
		return nil
	}
	var lost *LossError
	switch left := d.file.header(); {
	case left.ContentsID != ([16]byte{}) && left.ContentsID != g.ContentsID:
		lost = &LossError{fmt.Sprintf("the contents of region %s were lost at the target since this initiator left it", d.cfg.Region)}
	case g.Mark < left.Mark:
		lost = d.restored(left.Mark, g.Mark)
	}
	if lost != nil {
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
		return fmt.Errorf("forget the boot before: %w", err)
	}
	if err := state.Write(fileOf(d.cfg.ID, g.UUID, "last"), []byte(d.file.dir.path+"\n"), false); err != nil {
		return fmt.Errorf("note where the window is: %w", err)
	}
	if !d.cfg.LocalClients {
		return nil // some may outlive this host's boot
	}
	boot := d.file.header().Boot
	if err := state.Write(record, []byte(uuid.UUID(boot).String()), false); err != nil {
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
	a := newDevice(cfg)
	a.file, a.adopted, a.owner, a.info.MaxRequest = d.file, true, h.Owner, backend.ChunkSize
	a.granted = wire.Opened{UUID: h.UUID, Size: h.Size, Class: persist.Class(h.Class), ContentsID: h.ContentsID, Epoch: h.Epoch}
	a.mark.Store(h.Mark)
	if h.State == windowDrained {
		err = d.file.shape() // its memory was given back
	} else {
		err = d.file.mmap(int64(h.arenaOff()) + int64(h.Chunks)*backend.ChunkSize)
	}
	if err != nil {
		return err
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
	a.core = newCore(window, cfg.Lanes)
	for i := range cfg.Lanes {
		l := newLane(a, a.core.streams[i])
		l.broken = errAdopted
		for at := l.ring.Covered(); at < l.ring.Head(); at++ {
			l.wrote += uint64(l.ring.At(at).Len)
		}
		a.lanes = append(a.lanes, l)
	}
	if err := a.mapControl(); err != nil {
		return err
	}
	if a.arenas.Read, err = backend.NewArena(1); err != nil { // nobody reads
		return err
	}
	a.ready()
	d.log.Info("adopting the window of the pmnbd before", zap.String("region", cfg.Region), zap.Uint64("unflushed_bytes", a.Unflushed()))
	a.core.commit.away = true
	asking, asked := d.patient(ctx)
	defer asked()
	for n := 0; ; n++ {
		err := a.resume(asking, attemptLimit(n))
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
	a.serve()
	serves = true
	// Close waits as long as it takes for a target that went again, or whose disk hangs.
	closed, watched := make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); a.watchReplay(closed) }()
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
