package property

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pmnbd/backend/backendtest"
	"pmnbd/backend/remote"
	"pmnbd/persist"
)

// TestMirrorCrashes lets targets, networks and initiators of a mirror crash (mirror §3 to §6). The
// members that the newest record has in F have everything that was flushed, at any moment. A life
// that begins knows the last generation that was active, and reads what was flushed. Within a life no
// READ goes back. The device fails only if another life has begun, or if its last equal member lost
// its contents.
//
// The flag -crashes keeps it going until it has counted that many crashes.
func TestMirrorCrashes(t *testing.T) {
	fewer(t, 8*len(kinds))
	defer func() {
		for _, k := range kinds {
			t.Logf("%d crashes of fleets with %s", k.crashes.Load(), k.name)
		}
	}()
	untilWanted(t, manyMirrorCrashes)
}

// manyMirrorCrashes is one check.
func manyMirrorCrashes(t testing.TB, rt *rapid.T, turns turns) {
	kind := rapid.SampledFrom(kinds).Draw(rt, "fleet")
	defer kind.counts(crashed.Load())
	m := &mirrorCrashes{model: &model{t: t, past: history{base: make([]byte, size)}}, id: 1, f: newFleet(t, turns, kind.draw(rt))}
	m.lanes = rapid.IntRange(1, 3).Draw(rt, "lanes")
	m.follow()
	whole := false
	defer func() { m.close(rt, whole) }()
	m.begin(rt, m.f.state())
	m.inherits = false // no life was there before
	actions := map[string]func(*rapid.T){
		"": m.inspect, "submit": m.submit, "submit more": m.submit, "wait": m.drain, "flush": m.flush, "hang up": m.hangUp,
		"lose": m.lose, "isolate": m.isolate, "rejoin": m.rejoin, "evict": m.evict, "crash": m.crash, "restart": m.restart, "let time pass": m.wait,
		"reopen": m.reopen, "take over": m.takeOver, "kill": m.kill,
	}
	if kind.changes {
		actions["change"], actions["change more"], actions["split"] = m.alters, m.alters, m.split
	}
	if kind.follows {
		actions["promote"] = m.promote
	}
	rt.Repeat(actions)
	m.end(rt)
	whole = true
}

// A mirrorCrashes is a model whose device is a mirror. Outages of members last for several actions.
type mirrorCrashes struct {
	*model
	f        *fleet
	id       byte // the present initiator's
	lanes    int
	p        *process
	dev      *remote.Device
	inherits bool           // the life before did not close
	active   persist.Record // of the newest generation that was seen to be active
	gone     []int          // stations that have lost their contents
	change   *alteration    // of the members, or M; nil: none is under way
	side     []int          // the stations that did not go their own ways; nil: nobody did
}

// within reports whether done is closed before so much time has passed.
func (m *mirrorCrashes) within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// serves reports whether p serves, or failed, before so much time has passed. A life that has begun, which a record says
// that is newer than what known has, may wait until the fence of the life before has closed: it has less than F, or
// another region is now in the slot of a member that an earlier life had in F.
func (m *mirrorCrashes) serves(p *process, known []persist.Record, d time.Duration) bool {
	if m.within(d, p.opened) {
		return true
	}
	begun := false
	for i, r := range m.records() {
		begun = begun || r.Life > known[i].Life
	}
	return begun && m.within(lease, p.opened)
}

// completes waits for e. If it waits for a member, all outages end. A mirror that has enough copies
// waits for none.
func (m *mirrorCrashes) completes(rt *rapid.T, e *expectation) {
	if m.within(m.f.mirror.LegTimeout+time.Minute, e.reply.done) {
		return
	}
	if !m.changing() { // no member goes that the change needs
		require.Less(m.t, m.inSync(), m.dev.Snapshot().Mirror.MinCopies, "%s waits, and enough members are in sync: %+v", e.what, m.dev.Snapshot().Mirror)
	}
	if m.enough(rt) {
		require.True(m.t, m.within(time.Hour, e.reply.done), "%s waits, although enough members are there: %+v", e.what, m.dev.Snapshot().Mirror)
		return
	}
	m.heal(rt)
	require.True(m.t, m.within(10*time.Minute, e.reply.done), "%s waits, although all members are there: %+v", e.what, m.dev.Snapshot().Mirror)
}

// enough ends outages of members, one after the other, until the mirror can go on: M members are there, and one of
// them is in sync. It reports whether that is so. Where no majority can begin the mirror, the one that it waits for
// may be needed.
func (m *mirrorCrashes) enough(rt *rapid.T) bool {
	r := m.newest()
	if m.changing() || m.side != nil || m.f.mirror.Arbiter != nil || len(m.gone) > 0 || m.inSync() == 0 ||
		2*int(r.MinCopies) <= r.Voters().Count() || m.dev.Snapshot().Mirror.Pending || rapid.Bool().Draw(rt, "all come back") {
		return false
	}
	there := func() (n int) {
		for _, i := range m.f.reachable() {
			slot := m.f.slotOf(&r, i)
			if slot >= 0 && r.Voters().Has(slot) && m.f.superblock(i).Record != (persist.Record{}) { // else it is being added
				n++
			}
		}
		return n
	}
	for _, i := range rapid.Permutation(m.f.listed).Draw(rt, "come back") {
		if there() >= int(r.MinCopies) {
			break
		}
		if m.f.stations[i].isDown() {
			m.starts(rt, i)
		}
		m.f.isolate(i, false)
	}
	return there() >= int(r.MinCopies) && len(m.gone) == 0
}

// inSync is how many members the device has in sync.
func (m *mirrorCrashes) inSync() (n int) {
	for _, l := range m.dev.Snapshot().Mirror.Legs {
		if l.State == remote.LegInSync {
			n++
		}
	}
	return n
}

// room makes sure that what an action submits finds room: see model.room.
func (m *mirrorCrashes) room(rt *rapid.T) {
	if m.held > 24 {
		m.flush(rt)
	}
	if len(m.open) > 12 || m.reading > 8 {
		m.drain(rt)
	}
}

// submit hands a random batch of a random client to the device.
func (m *mirrorCrashes) submit(rt *rapid.T) {
	m.room(rt)
	m.batch(rt)
}

// hangUp makes a client hang up: see model.hangUp.
func (m *mirrorCrashes) hangUp(rt *rapid.T) {
	m.room(rt)
	m.model.hangUp(rt)
}

// drain waits until every request has completed and checks what the READs returned.
func (m *mirrorCrashes) drain(rt *rapid.T) {
	for i := range m.open {
		m.completes(rt, &m.open[i])
	}
	m.model.drain(rt)
	m.bury(rt)
}

// flush makes everything durable and compares the memory of the members that must have it.
func (m *mirrorCrashes) flush(rt *rapid.T) {
	m.drain(rt)
	c := m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(rt, "client")]
	e := expectation{client: c, req: c.Flush(), entry: m.past.end(), what: "flush"}
	e.reply = m.p.listens(&e.req.Op)
	m.open = append(m.open, e)
	c.Submit(e.req)
	p := m.p
	m.drain(rt)
	if m.p != p {
		return // the device had failed
	}
	m.held = 0
	m.rest(rt)
}

// rest checks that all members in F have the same bytes, durably. Nothing is under way, and the last
// thing was a FLUSH.
func (m *mirrorCrashes) rest(rt *rapid.T) {
	newest := m.newest()
	for i, s := range m.f.stations {
		if !m.f.in(&newest, i) {
			continue
		}
		require.NoError(m.t, m.f.durable(i, m.same), "station %d, generation %v{%v}", i, newest.Generation, newest.F)
		if !s.isDown() {
			require.True(m.t, bytes.Equal(m.data, s.region.Data()), "station %d shows other bytes than it has", i)
		}
	}
	m.caught()
}

// same returns an error if data is not what a READ returns.
func (m *mirrorCrashes) same(data []byte) error {
	if !bytes.Equal(m.data, data) {
		return errNotFlushed
	}
	return nil
}

// newest returns the record of the newest generation that a member has.
func (m *mirrorCrashes) newest() (newest persist.Record) {
	for i := range m.f.stations {
		if m.side != nil && !slices.Contains(m.side, i) {
			continue
		}
		if r := m.f.superblock(i).Record; newest == (persist.Record{}) || newest.Before(r.Generation) {
			newest = r
		}
	}
	return newest
}

// inspect checks what is true at any moment: the members in F have what was flushed, and a generation
// that becomes active comes from the one that was.
func (m *mirrorCrashes) inspect(rt *rapid.T) {
	m.note()
	newest := m.newest()
	active := true
	for i := range m.f.stations {
		if m.f.in(&newest, i) {
			require.NoError(m.t, m.f.durable(i, m.past.survived), "station %d, in generation %v{%v}, lacks what was flushed", i, newest.Generation, newest.F)
			active = active && m.f.superblock(i).Record.Generation == newest.Generation
		}
	}
	m.altered(rt)
	m.trails(rt)
	if !active || newest.Generation == m.active.Generation {
		return
	}
	if m.active != (persist.Record{}) {
		require.True(m.t, descends(&newest, m.active.Generation), "generation %v{%v} is active and does not know %v{%v}",
			newest.Generation, newest.F, m.active.Generation, m.active.F)
	}
	m.active = newest
}

// note records which open requests have completed.
func (m *mirrorCrashes) note() {
	for i := range m.open {
		if e := &m.open[i]; e.req.Completed() && e.req.Err == nil {
			m.completed(e)
		}
	}
}

// station draws a station.
func (m *mirrorCrashes) station(rt *rapid.T) int {
	return rapid.IntRange(0, len(m.f.stations)-1).Draw(rt, "station")
}

// lose breaks the connections to a member: idle ones, or with requests held on the wire and lost.
func (m *mirrorCrashes) lose(rt *rapid.T) {
	m.room(rt)
	network := m.f.networks[m.station(rt)]
	if rapid.Bool().Draw(rt, "in flight") {
		network.Pause()
		m.batch(rt)
	}
	network.Cut()
	if rapid.Bool().Draw(rt, "while away") {
		m.batch(rt)
	}
	network.Resume()
}

// isolate cuts a member off, until it rejoins.
func (m *mirrorCrashes) isolate(rt *rapid.T) {
	m.room(rt)
	i := m.station(rt)
	if rapid.Bool().Draw(rt, "in flight") {
		m.f.networks[i].Pause()
		m.batch(rt)
		defer m.f.networks[i].Resume()
	}
	m.f.isolate(i, true)
}

// rejoin connects a member again that was cut off.
func (m *mirrorCrashes) rejoin(rt *rapid.T) { m.f.isolate(m.station(rt), false) }

// evict writes some cache lines back.
func (m *mirrorCrashes) evict(rt *rapid.T) { m.f.evict(m.station(rt), drawCrash(rt)) }

// wait lets time pass, in which members that are away are let go.
func (m *mirrorCrashes) wait(rt *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, 3 * time.Second, 2 * time.Minute}).Draw(rt, "for"))
}

// crash ends a target, now or when it is about to write something back.
func (m *mirrorCrashes) crash(rt *rapid.T) {
	s := m.f.stations[m.station(rt)]
	if s.isDown() {
		rt.Skip("it is down")
	}
	m.room(rt)
	c := drawCrash(rt)
	at := rapid.IntRange(0, 8).Draw(rt, "at write-back") // 0: now
	if at > 0 {
		crashed := s.crashAt(at, c)
		m.batch(rt)
		m.batch(rt)
		m.within(time.Second, crashed)
		s.mem.Trap(0, nil)
	} else {
		m.batch(rt)
	}
	s.crash(c)
}

// restart starts a target again, perhaps not at the first try.
func (m *mirrorCrashes) restart(rt *rapid.T) {
	i := m.station(rt)
	if !m.f.stations[i].isDown() {
		rt.Skip("it runs")
	}
	var starts []int
	if rapid.IntRange(0, 3).Draw(rt, "starts") == 0 {
		starts = append(starts, rapid.IntRange(1, 3).Draw(rt, "crash at start"))
	}
	m.starts(rt, i, starts...)
}

// starts starts the target of station i again.
func (m *mirrorCrashes) starts(rt *rapid.T, i int, starts ...int) {
	m.note()
	newest := m.newest()
	in, member := m.f.in(&newest, i), m.f.slotOf(&newest, i) >= 0
	_, lost := m.f.stations[i].restart(crash{power: true}, starts...)
	if m.f.cut[i] {
		m.f.networks[i].Down()
	}
	if !lost || !member && m.change == nil {
		return
	}
	require.True(m.t, !in || m.inherits && m.durable == 0, "the contents of station %d count as lost, but nobody can have read them", i)
	m.gone = append(m.gone, i)
	m.doomed = true // unless another member is equal
}

// heal ends all outages.
func (m *mirrorCrashes) heal(rt *rapid.T) {
	for i, s := range m.f.stations {
		if s.isDown() {
			m.starts(rt, i)
		}
		m.f.isolate(i, false)
	}
}

// end ends a run in which nothing failed: the members in F must hold exactly what was flushed.
func (m *mirrorCrashes) end(rt *rapid.T) {
	m.heal(rt)
	allHadTurns() // so the device has heard of the last cut: else Close would leave that member untold
	m.settles(rt)
	m.flush(rt)
	m.inspect(rt)
	m.whole(rt)
	require.True(m.t, bytes.Equal(m.data, m.readAll(rt)))
	backendtest.AllBack(m.t, m.dev)
}

// close closes the model's process and targets.
func (m *mirrorCrashes) close(rt *rapid.T, whole bool) {
	sure := false
	defer func() {
		if !sure {
			m.t.(failing).explain("the devices said:\n" + m.f.journal.String())
		}
	}()
	m.f.revive()
	if m.p != nil {
		if !whole { // after a failed check its Close might never return
			m.p.giveUp()
		}
		err := m.shut(rt, m.p)
		if whole {
			require.NoError(m.t, err)
			require.True(m.t, m.clean(), "a member in F was not closed")
		}
	}
	m.f.sweep(nil)
	m.f.close()
	sure = whole
}
