package property

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/remote"
	"pmnbd/persist"
)

// begin begins a life in a process that starts from the contents of dir. Of what the life before wrote
// it has what was flushed.
func (m *mirrorCrashes) begin(rt *rapid.T, dir string) {
	p := m.start(rt, dir, true)
	if p.err != nil {
		m.force(rt, p)
		return
	}
	m.inherit(rt, p, m.past.survived)
}

// start starts a process and waits until it serves. Members that it cannot begin without come back
// while it waits. It may fail if a member has lost its contents, or because of what it finds in dir.
func (m *mirrorCrashes) start(rt *rapid.T, dir string, acceptLoss bool) *process {
	m.lists(rt)
	p := m.f.process(m.id, dir)
	reach, known := m.f.reachable(), m.records()
	p.start(m.lanes, acceptLoss)
	if m.opens(rt, p, known) && p.err == nil {
		m.proven(rt, known, slices.DeleteFunc(reach, func(i int) bool { return !slices.Contains(p.listed, i) }))
	}
	return p
}

// opens waits until p serves, or failed. It reports whether it did without members that were away.
func (m *mirrorCrashes) opens(rt *rapid.T, p *process, known []persist.Record) bool {
	if m.serves(p, known, m.f.mirror.LegTimeout+20*time.Second) {
		return true
	}
	m.heal(rt)
	if !m.serves(p, known, 10*time.Minute) {
		require.True(m.t, m.forcible(), "the mirror does not begin, although all members are there")
		p.cancel()
		<-p.opened
	}
	return false
}

// forcible reports whether a start may need an operator's force: a member has lost its contents, or stands in for
// another one and is half copied (mirror §3.3).
func (m *mirrorCrashes) forcible() bool {
	r := m.newest()
	standsIn := func(is persist.Membership) bool { return is.Contents == [16]byte{} && is.Epoch != 0 }
	for slot, is := range r.Members {
		if r.F.Has(slot) && standsIn(is) {
			return true
		}
	}
	return len(m.gone) > 0
}

// force has an operator begin with what there is. Where members have lost what they had, nothing is promised of it, and
// if nothing is left, there is another mirror.
func (m *mirrorCrashes) force(rt *rapid.T, failed *process) {
	require.True(m.t, m.forcible(), "%v", failed.err)
	right := m.past.survived
	if len(m.gone) > 0 {
		right = func([]byte) error { return nil }
	}
	m.f.mirror.Degraded = true
	m.heal(rt)
	p := m.start(rt, m.f.state(), true)
	m.f.mirror.Degraded = false
	m.active = persist.Record{}
	if p.err != nil {
		require.NotEmpty(m.t, m.gone, "%v", p.err)
		m.gone = nil
		m.renew(rt)
		return
	}
	m.gone = nil
	m.inherit(rt, p, right)
	m.past = history{base: bytes.Clone(m.data)}
	m.follow()
	m.flush(rt)
}

// renew begins another mirror, of new regions.
func (m *mirrorCrashes) renew(rt *rapid.T) {
	m.f.sweep(nil)
	m.f.close()
	m.f = newFleet(m.f.t, m.f.turns, m.f.shape)
	m.active, m.gone, m.past = persist.Record{}, nil, history{base: make([]byte, size)}
	m.follow()
	m.begin(rt, m.f.state())
}

// records returns the records of all stations.
func (m *mirrorCrashes) records() (all []persist.Record) {
	for i := range m.f.stations {
		all = append(all, m.f.superblock(i).Record)
	}
	return all
}

// proven checks that a life may begin that reached these stations: all of F of the generation before,
// or enough that no others are a majority, or with an arbiter one of F (mirror §4.2). The members and M are
// those of the generation before, which known has unless it was begun meanwhile.
func (m *mirrorCrashes) proven(rt *rapid.T, known []persist.Record, reach []int) {
	if m.f.mirror.Degraded {
		return
	}
	newest := m.newest()
	for _, before := range newest.Lineage {
		if before.Life == newest.Life {
			continue
		}
		r := &newest
		for i := range known {
			if known[i].Generation == before.Generation {
				r = &known[i]
			}
		}
		var held persist.Members
		for slot := range r.Members {
			if slices.Contains(reach, m.f.at(r, slot)) {
				held |= persist.Member(slot)
			}
		}
		voters := r.Voters()
		require.True(m.t, before.F&^held == 0 || m.f.mirror.Arbiter != nil && before.F&held != 0 ||
			2*int(r.MinCopies) > voters.Count() && 2*(held&voters).Count() > voters.Count() && before.F&held != 0,
			"a life began with stations %v, behind generation %v{%v}", reach, before.Generation, before.F)
		return
	}
}

// inherit makes p the model's process. p reads the whole device, and right judges what it read.
// From then on the model expects those bytes.
func (m *mirrorCrashes) inherit(rt *rapid.T, p *process, right func([]byte) error) {
	m.p, m.dev, m.s = p, p.dev, subject{dev: p.dev, process: p}
	m.forgets()
	m.open, m.reading, m.held, m.doomed, m.inherits, m.durable = nil, 0, 0, false, true, 0
	m.connect()
	m.data = m.readAll(rt)
	require.NoError(m.t, right(m.data), "a new life found other bytes")
	m.past.add(change{0, bytes.Clone(m.data)}, false)
}

// readAll reads the whole device.
func (m *mirrorCrashes) readAll(rt *rapid.T) (all []byte) {
	c := m.clients[0]
	all = make([]byte, 0, size)
	for off := 0; off < size; off += 1 << 20 {
		e := expectation{client: c, req: c.Read(uint64(off), min(1<<20, size-off), 0), what: fmt.Sprintf("read all, from %d", off)}
		e.reply = m.p.listens(&e.req.Op)
		c.Submit(e.req)
		m.completes(rt, &e)
		require.NoError(m.t, e.req.Err)
		all = append(all, e.req.Got...)
	}
	return all
}

// bury replaces a device that has failed.
func (m *mirrorCrashes) bury(rt *rapid.T) {
	if m.dev.Snapshot().State != remote.StateFailed {
		return
	}
	require.True(m.t, m.doomed, "the device failed without need")
	c := m.clients[0]
	require.ErrorIs(m.t, c.Do(c.Flush()), backend.ErrFailed)
	require.ErrorIs(m.t, c.Do(c.Write(0, backendtest.Pattern(4096, 0), 0)), backend.ErrFailed)
	m.heal(rt)
	require.Error(m.t, m.shut(rt, m.p))
	m.refused(rt, m.p)
	m.begin(rt, m.f.state())
	m.f.sweep(m.p)
}

// shut closes the device of p. All members are there.
func (m *mirrorCrashes) shut(rt *rapid.T, p *process) error {
	go func() { _ = p.close() }()
	require.True(m.t, m.within(10*time.Minute, p.closed), "the device does not close, although all members are there: %+v", p.dev.Snapshot().Mirror)
	return p.closeErr
}

// leaves ends the life. All members are there; none need hear of it, if the session of each was lost just before.
func (m *mirrorCrashes) leaves(rt *rapid.T) {
	err := m.shut(rt, m.p)
	if err == nil {
		m.past.closed()
		return
	}
	require.ErrorIs(m.t, err, remote.ErrAway)
}

// reopen ends the life and begins another. Members may be away at its end, at the beginning of the
// next, or all the time.
func (m *mirrorCrashes) reopen(rt *rapid.T) {
	m.drain(rt)
	before := m.p
	go func() { _ = before.close() }()
	if !m.within(m.f.mirror.LegTimeout+time.Minute, before.closed) {
		m.heal(rt)
	}
	err := m.shut(rt, before)
	require.NotErrorIs(m.t, err, backend.ErrFailed)
	if err == nil {
		m.past.closed()
		m.inspect(rt)
	}
	all := m.clean()
	if rapid.Bool().Draw(rt, "the same host") {
		before.leave()
		p := m.start(rt, before.left, false)
		require.NoError(m.t, p.err)
		m.inherit(rt, p, m.past.survived)
	} else {
		m.begin(rt, m.f.state())
	}
	m.inherits = !all
	m.f.sweep(m.p)
}

// clean reports whether all members in F were closed.
func (m *mirrorCrashes) clean() bool {
	newest := m.newest()
	for i := range m.f.stations {
		if m.f.in(&newest, i) && !m.f.superblock(i).Clean {
			return false
		}
	}
	return true
}

// takeOver begins a life while the one before is alive: it is cut off, or its messages stay on the
// wire, or it is in the middle of its Close. From then on nothing of it may land.
func (m *mirrorCrashes) takeOver(rt *rapid.T) {
	m.room(rt)
	how := rapid.SampledFrom([]string{"frozen", "cut", "closing"}).Draw(rt, "how")
	if rapid.Bool().Draw(rt, "another id") {
		m.id = 3 - m.id
	}
	before, old, client := m.p, m.dev, m.clients[0]
	if how == "frozen" {
		for _, n := range m.f.networks {
			n.Freeze()
		}
	}
	m.batch(rt)
	switch how {
	case "cut":
		for _, n := range m.f.networks {
			n.Cut()
		}
	case "closing":
		before.ended.Go(func() { _ = before.close() })
	}
	m.note()
	m.begin(rt, m.f.state())
	for _, n := range m.f.networks {
		n.Thaw()
	}
	if how != "closing" {
		client.Submit(client.Write(0, backendtest.Pattern(size/4, 0), 0))
	}
	m.heal(rt)
	_ = m.shut(rt, before) // an error is fine: it may have had nothing to lose
	_ = old.Close()
	m.refused(rt, before)
	require.True(m.t, bytes.Equal(m.data, m.readAll(rt)), "bytes of the life before landed")
	m.f.sweep(m.p)
}
