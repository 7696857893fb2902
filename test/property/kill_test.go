package property

import (
	"bytes"
	"errors"
	"os"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pmnbd/backend"
	"pmnbd/backend/remote"
)

// An interruption ends a process that is adopting a window, or ends the target meanwhile.
type interruption struct {
	target bool
	at     int // at which step of the process, or at which write-back of the target
	holds  bool
	crash  crash
}

// kill kills the process, now or at one of the next steps that it takes for a batch or for its
// Close. Its messages are lost or arrive late. The target may crash while the process is away.
// Then another process adopts its window, at the first try or later. Or the next process starts
// without the window, or another initiator gets the region first.
func (m *crashes) kill(rt *rapid.T) {
	m.room(rt)
	at := rapid.IntRange(0, 40).Draw(rt, "at step") // 0: between two batches
	closing := rapid.IntRange(0, 3).Draw(rt, "closing") == 0
	late := rapid.SampledFrom([]string{"lost", "before", "after"}).Draw(rt, "what was on its way")
	away := rapid.IntRange(0, 2).Draw(rt, "target") > 0
	c := drawCrash(rt)
	next := rapid.SampledFrom([]string{"adopts", "adopts", "adopts", "accepts loss", "another id"}).Draw(rt, "the next")
	lanes := rapid.IntRange(1, 3).Draw(rt, "lanes")
	var interruptions []interruption
	for range rapid.IntRange(0, 2).Draw(rt, "interruptions") {
		interruptions = append(interruptions, interruption{
			rapid.Bool().Draw(rt, "of the target"), rapid.IntRange(1, 25).Draw(rt, "at"), rapid.Bool().Draw(rt, "held"), drawCrash(rt),
		})
	}
	m.batch(rt)
	client, batch := m.draw(rt)

	p := m.p
	p.trapAt(at, late != "lost")
	client.Submit(batch...)
	if closing {
		m.closing(p)
	} else if at > 0 {
		for _, e := range m.open {
			select {
			case <-e.reply.done:
			case <-p.killed:
			}
		}
	}
	p.kill()
	m.hear(rt, closing)
	if late == "before" {
		m.s.network.Thaw()
	}
	lost := false
	if away {
		m.s.crash(c)
		lost = m.restart(rt, c)
	}
	switch next {
	case "adopts":
		m.adopted(rt, p, lost, lanes, interruptions)
	case "another id":
		m.id = 3 - m.id
		m.newOwner(rt)
		m.refused(rt, p)
	default:
		m.accepts(rt, p, lost, lanes)
	}
	m.s.network.Thaw()
	m.s.sweep(m.p)
	require.True(m.t, bytes.Equal(m.data, m.readAll(rt)), "bytes of a dead process landed")
}

// closing closes p's device and waits until that is done or p is killed.
func (m *crashes) closing(p *process) {
	closed := make(chan error, 1)
	p.ended.Go(func() { closed <- p.close() })
	select {
	case err := <-closed:
		if err == nil && p.spared() {
			m.past.closed()
		}
	case <-p.killed:
	}
}

// hear notes the completions that the clients of a process heard before it was killed, and
// forgets the other requests: those clients know that they have no reply.
func (m *model) hear(rt *rapid.T, closing bool) {
	for i := range m.open {
		e := &m.open[i]
		if !e.reply.was() {
			continue
		}
		<-e.reply.done
		if err := e.req.Err; err != nil {
			require.True(m.t, closing, "%s: %v", e.what, err)
			require.ErrorIs(m.t, err, backend.ErrClosed, e.what)
			continue
		}
		m.completed(e)
		e.check(m.t)
	}
	m.open, m.reading = nil, 0
}

// adopted runs processes that try to adopt what p left, until one has. No process may if the
// contents count as lost, as they do in doubt. Nor if a killed start got a grant and died
// before it could write that down, even though nobody read anything in that session.
func (m *crashes) adopted(rt *rapid.T, p *process, lost bool, lanes int, interruptions []interruption) {
	mayLose, straight := lost, true
	for left := 100; ; {
		q := m.s.process(m.id, p.left)
		p = q
		lost := false
		if len(interruptions) > 0 {
			straight = false
			lost = m.interrupt(rt, q, lanes, interruptions[0])
			mayLose = mayLose || lost
			interruptions = interruptions[1:]
		} else {
			_ = q.dial(lanes, false)
		}
		if !q.spared() {
			continue
		}
		var loss *remote.LossError
		var refused *remote.RefusedError
		switch err := q.err; {
		case err == nil && lost: // before q opened the region, or since
			_ = q.close()
		case err == nil:
			m.inherit(rt, q, m.past.adopted)
			m.past.closed() // a barrier followed the replay
			m.inherits = !straight
			return
		case errors.As(err, &loss):
			require.True(m.t, mayLose, "lost without need: %v", err)
			m.newOwner(rt)
			return
		case errors.As(err, &refused) && (refused.Reason() == remote.ReasonBusy || refused.Reason() == remote.ReasonEpoch):
			straight = false // a process that was killed was faster
		default:
			left-- // an interruption may disturb the next process, but not for ever
			require.True(m.t, !straight && left > 0, "%v", err)
		}
		q.leave()
		require.NoError(m.t, os.RemoveAll(q.dir)) // a window takes much memory
	}
}

// accepts runs processes with AcceptLoss until one opens the region. Only what the target lost
// may be missing.
func (m *crashes) accepts(rt *rapid.T, p *process, lost bool, lanes int) {
	right := m.past.adopted
	if lost {
		right = m.past.survived
	}
	for {
		q := m.s.process(m.id, p.left)
		err := q.dial(lanes, true)
		var refused *remote.RefusedError
		if err == nil {
			m.inherit(rt, q, right)
			return
		}
		require.ErrorAs(m.t, err, &refused)
		require.Contains(m.t, []remote.Reason{remote.ReasonBusy, remote.ReasonEpoch}, refused.Reason()) // the process that was killed was faster
		q.leave()
		require.NoError(m.t, os.RemoveAll(q.dir))
		p = q
	}
}

// interrupt starts q and interrupts it. It reports whether the target lost the contents.
func (m *crashes) interrupt(rt *rapid.T, q *process, lanes int, i interruption) (lost bool) {
	if !i.target {
		q.trapAt(i.at, i.holds)
		q.start(lanes, false)
		select {
		case <-q.opened:
		case <-q.killed:
		}
		return false
	}
	crashed := m.s.crashAt(i.at, i.crash)
	q.start(lanes, false)
	select {
	case <-q.opened:
	case <-crashed:
	}
	m.s.crash(i.crash)
	found, lost := m.s.restart(i.crash)
	require.NoError(m.t, m.past.survived(found), "the target found other bytes")
	<-q.opened
	return lost
}

// second starts another process with the same id beside the living one. The lock on this host
// keeps it out.
func (m *crashes) second(rt *rapid.T) {
	p := m.s.process(m.id, m.p.dir)
	require.ErrorContains(m.t, p.dial(m.s.w.lanes, rapid.Bool().Draw(rt, "accepts loss")), "another pmnbd")
}

// refused starts a process on the window of p after the region has had another owner, or has
// lost what p had acknowledged. That process must end with a LossError.
func (m *crashes) refused(rt *rapid.T, p *process) {
	if p.step() {
		p.leave()
	}
	var loss *remote.LossError
	require.ErrorAs(m.t, m.s.process(p.id, p.left).dial(m.s.w.lanes, false), &loss)
}
