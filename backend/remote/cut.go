package remote

import (
	"go.uber.org/zap"

	"pmnbd/persist/wire"
)

// The barrier that was in flight when the connections broke may have become durable all the
// same: a sync at the target goes on, and the grant that the next session needs waits for it.
// The target tells how far each lane had got. To replay what that barrier covers would make
// all its pages dirty again, and the next sync as long as this one.
//
//	cut: current ──► cut ──RESUME, JOIN──► durable on all lanes that owed it? ──► retired
//	                  └── another barrier begins: the target tells of that one
//
// This is no late answer of a connection that was destroyed, which never counts: the target
// says so in the new session, after it has joined everything of the one before.

// durable reports whether the target has made the barrier durable that was cut off: g and
// conns are what it told of each lane. The number counts with the epoch of the session in
// which the barrier went out: this run sends a number once, and another run of the initiator,
// which adopts a window and counts from one, has no session of that epoch. As long as there is
// doubt nothing counts. b.mu is held.
func (b *barriers) durable(g *wire.Opened, conns []dialed) bool {
	c := b.cut
	if c == nil || g.Flags&wire.OpenedDoubt != 0 {
		return false
	}
	for i, owes := range c.owes {
		if owes && conns[i].durable != (wire.Durable{Epoch: c.epoch, Barrier: c.seq}) {
			return false
		}
	}
	return true
}

// retireCut retires the barrier that was cut off, and gives it its ops back. b.mu is held.
func (d *Device) retireCut() *barrier {
	b := &d.barriers
	c := b.cut
	b.cut = nil
	if c.asked {
		c.ops = append(c.ops, b.listed...)
		b.clearListed()
	}
	d.retire(c)
	d.log.Info("what was being made durable when the session was lost is durable", zap.String("region", d.cfg.Region), zap.Uint64("barrier", c.seq))
	return c
}
