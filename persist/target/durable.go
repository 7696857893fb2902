package target

import "pmnbd/persist/wire"

// What a session's connections got done, and could perhaps not say any more: a sync goes on
// when they break, and a grant waits for it. The owner that resumes the session is told the
// last barrier of each lane that became durable. It then need not send again what that one
// covered, which would make all its pages dirty for the next sync. Sessions that were granted
// and not used, because the owner was gone again, change nothing of it.

// noteDurable notes that barrier seq of c's lane is durable. A grant that destroys the session
// has waited for this.
func (e *export) noteDurable(c *conn, seq uint64) {
	e.mu.Lock()
	e.durable[c.lane] = wire.Durable{Epoch: c.session.epoch, Barrier: seq}
	e.mu.Unlock()
}

// lastDurable is the last barrier of a lane of that number that became durable.
func (e *export) lastDurable(lane uint16) wire.Durable {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.durable[lane]
}
