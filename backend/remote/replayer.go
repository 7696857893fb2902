package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pmnbd/backend"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A replayer brings to the target what an earlier run left in its window, and closes that run's
// session. It has streams, a group commit and a leg, as a Device has, but no clients: nothing
// but the replay is ever in its queues.
type replayer struct {
	device // the Device that starts: it notes in the window file what the target tells
	log    *slog.Logger
	file   *windowFile
	core   *core
	leg    *leg
	arenas backend.Arenas
}

// adopt replays the window in d.file as the owner that its header names, in that window's
// shape. Then the window is drained, and the owner's session closed. A window that is drained
// already has nothing to replay: adopt only closes the session.
func (d *Device) adopt(ctx context.Context) (err error) {
	r := &replayer{device: d, log: d.log, file: d.file}
	defer func() { err = errors.Join(err, r.release()) }()
	if err := r.load(d.cfg); err != nil {
		return err
	}
	r.log.Info("adopting the window of the previous pmnbd", slog.String("region", d.cfg.Region), slog.Uint64("unflushed_bytes", r.core.unflushed()))
	if err := r.resume(ctx); err != nil {
		return err
	}
	return r.run(ctx)
}

// load takes the window out of the file.
func (r *replayer) load(cfg Config) (err error) {
	h := r.file.header()
	if err := h.check(); err != nil {
		return loss("%v", err)
	}
	cfg.Lanes = int(h.Lanes)
	if r.leg, err = newLeg(cfg, 0, r); err != nil {
		return err
	}
	r.leg.owner = h.Owner
	r.leg.granted = wire.Opened{UUID: h.UUID, Size: h.Size, Class: persist.Class(h.Class), ContentsID: h.ContentsID, Epoch: h.Epoch}
	r.leg.mark.Store(h.Mark)
	if r.arenas.Read, err = backend.NewArena(1); err != nil { // no READ will use it
		return err
	}
	if h.State == windowDrained {
		err = r.file.shape() // the run that drained it gave its memory back
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
	r.leg.attach(r.core, &r.arenas)
	r.core.life.step(eventLost, nil) // RESUME brings the session back
	for _, s := range r.core.streams {
		for at := s.ring.Covered(); at < s.ring.Head(); at++ {
			s.wrote += uint64(s.ring.At(at).Len)
		}
	}
	return nil
}

// resume sends RESUME until the target grants it or refuses it for good. A refusal for good is
// a LossError.
func (r *replayer) resume(ctx context.Context) error {
	ctx, done := r.leg.patient(ctx)
	defer done()
	for n := 0; ; n++ {
		_, err := r.leg.resume(ctx, attemptLimit(n))
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

// run waits until the window is replayed and durable, and closes the session. A target that
// goes away meanwhile, or whose disk hangs, is the business of the leg and of watch.
func (r *replayer) run(ctx context.Context) error {
	r.leg.serve()
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(ctx, done)
	}()
	err := <-r.core.flush()
	if err != nil {
		err = fmt.Errorf("%d bytes were not flushed: %w", r.core.unflushed(), err)
	} else {
		r.file.update(func(h *header) { h.State = windowDrained })
	}
	err = errors.Join(err, r.core.leave(ctx, err == nil))
	close(done)
	<-watched
	r.core.end(err, func(transition) {}).say(slog.String("region", r.leg.cfg.Region))
	return err
}

// watch ends the replay with ctx, or when it has made no headway for as long as the start is
// patient, until done. A barrier that the target says it is at takes the time that the
// target's disk takes, as in a session: a start that gave up would make all its pages dirty again.
func (r *replayer) watch(ctx context.Context, done <-chan struct{}) {
	patience := r.leg.cfg.OpenTimeout
	var look <-chan time.Time // never: ctx alone bounds the replay
	if patience > 0 {
		ticker := time.NewTicker(max(patience/16, time.Millisecond))
		defer ticker.Stop()
		look = ticker.C
	}
	var way headway
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			r.fail(context.Cause(ctx))
			return
		case <-look:
		}
		sent, atTarget := r.sent()
		if atTarget {
			way.step = step{}
			continue
		}
		if way.stands(sent, r.core.commit.succeeded(), r.leg.pulse.doubt.Load(), r.leg.pulse.clock()) > patience {
			r.fail(fmt.Errorf("the replay of the window has come no further for %v: %w", patience, rdma.ErrTimeout))
			return
		}
	}
}

// sent is how many bytes and zeroes of the replay the transport has completed on the present
// connections. atTarget says that the target is at the barrier behind them.
func (r *replayer) sent() (sent uint64, atTarget bool) {
	c := &r.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range r.leg.lanes {
		l.mu.Lock()
		sent += l.back.bytes + l.zeroes.seq - uint64(l.zeroes.n)
		l.mu.Unlock()
	}
	return sent, c.current != nil && r.leg.pulse.barrier.Load() == c.current.seq
}

// fail ends the replay. It is no failure of a device: the window stays as it is, and the next
// start adopts it.
func (r *replayer) fail(cause error) { r.core.end(cause, func(transition) {}) }

// release gives back what load took. The file keeps the window mapped.
func (r *replayer) release() (err error) {
	if r.core != nil {
		r.core.bury()
	}
	if r.leg != nil {
		err = r.leg.close() // before the arenas: they are registered with its domain
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
