package remote

import (
	"context"
	"errors"
	"fmt"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// callSlot is the buffer of a lane's sends in which a call travels: behind those of barriers.
const callSlot = maxMessages - 1

// calls are the requests that a leg makes of its target beside the queues: RECORD and BITS, one at
// a time, on lane 0. Its answer comes to the goroutine that waits in call.
type calls struct {
	turn chan struct{} // holds a token during a call
	seq  uint64        // of the last call, for the goroutine whose turn it is

	// Guarded by the mutex of lane 0.
	request []byte      // to send ahead of the queue
	answer  chan []byte // takes the answer, or is closed with the connection; nil: nobody waits
	sent    bool        // the request has left its buffer
	said    []byte      // the answer, while the request has not
}

// errNotAsked: what was to be sent is not for the target now.
var errNotAsked = errors.New("the members of the mirror change")

// call sends the message that build makes of its number, and returns the target's answer. It fails if
// the connection is lost, if ctx ends, or if session is over: what somebody decided of a member in one
// generation of its leg may be wrong in the next. It sends nothing if build returns nil. build runs in the call's turn:
// no RECORD is under way to the target then, and none comes to it before the answer.
func (g *leg) call(ctx context.Context, session uint64, build func(seq uint64) []byte) ([]byte, error) {
	q, l := &g.calls, g.lanes[0]
	select { // no mutex: an earlier call may wait for as long as its own ctx allows
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	q.seq++
	request, answer := build(q.seq), make(chan []byte, 1)
	if request == nil {
		return nil, errNotAsked
	}
	l.mu.Lock()
	if !l.connected || l.broken != nil || g.generation.Load() != session {
		l.mu.Unlock()
		return nil, rdma.ErrLost
	}
	q.request, q.answer, q.sent, q.said = request, answer, false, nil
	l.urgent = true
	l.mu.Unlock()
	l.post()
	select {
	case msg, ok := <-answer:
		if !ok {
			return nil, rdma.ErrLost
		}
		return msg, nil
	case <-ctx.Done():
		l.mu.Lock()
		q.answer = nil
		l.mu.Unlock()
		l.abort(context.Cause(ctx)) // its answer must not be taken for that of another call
		return nil, context.Cause(ctx)
	}
}

// answeredLocked takes the answer to a call.
func (q *calls) answeredLocked(msg []byte) error {
	if q.answer == nil || q.said != nil {
		return fmt.Errorf("%w: an answer that nobody waits for", rdma.ErrLost)
	}
	q.said = append([]byte(nil), msg...)
	q.deliverLocked()
	return nil
}

// leftLocked notes that the request has left its buffer.
func (q *calls) leftLocked() {
	q.sent = true
	q.deliverLocked()
}

func (q *calls) deliverLocked() {
	if q.sent && q.said != nil && q.answer != nil {
		q.answer <- q.said // it has room
		q.answer = nil
	}
}

// lostLocked ends a call with its connection.
func (q *calls) lostLocked() {
	if q.answer != nil {
		close(q.answer)
		q.answer = nil
	}
	q.request = nil
}

// setRecord makes record durable at the target, with all bits of the members in fill set. Both were decided
// in session.
func (g *leg) setRecord(ctx context.Context, session uint64, record persist.Record, fill persist.Members) error {
	var seq uint64
	msg, err := g.call(ctx, session, func(n uint64) []byte {
		seq = n
		m := wire.Record{Seq: n, Fill: fill, Record: record}
		return m.Append(nil)
	})
	if err != nil {
		return fmt.Errorf("write the record of the mirror: %w", err)
	}
	var ack wire.Recorded
	if err := ack.Decode(msg); err != nil || ack.Seq != seq {
		g.lanes[0].abort(fmt.Errorf("%w: RECORD %d was answered with %d: %w", rdma.ErrLost, seq, ack.Seq, errors.Join(wire.ErrMalformed, err)))
		return rdma.ErrLost
	}
	c := &g.core.commit
	c.mu.Lock()
	g.record = record
	c.answers[g.slot]++
	c.mu.Unlock()
	return nil
}
