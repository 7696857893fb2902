package property

import (
	"bytes"
	"errors"
	"os"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pmnbd/backend/remote"
)

// kill kills the process, now or at one of the next steps that it takes for a batch or for its Close.
// Its messages are lost or arrive late. A target may crash while the process is away. Then another
// process adopts its window, at the first try or later. Or the next process starts without the
// window, or another initiator begins a life first.
func (m *mirrorCrashes) kill(rt *rapid.T) {
	m.room(rt)
	at := rapid.IntRange(0, 40).Draw(rt, "at step") // 0: between two batches
	closing := rapid.IntRange(0, 3).Draw(rt, "closing") == 0
	late := rapid.SampledFrom([]string{"lost", "before", "after"}).Draw(rt, "what was on its way")
	away := rapid.IntRange(-1, len(m.f.stations)-1).Draw(rt, "target")
	c := drawCrash(rt)
	next := rapid.SampledFrom([]string{"adopts", "adopts", "adopts", "accepts loss", "another id"}).Draw(rt, "the next")
	lanes := rapid.IntRange(1, 3).Draw(rt, "lanes")
	var interruptions []interruption
	for range rapid.IntRange(0, 2).Draw(rt, "interruptions") {
		interruptions = append(interruptions, interruption{
			rapid.Bool().Draw(rt, "of a target"), rapid.IntRange(1, 25).Draw(rt, "at"), rapid.Bool().Draw(rt, "held"), drawCrash(rt),
		})
	}
	m.batch(rt)
	client, batch := m.draw(rt)

	p := m.p
	m.mayAlter(rt)
	p.trapAt(at, late != "lost")
	client.Submit(batch...)
	switch {
	case closing:
		m.closes(p)
	case at > 0:
		for _, e := range m.open {
			m.either(time.Minute, e.reply.done, p.killed)
		}
	}
	p.kill()
	m.hear(rt, closing)
	if closing {
		// Some members may be closed. Then the next life opens the others, which are in doubt until they
		// have flushed: one that loses power meanwhile counts its contents as lost.
		m.inherits, m.durable = true, 0
	}
	if late == "before" {
		m.thaw()
	}
	if away >= 0 && !m.f.stations[away].isDown() {
		m.f.stations[away].crash(c)
		if rapid.Bool().Draw(rt, "restart") {
			m.starts(rt, away)
		}
	}
	m.inspect(rt)
	switch next {
	case "adopts":
		m.lanes = lanes
		m.adopted(rt, p, interruptions)
	case "another id":
		m.id = 3 - m.id
		m.begin(rt, m.f.state())
		m.heal(rt)
		m.refused(rt, p)
	default:
		m.accepts(rt, p)
	}
	m.thaw()
	m.heal(rt)
	m.f.sweep(m.p)
	require.True(m.t, bytes.Equal(m.data, m.readAll(rt)), "bytes of a dead process landed")
}

// thaw has messages arrive that were held on the wire.
func (m *mirrorCrashes) thaw() {
	for _, n := range m.f.networks {
		n.Thaw()
	}
}

// either waits until a or b is closed, and for no more than d.
func (m *mirrorCrashes) either(d time.Duration, a, b <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-a:
	case <-b:
	case <-timer.C:
	}
}

// closes closes p's device and waits until that is done or p is killed. It may wait for a member that
// is away; then p is killed meanwhile.
func (m *mirrorCrashes) closes(p *process) {
	p.ended.Go(func() { _ = p.close() })
	m.either(time.Minute, p.closed, p.killed)
	select {
	case <-p.closed:
		if p.closeErr == nil && p.spared() {
			m.past.closed()
		}
	default:
	}
}

// adopted runs processes that try to adopt what p left, until one has. Only if a member lost its
// contents the window may be lost.
func (m *mirrorCrashes) adopted(rt *rapid.T, p *process, interruptions []interruption) {
	straight := true
	for left := 100; ; {
		m.lists(rt)
		q := m.f.process(m.id, p.left)
		p = q
		if len(interruptions) > 0 {
			straight = false
			m.interrupt(rt, q, interruptions[0])
			interruptions = interruptions[1:]
		} else {
			q.start(m.lanes, false)
		}
		m.either(m.f.mirror.LegTimeout+20*time.Second, q.opened, q.killed)
		if q.spared() {
			m.opens(rt, q, m.records())
		}
		if !q.spared() {
			continue
		}
		var loss *remote.LossError
		var refused *remote.RefusedError
		switch err := q.err; {
		case err == nil:
			m.inherit(rt, q, m.past.adopted)
			if s := q.dev.Snapshot().Mirror; s.Copies == len(s.F) { // a barrier followed the replay, or a copy
				m.past.closed()
			}
			m.inherits = !straight || !m.clean()
			return
		case errors.As(err, &loss):
			require.NotEmpty(m.t, m.gone, "lost without need: %v", err)
			m.begin(rt, m.f.state())
			return
		case errors.As(err, &refused) && (refused.Reason() == remote.ReasonBusy || refused.Reason() == remote.ReasonEpoch):
			straight = false // a process that was killed was faster
		case len(m.gone) > 0:
			m.force(rt, q)
			return
		default:
			left-- // an interruption may disturb the next process, but not for ever
			require.True(m.t, !straight && left > 0, "%v", err)
		}
		q.leave()
		require.NoError(m.t, os.RemoveAll(q.dir)) // a window takes much memory
	}
}

// interrupt starts q and kills it at a step, or lets a target crash meanwhile, which starts again.
func (m *mirrorCrashes) interrupt(rt *rapid.T, q *process, i interruption) {
	if !i.target {
		q.trapAt(i.at, i.holds)
		q.start(m.lanes, false)
		return
	}
	at := int(i.crash.seed % uint64(len(m.f.stations)))
	s := m.f.stations[at]
	if s.isDown() {
		q.start(m.lanes, false)
		return
	}
	crashed := s.crashAt(i.at, i.crash)
	q.start(m.lanes, false)
	m.either(time.Minute, crashed, q.opened)
	s.crash(i.crash)
	m.inspect(rt)
	m.starts(rt, at)
}

// accepts runs a process with AcceptLoss. It has what was acknowledged, unless a member lost its
// contents.
func (m *mirrorCrashes) accepts(rt *rapid.T, p *process) {
	for {
		q := m.start(rt, p.left, true)
		var refused *remote.RefusedError
		switch {
		case q.err == nil && len(m.gone) > 0:
			m.inherit(rt, q, m.past.survived)
			return
		case q.err == nil:
			m.inherit(rt, q, m.past.adopted)
			return
		case errors.As(q.err, &refused) && (refused.Reason() == remote.ReasonBusy || refused.Reason() == remote.ReasonEpoch):
			q.leave() // the process that was killed was faster
			require.NoError(m.t, os.RemoveAll(q.dir))
			p = q
		default:
			m.force(rt, q)
			return
		}
	}
}

// refused starts a process on the window of p after another life has begun, or after p's device
// failed. That process must end with a LossError. All members are there.
func (m *mirrorCrashes) refused(rt *rapid.T, p *process) {
	if p.step() {
		p.leave()
	}
	m.lists(rt)
	q := m.f.process(p.id, p.left)
	q.start(m.lanes, false)
	m.opens(rt, q, m.records())
	var loss *remote.LossError
	require.ErrorAs(m.t, q.err, &loss)
}
