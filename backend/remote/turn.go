package remote

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

const (
	// turnLength is how long a start that cannot begin keeps the lease at the arbiter. Then another host may have
	// it, which may reach more members (mirror §4.8).
	turnLength = 10 * time.Second
	// turnPause is the pause between two looks at the members while the start has no lease, less up to a half. A host
	// that waits for the lease gets it sooner.
	turnPause = 2 * time.Second
	// turnAgain is after how long the next turn may begin in any case, less up to a half: the arbiter may know what
	// lets this start begin. It is several turns long, so that hosts which cannot begin do not keep the lease among
	// themselves.
	turnAgain = time.Minute
)

// join waits for the lease at the arbiter, and begins a turn.
func (b *beginning) join(ctx context.Context, set [16]byte) error {
	err := b.device.join(ctx, set)
	b.waited, b.turn = "", time.Time{} // the status has told of another host meanwhile
	return err
}

// await pauses before another look at the members, because the start cannot begin by decision. At the end of its
// turn it lets another host have one.
func (b *beginning) await(ctx context.Context, n int, decision *mirror.Decision) error {
	if b.turnOver(decision) {
		return b.yield(ctx)
	}
	return b.pause(ctx, n, decision.Why)
}

// pause waits before another look at the members, after n of them.
func (b *beginning) pause(ctx context.Context, n int, why string) error {
	return b.rest(ctx, backoff(n, b.device.cfg.Jitter()), why)
}

// rest waits, and tells why.
func (b *beginning) rest(ctx context.Context, wait time.Duration, why string) error {
	full := why + b.unreached()
	if why != b.said {
		b.said = why
		b.device.log.Warn("the mirror does not begin yet", slog.String("why", full))
	}
	if waits := b.device.cfg.Waits; waits != nil && full != b.waited {
		b.waited = full
		waits(full)
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the mirror does not begin: %s: %w", full, context.Cause(ctx))
	}
}

// turnOver notes that the start cannot begin because of decision, and reports whether its turn is over. It is not
// while the arbiter does not answer: no other host would learn that the lease is free. Nor is it once the start has opened
// a member: another host that does not reach it would take the same life number, and that member would refuse it for ever.
// Nor is it in the wait that an operator bounds by Config.AcceptLoss.
func (b *beginning) turnOver(decision *mirror.Decision) bool {
	if b.turn.IsZero() {
		b.turn = time.Now()
	}
	opened := slices.Max(b.life) != 0
	bounded := decision.GoesBack && b.device.cfg.AcceptLoss
	return b.found.Asked && !opened && !bounded && time.Since(b.turn) >= turnLength
}

// yield gives the lease at the arbiter back. It waits for the lease again once this start reaches members that would let a
// life begin. The caller has opened no member. What the arbiter has said until then begins no life any more, because
// another host may have had the mirror.
func (b *beginning) yield(ctx context.Context) error {
	d, known := b.device, b.found.Arbiter
	d.endTerm(true)
	d.term = nil
	b.found.Asked, b.found.Arbiter, b.gained, b.waits = false, persist.Record{}, 0, time.Time{}
	random := func(most time.Duration) time.Duration { return most - time.Duration(d.cfg.Jitter()*float64(most)/2) }
	next := b.expects(known)
	for again := time.Now().Add(random(turnAgain)); ; {
		why := next.Why + "; meanwhile another host may have the lease at the arbiter"
		if err := b.rest(ctx, random(turnPause), why); err != nil {
			return err
		}
		b.probe(ctx)
		next = b.expects(known)
		reached := next.Newest != (persist.Record{})
		if next.Outcome != mirror.Wait || reached && time.Until(again) <= 0 {
			return b.join(ctx, d.set)
		}
	}
}

// expects decides as if the arbiter held what it held last. Nothing begins by that. A member that knows a newer
// generation makes the decision a refusal, so the arbiter is asked then, too.
func (b *beginning) expects(known persist.Record) mirror.Decision {
	found := b.found
	found.Asked, found.Arbiter = true, known
	return mirror.Decide(found)
}
