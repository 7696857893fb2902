package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"pmnbd/backend"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// Close implements backend.Device. It is Shutdown without a limit: while the target is away and
// writes are not flushed, it waits for the target.
func (d *Device) Close() error { return d.Shutdown(context.Background()) }

// Shutdown refuses new ops, flushes what was written, gives the region back, and ends the device.
// An error means that acknowledged writes may be lost, or that memory was not given back, or
// ErrAway or ErrUnequal. The connections of clients have ended before, or end once the device has completed what
// they asked for.
//
// If ctx ends first, Shutdown gives up, and the device ends as if its process had been killed:
// outstanding ops fail with backend.ErrClosed, and the target is not told. The error then wraps
// ctx's, and says how many acknowledged bytes are not flushed. With Config.WindowDir they are still
// in the window, and the next start on this host sends them, unless the host reboots before.
// Without it they are lost.
//
// Shutdown and Close may be called several times, and at the same time. The first ctx that ends
// counts for all calls, and all return the same error.
func (d *Device) Shutdown(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { d.giveUp(context.Cause(ctx)) })()
	d.closeOnce.Do(func() { d.closeErr = d.close(d.closing) })
	return d.closeErr
}

// close ends the device, without a flush if ctx ends first.
func (d *Device) close(ctx context.Context) error {
	d.core.life.step(eventDrain, nil).say()
	d.core.quiesce()
	last := d.core.flush()
	flushed := make(chan error, 1)
	go func() {
		err := <-last
		for _, s := range d.core.streams {
			s.awaitReads() // CLOSE must not overtake them: their key would be gone
		}
		flushed <- err
	}()
	var err error
	var away <-chan time.Time
	patience := departAfter
	if d.core.copies != nil {
		patience += d.cfg.LegTimeout // a leg that is let go makes a clean end of the others
	}
	if d.idle() {
		away = time.After(patience)
	}
	unequal := d.core.awaitEqual(patience)
	defer unequal.stop()
	for waits := true; waits; {
		select {
		case <-unequal.look():
			if unequal.lasts(time.Now()) {
				return d.endUnequal(ctx, flushed)
			}
		case err = <-flushed:
			waits = false
		case <-d.core.gone: // lost, or lost again
			away = time.After(patience)
		case <-away:
			if d.idle() {
				err = d.depart(ctx)
				if cause := <-flushed; cause != nil { // it had nothing to flush
					d.log.Debug("the departure ended the last flush", slog.Any("error", cause))
				}
				return errors.Join(err, d.release())
			}
		case <-ctx.Done():
			err = d.leave(ctx, false)
			return errors.Join(d.givenUp(<-flushed, context.Cause(ctx)), err, d.release()) // leave has ended the flush
		}
	}
	if err != nil {
		err = fmt.Errorf("%d bytes were not flushed: %w", d.Unflushed(), err)
	}
	if err == nil {
		err = d.core.failed() // since the flush, while READs were waited for
	}
	if err == nil {
		d.noteDrained()
	}
	err = errors.Join(err, d.leave(ctx, err == nil))
	d.yields = err == nil
	return errors.Join(err, d.release())
}

// givenUp is the error of a close that gave up: what that costs. The window file stays live, and
// the next run adopts it, unless the device had failed: flush is what its last flush returned.
func (d *Device) givenUp(flush, cause error) error {
	switch n := d.Unflushed(); {
	case errors.Is(flush, backend.ErrFailed):
		return fmt.Errorf("%d bytes were not flushed: %w", n, errors.Join(flush, cause))
	case d.core.empty():
		return fmt.Errorf("the target was not told of the end; nothing is lost: all that was acknowledged is flushed: %w", cause)
	case d.file != nil:
		return fmt.Errorf("%d bytes that were acknowledged are not flushed: open the region again on this host before it reboots, or they are lost: %w", n, cause)
	default:
		return fmt.Errorf("%d bytes that were acknowledged are not flushed, and are lost: %w", n, cause)
	}
}

// ErrAway means that a device was closed while its target was away, or did not answer, with nothing in its
// window: nothing is lost, and the next start takes the region back if nobody else has.
var ErrAway = errors.New("the target is away, and may not know of the end; nothing is lost: all that was acknowledged is flushed, and the next start takes the region back")

// departAfter is how long a session that is lost may take to come back before Close ends
// without it: an interruption is most often over by then, and a clean end is better.
const departAfter = time.Second

// idle tells whether the session is lost, and nothing depends on its coming back.
func (d *Device) idle() bool { return d.core.life.phase() == phaseStranded && d.core.empty() }

// depart ends a device that is idle. Its window file stays live: RESUME then tells the next
// run that nobody else had the region. Marked as drained it would say that it was given back.
func (d *Device) depart(ctx context.Context) error {
	d.core.life.step(eventLeave, nil).say()
	for _, g := range d.legs {
		g.die()
		<-g.kept
	}
	if d.core.life.phase().up() { // it came back in this moment
		d.noteDrained()
		return d.leave(ctx, true)
	}
	return errors.Join(ErrAway, d.leave(ctx, false))
}

// noteDrained notes in the window file that everything is flushed. The next start must find a failure all the same.
func (d *Device) noteDrained() {
	if d.file == nil {
		return
	}
	d.file.update(func(h *header) {
		if h.State != windowFailed {
			h.State = windowDrained
		}
	})
}

// cutPatience is how long a connection that was cut may take to give its chunks back.
const cutPatience = 10 * time.Second

// release gives back what Dial took, as far as it got.
func (d *Device) release() error {
	if d.core != nil && d.core.copies != nil {
		d.core.copies.adding <- struct{}{}
		defer func() { <-d.core.copies.adding }()
	}
	var errs []error
	d.ending.Wait()
	d.endTerm(d.yields)
	for _, g := range slices.Concat(d.legs, d.spares) {
		errs = append(errs, g.close())
	}
	if d.core != nil {
		if d.core.copies != nil {
			errs = append(errs, d.core.copies.memory.free())
		}
		errs = append(errs, d.core.window.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), cutPatience)
	defer cancel()
	for _, a := range []*backend.Arena{d.arenas.Write, d.arenas.Read} {
		if a == nil {
			continue
		}
		// Whoever holds a chunk reads from it, or receives into it.
		if all := a.Budget(); all.Take(all.Total(), ctx.Done()) == nil {
			all.Give(all.Total())
		}
		err := a.Close()
		if err != nil && d.file != nil && a == d.arenas.Write {
			err = errors.Join(err, d.file.abandon()) // somebody holds a chunk of it still
		}
		errs = append(errs, err)
	}
	if failed, asked := d.startFailed(); failed {
		errs = append(errs, d.undoStart(asked))
	}
	if d.file != nil {
		if h := d.file.header(); h.State == windowDrained {
			errs = append(errs, d.file.shrink())
		}
		errs = append(errs, d.file.Close())
	}
	for _, c := range d.claims {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// leave gives the session back, if all is flushed, and ends the device.
func (d *Device) leave(ctx context.Context, flushed bool) error {
	err := d.core.leave(ctx, flushed)
	if d.file != nil && !flushed {
		// bury frees chunks for clients that wait. What they receive must not reach the file.
		err = errors.Join(err, d.file.detach())
	}
	t := d.core.end(err, func(transition) {})
	d.core.bury()
	t.say(slog.String("region", d.cfg.Region))
	return err
}

// leave gives the sessions back, if all is flushed, and ends the legs' goroutines and connections.
func (x *core) leave(ctx context.Context, flushed bool) (err error) {
	closes := func(*leg) bool { return flushed }
	if k := x.copies; k != nil {
		if flushed {
			k.catchUp(ctx)
			k.settle(ctx)
		}
		asks := ctx
		if !flushed {
			var over context.CancelFunc
			asks, over = context.WithCancel(ctx)
			over()
		}
		k.end(asks)
		if flushed && k.view.Pending {
			err = ErrAway
		}
		closes = func(g *leg) bool {
			return flushed && !k.view.Pending && (k.view.Active.Has(g.slot) || g.follow.on) && g.up.Load()
		}
	}
	for _, g := range x.legs {
		close(g.beat)
		<-g.beatEnded
	}
	x.life.step(eventLeave, nil)
	for _, g := range x.legs {
		g.die()
		<-g.kept
	}
	closed, unheard := false, true
	var failed error
	for _, g := range x.legs {
		if closes(g) { // not a leg that is half copied: a clean end would make it a source
			e := g.giveBack(ctx)
			failed, closed = errors.Join(failed, e), closed || e == nil
			unheard = unheard && (silent(e) || ctx.Err() != nil && errors.Is(e, context.Cause(ctx)))
		}
		g.hangUp()
	}
	if x.copies != nil && flushed && !closed && failed == nil && x.failed() == nil {
		err = ErrAway // the session of each member that could be told is lost
	}
	if failed != nil && closed { // one member that says so makes it a clean end (mirror §4.3)
		x.life.log.Warn("a target of the mirror was not told of the end", slog.Any("error", failed))
		failed = nil
	}
	if failed != nil && unheard && x.failed() == nil {
		failed = fmt.Errorf("%w: %w", ErrAway, failed)
	}
	return errors.Join(err, failed)
}

// giveBack sends CLOSE on the session's last lane, for it ends the others' connections.
// A session that turns out to be lost is resumed for it.
func (g *leg) giveBack(ctx context.Context) error {
	patience := closeTimeout
	if g.cfg.LossTimeout > 0 {
		patience = min(patience, g.cfg.LossTimeout)
	}
	for began, attempts := time.Now(), 0; ; {
		for _, l := range g.lanes[1:] {
			l.abort(backend.ErrClosed)
			<-l.done
		}
		l := g.lanes[0]
		m := wire.Close{Epoch: g.granted.Epoch}
		l.send(tagControl, m.Append(nil))
		timeout := time.AfterFunc(closeTimeout, func() { l.abort(rdma.ErrTimeout) })
		cancelled := context.AfterFunc(ctx, func() { l.abort(context.Cause(ctx)) })
		<-l.done
		timeout.Stop()
		cancelled()
		err := g.cut().cause
		if errors.Is(l.broken, errSessionClosed) {
			return nil
		}
		for ; err != nil && g.core.failed() == nil; attempts++ {
			var end *lastingError
			left := patience - time.Since(began)
			if left <= 0 || ctx.Err() != nil || errors.As(err, &end) || errors.Is(err, errContents) {
				break
			}
			if attempts > 0 { // the target may be busy with the RESUME that the keeper gave up
				select {
				case <-time.After(min(left, backoff(attempts-1, g.cfg.Jitter()))):
				case <-ctx.Done():
				}
			}
			_, err = g.resume(ctx, left)
		}
		if g.givenBack(err) {
			return nil
		}
		if ctx.Err() != nil && silent(err) {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("give the lease back: %w", err)
		}
	}
}

// silent reports whether err, of giveBack, says nothing of what the region has: its target was not reached, or
// has no time now.
func silent(err error) bool {
	var end *lastingError
	var refused *RefusedError
	switch {
	case errors.As(err, &end):
		return false
	case errors.As(err, &refused):
		return refused.said.Code == wire.CodeBusy && !refused.Held()
	}
	return errors.Is(err, rdma.ErrLost) || errors.Is(err, rdma.ErrTimeout) || errors.Is(err, errStopped)
}

// givenBack tells whether err, of a RESUME after CLOSE, means that only the answer to
// CLOSE was lost: the region is clean, in our epoch.
func (g *leg) givenBack(err error) bool {
	var r *RefusedError
	back := errors.As(err, &r) && r.said.Code == wire.CodeNotOwner && r.said.UUID == g.granted.UUID && r.said.Epoch == g.granted.Epoch && r.said.Flags&wire.OpenedUnclean == 0
	if back {
		g.marked(r.said.Mark)
	}
	return back
}

// fail makes the device's failure final and answers all that waits for a barrier.
// The first cause stays.
func (d *Device) fail(cause error) {
	t := d.core.end(cause, func(t transition) {
		if t.to == phaseFailed && d.file != nil && (len(d.cfg.Members) == 0 || d.served.Load()) {
			d.file.fail(cause) // else nobody was answered, and the next start finds what this one had found
		}
	})
	if t.first() && t.to == phaseFailed {
		t.say(slog.Uint64("unflushed_bytes", d.Unflushed()))
		d.ending.Go(func() { d.endTerm(true) }) // a standby need not wait for this process to end
	}
}
