package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// An opening is what a start knows of the region before the target grants it.
type opening struct {
	expect  uint64 // the epoch that OPEN names; 0: whatever the region is in
	strict  bool   // no other epoch will do: the previous run left its window in that one
	asked   bool   // an OPEN of that epoch may have made this run the owner: its answer was lost, or refused too late
	met     bool   // the target has answered in this start
	unclean bool   // the previous session did not close
}

// insist tries until it succeeds, fails for good, or ctx ends: a start that loses its
// connection tries again, as a session does. Each try has a time limit of its own, because an
// answer may never come.
func (g *leg) insist(ctx context.Context, try func(context.Context) error) error {
	ctx, done := g.patient(ctx)
	defer done()
	said := ""
	for n := 0; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, attemptLimit(n))
		err := try(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !g.passes(n, err) {
			return err
		}
		if text := err.Error(); text != said {
			said = text
			g.log.Warn("the target does not open the region yet: trying again",
				slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr), slog.Int("attempts", n+1), slog.Any("error", err))
		}
		select {
		case <-time.After(backoff(n, rand.Float64())):
		case <-ctx.Done():
			return err
		}
	}
}

// patient bounds ctx by Config.OpenTimeout.
func (g *leg) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if g.cfg.OpenTimeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, g.cfg.OpenTimeout)
}

// open obtains the session: what was granted, and a connection for each lane.
func (g *leg) open(ctx context.Context) (o wire.Opened, conns []dialed, err error) {
	err = g.insist(ctx, func(ctx context.Context) (err error) {
		o, conns, err = g.tryOpen(ctx)
		return err
	})
	return o, conns, err
}

// passes tells whether the error of attempt n of a start, the first of which is 0, may go away by
// itself. If no target has ever answered, the address may be wrong, and the start fails at once, or
// at the second attempt if nobody said no: a busy host may take longer than the first one may. If
// one has answered in this start and does not now, it restarts, or the network is at fault.
func (g *leg) passes(n int, err error) bool {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.said.Code == wire.CodeBusy && refused.said.Holder == [16]byte{} // a grant is under way
	}
	if n == 0 && errors.Is(err, rdma.ErrTimeout) {
		return true
	}
	var reject *rdma.RejectError
	return g.opening.met && (errors.Is(err, rdma.ErrLost) || errors.Is(err, rdma.ErrTimeout) || errors.As(err, &reject))
}

// handshake sends OPEN until the target grants it. The first OPEN asks for the epoch. Its refusal
// also tells the region's UUID, so that this process has the region's lock before a grant ends
// another session.
//
// The answer to an OPEN can be lost. The target then refuses the next OPEN, because this initiator
// already holds the region, one epoch on. Only RESUME tells whether that was this very run.
// It sets no doubt, either.
func (g *leg) handshake(ctx context.Context, c *dialed) (opened wire.Opened, err error) {
	if g.owner.ID == [16]byte{} {
		if err := g.drawOwner(); err != nil {
			return opened, err
		}
	}
	msg := g.request(g.owner)
	if msg.Methods, err = g.methods(c.conn); err != nil {
		return opened, err
	}
	var refused wire.Refused
	for range openTries {
		msg.Epoch = g.opening.expect
		t, err := g.petition(ctx, c, &msg, false, &opened, &refused)
		g.opening.asked = g.opening.asked || msg.Epoch != 0 && (t != wire.TypeRefused || heldInVain(&refused, g.owner.ID, msg.Epoch))
		if err != nil {
			return opened, fmt.Errorf("OPEN: %w", err)
		}
		if t == wire.TypeOpened {
			g.opening.unclean = opened.Flags&wire.OpenedUnclean != 0
			return opened, chosen(msg.Methods, &opened)
		}
		if refused.Code == wire.CodeLife && refused.Life == g.life && refused.Holder == g.cfg.ID {
			// A later attempt of a mirror's life: the answer to the first one was lost, or refused too late.
			var late wire.Refused
			t, err := g.regain(ctx, c, msg, &opened, &late)
			if err != nil {
				return opened, err
			}
			if t == wire.TypeOpened {
				return opened, chosen(msg.Methods, &opened)
			}
			if late.Code != wire.CodeNotOwner { // it is this life's: only late says what is wrong there
				return opened, &RefusedError{Region: g.cfg.Region, said: late}
			}
		}
		if refused.Code != wire.CodeEpoch {
			break
		}
		if g.opening.asked && heldSince(&refused, g.cfg.ID, g.opening.expect) {
			var late wire.Refused
			t, err := g.regain(ctx, c, msg, &opened, &late)
			if err != nil {
				return opened, err
			}
			if t == wire.TypeOpened {
				return opened, chosen(msg.Methods, &opened)
			}
			if late.Code != wire.CodeNotOwner {
				return opened, &RefusedError{Region: g.cfg.Region, said: late}
			}
			g.opening.asked = false // another run of this id has the region
		}
		if g.opening.expect != 0 && g.opening.strict {
			break // the epoch is not the window's any more: the next start decides what that means
		}
		if refused.Holder != g.cfg.ID {
			g.takesOver(&refused)
		}
		if err := g.device.takeClaim(refused.UUID); err != nil {
			return opened, err
		}
		g.opening.expect, g.opening.unclean = refused.Epoch, refused.Flags&wire.OpenedUnclean != 0
	}
	return opened, &RefusedError{Region: g.cfg.Region, said: refused}
}

// heldInVain reports whether the target refused an OPEN of that epoch after it had made id the region's owner: it could
// not register the region with its RDMA device. The region then is held, as after a grant whose answer was lost.
func heldInVain(r *wire.Refused, id [16]byte, epoch uint64) bool {
	return (r.Code == wire.CodeNotSupported || r.Code == wire.CodeMethod) && heldSince(r, id, epoch)
}

// regain sends m as a RESUME. The target grants it if it had granted an OPEN of the same owner.
func (g *leg) regain(ctx context.Context, c *dialed, m wire.Open, opened *wire.Opened, refused *wire.Refused) (wire.Type, error) {
	m.Flags &^= wire.OpenTakeover
	t, err := g.petition(ctx, c, &m, true, opened, refused)
	if err != nil {
		return 0, fmt.Errorf("RESUME: %w", err)
	}
	return t, nil
}
