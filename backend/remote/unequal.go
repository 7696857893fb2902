package remote

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"pmnbd/internal/mirror"
)

// A FLUSH has no answer while a member of F is not equal, and that can take a resync of hours
// (mirror §4.4). Barriers go on meanwhile, so everything that clients wrote is on all members of F. A
// device that is being closed does not wait for the resync: without CLOSE the next start compares the
// members in full, which it would have to go on with anyway.

// ErrUnequal means that the device of a mirror was closed while a member that a FLUSH waits for had not
// been compared with the others to the end. Nothing is lost.
var ErrUnequal = errors.New("the members of the mirror were still being compared, so they were not told of the end; nothing is lost: all that was acknowledged is on the members in sync, and the next start compares them in full")

// unequalLook is how often somebody looks whether only that keeps a FLUSH waiting.
const unequalLook = 100 * time.Millisecond

// enoughLocked returns the view with a generation of the equal members alone, for a FLUSH that waits (mirror §4.4). ok is
// false while one of them is away, because the generation would wait for that one, although others of F may have
// everything sooner. It is false, too, while no generation may begin. The caller holds commit.mu.
func (k *copies) enoughLocked() (next mirror.View, ok bool) {
	next, ok = k.view.Enough()
	return next, ok && next.Record.F&k.awayLocked(0) == 0 && k.office.mayChangeLocked()
}

// unequal reports whether all that was written is on all of F, and a FLUSH waits for a resync all the
// same. soon is set if it need not: enough members are equal, and one of them is away, or the arbiter has not answered.
func (x *core) unequal() (is, soon bool) {
	k := x.copies
	if k == nil || !x.empty() {
		return false, false
	}
	c := &x.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, enough := k.enoughLocked(); enough || !k.view.Serves() || k.view.Pending || k.view.Flushes() {
		return false, false
	}
	_, soon = k.view.Enough()
	return true, soon
}

// An unequalWait ends a wait that unequal has made too long.
type unequalWait struct {
	core   *core
	ticker *time.Ticker // nil without a mirror
	since  time.Time    // when it began; zero: there is none
	// How long it may take, and how long if the members could be equal enough soon: until one that is away is let go, and
	// the arbiter has had time to answer.
	patience, soon time.Duration
}

// awaitEqual waits for so long for a FLUSH that waits for a resync.
func (x *core) awaitEqual(patience time.Duration) *unequalWait {
	w := &unequalWait{core: x, patience: patience}
	if k := x.copies; k != nil {
		w.ticker, w.soon = time.NewTicker(unequalLook), max(patience, k.timeout+departAfter)
		if k.office.term != nil {
			w.soon += askTimeout
		}
	}
	return w
}

// look tells when to call lasts.
func (w *unequalWait) look() <-chan time.Time {
	if w.ticker == nil {
		return nil
	}
	return w.ticker.C
}

// lasts reports whether the wait has been too long.
func (w *unequalWait) lasts(now time.Time) bool {
	is, soon := w.core.unequal()
	if !is {
		w.since = time.Time{}
		return false
	}
	if w.since.IsZero() {
		w.since = now
	}
	patience := w.patience
	if soon {
		patience = w.soon
	}
	return now.Sub(w.since) >= patience
}

func (w *unequalWait) stop() {
	if w.ticker != nil {
		w.ticker.Stop()
	}
}

// endUnequal ends the device without CLOSE. flushed takes the result of its last flush.
func (d *Device) endUnequal(ctx context.Context, flushed <-chan error) error {
	d.log.Warn("the device ends although members of its mirror are still being compared: the next start compares them in full",
		slog.String("region", d.cfg.Region))
	err := d.leave(ctx, false)
	if cause := <-flushed; cause != nil { // leave has ended it
		d.log.Debug("the end of the device ended the last flush", slog.Any("error", cause))
	}
	return errors.Join(ErrUnequal, err, d.release())
}
