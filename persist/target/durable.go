package target

import "pmnbd/persist/wire"

// A sync continues when the session's connections break, and a grant waits for it. Its
// acknowledgement may never reach the initiator. So the target tells an owner that
// resumes the session which barrier of each lane became durable last. The owner need not
// send again what that barrier covered, which would dirty all its pages for the next
// sync. A session that is granted and never used, because its owner was gone again,
// changes nothing here.

// noteDurable notes that barrier seq of c's lane is durable. A grant that destroys the
// session waits until this has happened.
func (e *export) noteDurable(c *conn, seq uint64) {
	e.mu.Lock()
	e.durable[c.lane] = wire.Durable{Epoch: c.session.epoch, Barrier: seq}
	e.mu.Unlock()
}

// lastDurable returns the last durable barrier of the lane with that number.
func (e *export) lastDurable(lane uint16) wire.Durable {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.durable[lane]
}
