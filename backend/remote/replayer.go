package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pmnbd/backend"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A replayer brings to the targets what an earlier run left in its window, and closes that run's
// sessions. It has streams, a group commit and legs, as a Device has, but no clients: nothing
// but the replay is ever in its queues. Of a mirror it is that run's life, which goes on
// (mirror §4.5).
type replayer struct {
	device // the Device that starts: it notes in the window file what the targets tell
	log    *slog.Logger
	region string // for the log
	file   *windowFile
	core   *core
	legs   []*leg
	arenas backend.Arenas
	cause  error // why the life of a mirror cannot go on; set once, under commit.mu
}

// adopt replays the window in d.file as the owner that its header names, in that window's
// shape. Then the window is drained, and the owner's sessions closed. A window that is drained
// already has nothing to replay: adopt only closes the sessions. found is what the members of a
// mirror said, by target.
func (d *Device) adopt(ctx context.Context, found []mirror.Leg) (err error) {
	r := &replayer{device: d, log: d.log, region: d.cfg.Region, file: d.file}
	defer func() { err = errors.Join(err, r.release()) }()
	if err := r.load(d.cfg, found); err != nil {
		return err
	}
	r.log.Info("adopting the window of the previous pmnbd", slog.String("region", d.cfg.Region), slog.Uint64("unflushed_bytes", r.core.unflushed()))
	if len(d.cfg.Members) > 0 {
		r.goOn(d)
	} else if err := r.resume(ctx); err != nil {
		return err
	}
	return r.run(ctx)
}

// load takes the window out of the file, and makes the legs.
func (r *replayer) load(cfg Config, found []mirror.Leg) (err error) {
	h := r.file.header()
	if err := h.check(); err != nil {
		return loss("%v", err)
	}
	cfg.Lanes = int(h.Lanes)
	slots := []int{0}
	if len(cfg.Members) > 0 {
		if slots, err = h.seats(cfg.ofLegs(), found); err != nil {
			return err
		}
	}
	for i, cfg := range cfg.ofLegs() {
		g, err := newLeg(cfg, slots[i], r)
		if err != nil {
			return err
		}
		r.legs = append(r.legs, g)
		if err := r.restore(g, &h); err != nil {
			return err
		}
	}
	if r.arenas.Read, err = backend.NewArena(1); err != nil { // no READ will use it
		return err
	}
	if h.State == windowDrained || len(cfg.Members) > 0 && !h.Mirror.Serves() {
		err = r.file.shape() // nothing is in it, and the run may have given its memory back
	} else {
		err = r.file.mmap(int64(h.arenaOff()) + int64(h.Chunks)*backend.ChunkSize)
	}
	if err != nil {
		return err
	}
	arena, window := r.file.window(int(h.Chunks)) // no chunk is for receiving
	if err := window.Adopt(h.Size); err != nil {
		return loss("%v", err)
	}
	r.arenas.Write, r.core = arena, newCore(newLife(r.log), window, cfg.Lanes)
	for _, g := range r.legs {
		g.attach(r.core, &r.arenas)
	}
	r.core.life.step(eventLost, nil) // RESUME brings the sessions back
	for _, s := range r.core.streams {
		for at := s.ring.Covered(); at < s.ring.Head(); at++ {
			s.wrote += uint64(s.ring.At(at).Len)
		}
	}
	return nil
}

// restore gives g the session that the header names.
func (r *replayer) restore(g *leg, h *header) error {
	g.owner = h.Owner
	if len(g.cfg.Members) == 0 {
		g.granted = wire.Opened{UUID: h.UUID, Size: h.Size, Class: persist.Class(h.Class), ContentsID: h.ContentsID, Epoch: h.Epoch}
		g.mark.Store(h.Mark)
		return nil
	}
	g.life, g.silentAt = h.Mirror.Life, time.Now()
	o := h.session(g.slot)
	if o.Epoch == 0 {
		return nil // the run had no session on it
	}
	if err := r.takeClaim(o.UUID); err != nil {
		if h.relies().Has(g.slot) {
			return err
		}
		return nil // its target is asked anew
	}
	g.granted = o
	g.mark.Store(o.Mark)
	return nil
}

// resume sends RESUME until the target of a region alone grants it or refuses it for good. A refusal
// for good is a LossError.
func (r *replayer) resume(ctx context.Context) error {
	g := r.legs[0]
	ctx, done := g.patient(ctx)
	defer done()
	for n := 0; ; n++ {
		_, err := g.resume(ctx, attemptLimit(n))
		if err == nil {
			return nil
		}
		if errors.As(err, new(*lastingError)) {
			return loss("%v; %d acknowledged bytes were not flushed", err, r.core.unflushed())
		}
		select {
		case <-time.After(backoff(n, 0)):
		case <-ctx.Done():
			return err
		}
	}
}

// run waits until the window is replayed and durable, and closes the sessions. A target that
// goes away meanwhile, or whose disk hangs, is the business of its leg and of watch.
func (r *replayer) run(ctx context.Context) error {
	for _, g := range r.legs {
		g.serve()
	}
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(ctx, done)
	}()
	clean, err := r.flush()
	if err != nil {
		err = fmt.Errorf("%d bytes were not flushed: %w", r.core.unflushed(), err)
	} else {
		r.file.update(func(h *header) { h.State = windowDrained })
		r.farewell(ctx)
	}
	err = r.left(err, r.core.leave(ctx, err == nil && clean))
	close(done)
	<-watched
	r.core.end(err, func(transition) {}).say(slog.String("region", r.region))
	return err
}

// flush waits until the window is replayed and durable. clean is false if the members of a mirror are not
// equal: a FLUSH would wait until one of them is copied in full, and so does the next life.
func (r *replayer) flush() (clean bool, err error) {
	flushed := r.core.flush()
	unequal := r.core.awaitEqual(0)
	defer unequal.stop()
	for {
		select {
		case err := <-flushed:
			return true, err
		case <-unequal.look():
			if !unequal.lasts(time.Now()) || r.core.copies.regains() { // what that member lacks, only this life knows
				continue
			}
			r.log.Info("the window is replayed, but the members of the mirror are not equal yet: the next life compares them in full", slog.String("region", r.region))
			return false, nil
		}
	}
}

// watch ends the replay with ctx, or when it has made no headway for as long as the start is
// patient, until done. A barrier that the target says it is at takes the time that the
// target's disk takes, as in a session: a start that gave up would make all its pages dirty again. A
// mirror waits for the targets that it needs without a limit, as every start of a mirror does.
func (r *replayer) watch(ctx context.Context, done <-chan struct{}) {
	patience := r.legs[0].cfg.OpenTimeout
	var look <-chan time.Time // never: ctx alone bounds the replay
	if patience > 0 {
		ticker := time.NewTicker(max(patience/16, time.Millisecond))
		defer ticker.Stop()
		look = ticker.C
	}
	said := time.NewTicker(sayEvery)
	defer said.Stop()
	var way headway
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			r.giveUp(context.Cause(ctx))
			return
		case <-said.C:
			r.say()
			continue
		case <-look:
		}
		at := r.progress()
		if at.waits {
			way.step = step{}
			continue
		}
		if way.stands(at.sent, r.core.commit.succeeded(), at.doubt, r.legs[0].pulse.clock()) > patience {
			r.giveUp(fmt.Errorf("the replay of the window has come no further for %v: %w", patience, rdma.ErrTimeout))
			return
		}
	}
}

// A replayed is how far the targets are with the replay.
type replayed struct {
	sent  uint64 // bytes and zeroes that the transport has completed on the present connections
	doubt uint64 // bytes of doubt that the targets have left
	waits bool   // a target is at the barrier behind them, or a mirror waits for a target
}

func (r *replayer) progress() (at replayed) {
	c := &r.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	at.waits = r.core.copies != nil && !r.core.up()
	for _, g := range r.legs {
		for _, l := range g.lanes {
			l.mu.Lock()
			at.sent += l.back.bytes + l.zeroes.seq - uint64(l.zeroes.n)
			l.mu.Unlock()
		}
		at.doubt += g.pulse.doubt.Load()
		at.waits = at.waits || c.current != nil && g.pulse.barrier.Load() == c.current.seq
	}
	return at
}

// sayEvery is how often a replay logs how far it is.
const sayEvery = 5 * time.Second

// say logs how far the replay is.
func (r *replayer) say() {
	r.log.Info("adopting the window: it is sent to the target, and made durable", slog.String("region", r.region),
		slog.Uint64("unflushed_bytes", r.core.unflushed()), slog.Uint64("doubt_left_bytes", r.progress().doubt))
}

// giveUp ends the replay. It is no failure of a device: the window stays as it is, and the next
// start adopts it.
func (r *replayer) giveUp(cause error) { r.core.end(cause, func(transition) {}) }

// fail implements device. The window stays as it is.
func (r *replayer) fail(cause error) { r.core.end(cause, func(transition) { r.cause = cause }) }

// release gives back what load took. The file keeps the window mapped.
func (r *replayer) release() (err error) {
	if r.core != nil {
		r.core.bury()
	}
	for _, g := range r.legs {
		err = errors.Join(err, g.close()) // before the arenas: they are registered with its domain
	}
	if r.core != nil && r.core.copies != nil {
		err = errors.Join(err, r.core.copies.memory.free())
	}
	for _, a := range []*backend.Arena{r.arenas.Write, r.arenas.Read} {
		if a != nil {
			err = errors.Join(err, a.Close())
		}
	}
	return err
}

// A headway is how far a replay has come. A replay that begins anew on other connections makes
// headway only beyond where it was on all before. Otherwise a replay whose connections are lost
// again and again would never end.
type headway struct {
	barriers uint64 // how many had succeeded
	began    uint64 // what had been sent on the present connections then
	furthest uint64 // beyond that
	step     step
}

// stands is how long the replay has made no headway, by the clock that now is of. sent is how
// many bytes and zeroes of it the transport has completed on the present connections.
func (w *headway) stands(sent, barriers, doubtLeft uint64, now int64) time.Duration {
	if barriers != w.barriers {
		w.barriers, w.began, w.furthest = barriers, sent, 0
	}
	if sent < w.began {
		w.began = 0 // other connections
	}
	w.furthest = max(w.furthest, sent-w.began)
	return w.step.stays(progress{seq: 1 + barriers, moved: w.furthest, doubtLeft: doubtLeft}, now)
}
