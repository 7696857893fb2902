package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// An opening is what a start knows of the region before that is granted.
type opening struct {
	expect  uint64 // the epoch that OPEN names; 0: whatever the region is in
	strict  bool   // what the run before left is in that epoch: no other will do
	asked   bool   // an OPEN of that epoch may have been granted, and its answer lost
	met     bool   // the target was reached once
	unclean bool   // the session before did not close
}

// insist tries until it succeeds, fails for good, or ctx ends: a start that loses its
// connection tries again, as a session does. Each try has its own time, for an answer may
// never come.
func (g *leg) insist(ctx context.Context, try func(context.Context) error) error {
	ctx, done := g.patient(ctx)
	defer done()
	said := ""
	for n := 0; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, attemptLimit(n))
		err := try(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !g.passes(err) {
			return err
		}
		if text := err.Error(); text != said {
			said = text
			g.log.Warn("the target does not open the region yet: trying again",
				zap.String("region", g.cfg.Region), zap.String("target", g.cfg.Addr), zap.Int("attempts", n+1), zap.Error(err))
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

// A replaying is how far an adopted window has come. A replay that begins anew on another
// connection goes on only where it is further than all before: else one that is lost again
// and again would never end.
type replaying struct {
	barriers uint64 // that had succeeded
	began    uint64 // what had been sent on the present connections then
	furthest uint64 // beyond that
	step     step
}

// stands is how long the replay has not come any further: sent is how many bytes and zeroes
// of it the transport has done with on the present connections.
func (r *replaying) stands(sent, barriers, doubtLeft uint64, now int64) time.Duration {
	if barriers != r.barriers {
		r.barriers, r.began, r.furthest = barriers, sent, 0
	}
	if sent < r.began {
		r.began = 0 // other connections
	}
	r.furthest = max(r.furthest, sent-r.began)
	return r.step.stays(progress{seq: 1 + barriers, moved: r.furthest, doubtLeft: doubtLeft}, now)
}

// watchReplay fails the device of g, which adopts a window, when its replay stands still for the patience
// of the start, until done. A barrier that the target says it is at takes the time that its
// disk takes, as in a session: a start that gave up would make all its pages dirty again.
func (g *leg) watchReplay(done <-chan struct{}) {
	patience := g.cfg.OpenTimeout
	if patience == 0 {
		return // the context alone bounds it
	}
	look := time.NewTicker(max(patience/16, time.Millisecond))
	defer look.Stop()
	var r replaying
	for {
		select {
		case <-done:
			return
		case <-look.C:
		}
		var sent uint64
		c := &g.core.commit
		c.mu.Lock()
		atTarget := c.current != nil && g.pulse.barrier.Load() == c.current.seq
		for _, l := range g.lanes {
			l.mu.Lock()
			sent += l.back.bytes + l.zeroes.seq - uint64(l.zeroes.n)
			l.mu.Unlock()
		}
		c.mu.Unlock()
		if atTarget {
			r.step = step{}
			continue
		}
		if r.stands(sent, g.core.commit.succeeded(), g.pulse.doubt.Load(), g.pulse.clock()) > patience {
			g.device.fail(fmt.Errorf("the replay of the window has come no further for %v: %w", patience, rdma.ErrTimeout))
			return
		}
	}
}

// open obtains the session: what was granted, and a connection for each lane.
func (g *leg) open(ctx context.Context) (o wire.Opened, conns []dialed, err error) {
	err = g.insist(ctx, func(ctx context.Context) (err error) {
		o, conns, err = g.tryOpen(ctx)
		return err
	})
	return o, conns, err
}

// passes tells whether err of a start may go away by itself. Where no target ever answered
// the address may be wrong: whoever starts pmnbd should hear of that at once. One that has
// answered in this start, and does not now, is restarting, or the network is at fault.
func (g *leg) passes(err error) bool {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Code == wire.CodeBusy && refused.Holder == [16]byte{} // a grant is under way
	}
	var reject *rdma.RejectError
	return g.opening.met && (errors.Is(err, rdma.ErrLost) || errors.Is(err, rdma.ErrTimeout) || errors.As(err, &reject))
}

// handshake sends OPEN until it is granted. The first one asks for the epoch; a
// refusal tells the region's UUID, too, so that its lock is taken before anything
// that the grant would end.
//
// The answer to an OPEN can be lost, and the next OPEN is then refused: this initiator
// already holds the region, one epoch on. Only RESUME tells whether that is this very run.
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
		g.opening.asked = g.opening.asked || msg.Epoch != 0 && t != wire.TypeRefused
		if err != nil {
			return opened, fmt.Errorf("OPEN: %w", err)
		}
		if t == wire.TypeOpened {
			g.opening.unclean = opened.Flags&wire.OpenedUnclean != 0
			return opened, chosen(msg.Methods, &opened)
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
				return opened, &RefusedError{Region: g.cfg.Region, Refused: late}
			}
			g.opening.asked = false // another run of this id has it
		}
		if g.opening.expect != 0 && g.opening.strict {
			break // what was left is judged by its epoch: the next start does that
		}
		g.takesOver(&refused)
		if err := g.device.takeClaim(refused.UUID); err != nil {
			return opened, err
		}
		g.opening.expect, g.opening.unclean = refused.Epoch, refused.Flags&wire.OpenedUnclean != 0
	}
	return opened, &RefusedError{Region: g.cfg.Region, Refused: refused}
}

// regain sends m as a RESUME: it is granted if an OPEN of its owner was.
func (g *leg) regain(ctx context.Context, c *dialed, m wire.Open, opened *wire.Opened, refused *wire.Refused) (wire.Type, error) {
	m.Flags &^= wire.OpenTakeover
	t, err := g.petition(ctx, c, &m, true, opened, refused)
	if err != nil {
		return 0, fmt.Errorf("RESUME: %w", err)
	}
	return t, nil
}

// askWhose asks by RESUME whether the owner in h was granted the region by an OPEN whose
// answer it never noted. If so, nobody else has had it since.
func (g *leg) askWhose(ctx context.Context, h *header) (is answer, err error) {
	err = g.insist(ctx, func(ctx context.Context) error {
		if err := g.openDomain(ctx); err != nil {
			return err
		}
		c, err := g.connect(ctx, 0, nil)
		if err != nil {
			return err
		}
		defer func() { _ = c.conn.Close() }() // open makes its own
		msg := g.request(h.Owner)
		msg.Epoch = h.Epoch
		if msg.Methods, err = g.methods(c.conn); err != nil {
			return err
		}
		var opened wire.Opened
		var refused wire.Refused
		t, err := g.regain(ctx, &c, msg, &opened, &refused)
		if err != nil {
			return err
		}
		switch {
		case t == wire.TypeOpened:
			is = answerGranted
		case refused.Code == wire.CodeNotOwner:
			is = answerRefused
		default:
			return &RefusedError{Region: g.cfg.Region, Refused: refused}
		}
		return nil
	})
	return is, err
}
