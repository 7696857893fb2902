package target

import "pmnbd/persist/wire"

// A sync goes on when the session's connections break, and a grant waits for it. Its answer may
// never reach the initiator. So the target tells the owner that resumes the session which
// barrier of each lane became durable last. The owner then need not send again what that barrier
// covered, which would make all its pages dirty for the next sync. A session that is granted and
// never used, because its owner was gone again, changes nothing here.

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
