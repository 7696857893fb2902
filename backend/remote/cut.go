package remote

import (
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// The barrier that was in flight when the connections broke may have become durable all the
// same. A sync at the target goes on, and the grant of the next session waits for it. The target
// then tells how far each lane had come. A replay of what that barrier covers would make all its
// pages dirty again, and the next sync would take as long as this one.
//
//	broken: current ──► broken ──RESUME, JOIN──► durable on all lanes that owed it? ──► retired
//	                     └── another barrier begins: the target tells of that one
//
// This is not a late answer of a destroyed connection, which never counts. The target says it in the
// new session, after all of the old session has ended.

// resumeLocked prepares for a leg's session that goes on, after interruptLocked. durable reports
// whether the target has made its share of a barrier durable; in doubt nothing counts. If that holds
// for all streams that owed the broken barrier, it is retired and returned: the caller answers and
// frees it. Of a mirror nothing counts: the other legs may not have it, or have let it go.
//
// A target tells the number of a barrier, and the session in which it was sent. This run sends a
// number once, and another run of the initiator, which adopts a window and counts from one, has
// no session of that epoch.
func (c *groupCommit) resumeLocked(leg int, doubt bool, durable func(stream int, epoch, seq uint64) bool) *barrier {
	c.doubts &^= persist.Member(leg)
	if doubt {
		c.doubts |= persist.Member(leg)
	}
	b := c.broken
	if b == nil || doubt || c.env.legCount() > 1 || c.env.failed() != nil {
		return nil
	}
	for i := range b.shares {
		if b.shares[i].owes != 0 && !durable(i, b.epoch, b.seq) {
			return nil
		}
	}
	c.broken = nil
	if b.asked {
		b.ops = append(b.ops, c.listed...)
		c.clearListedLocked()
	}
	c.retireLocked(b)
	return b
}

// durableOn tells for each lane whether the target has made a barrier durable, by what OPENED and
// JOINED said of the last one.
func durableOn(conns []dialed) func(lane int, epoch, seq uint64) bool {
	return func(lane int, epoch, seq uint64) bool {
		return conns[lane].durable == wire.Durable{Epoch: epoch, Barrier: seq}
	}
}
