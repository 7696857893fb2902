package property

import (
	"bytes"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pmnbd/backend/remote"
	"pmnbd/persist"
)

// follow begins the trail of the member that follows, if the mirror has one. It has everything then, or
// nobody takes it for anything.
func (m *mirrorCrashes) follow() {
	m.past.trail = nil
	if r := m.newest(); r.Async != 0 {
		m.past.trail = &trail{base: bytes.Clone(m.past.base), first: m.past.end()}
	}
}

// follower returns the station of the member that follows, or -1, and what its region persists.
func (m *mirrorCrashes) follower() (i int, r persist.Record, whole bool) {
	newest := m.newest()
	for slot := range newest.Members {
		if !newest.Async.Has(slot) {
			continue
		}
		if i = m.f.at(&newest, slot); i >= 0 {
			sb := m.f.superblock(i)
			r = sb.Record
			is := r.Members[slot]
			return i, r, r.Async.Has(slot) && !r.Torn && sb.Contents == is.Contents && sb.Epoch >= is.Epoch
		}
	}
	return -1, r, false
}

// trails checks that the member that follows could be promoted at this moment, unless its own record says
// that it cannot: it is a crash of what the others had (mirror §7.1).
func (m *mirrorCrashes) trails(rt *rapid.T) {
	if m.past.trail == nil {
		return
	}
	if i, r, whole := m.follower(); whole {
		has := m.past.trail.has
		err := m.f.durable(i, m.past.trail.check)
		if m.f.stations[i].isDown() { // it has what was in the caches of a killed target, for the moment
			m.past.trail.has = has
		}
		require.NoError(m.t, err, "station %d follows generation %v, and has what no crash leaves", i, r.Generation)
	}
}

// caught forgets the trail if the member that follows has everything. Nothing is under way, and the last
// thing was a FLUSH.
func (m *mirrorCrashes) caught() {
	if m.past.trail == nil {
		return
	}
	if i, _, whole := m.follower(); whole && !m.f.stations[i].isDown() && m.f.durable(i, m.same) == nil {
		m.past.trail = &trail{base: bytes.Clone(m.data), first: m.past.end()}
	}
}

// whole waits until all members have everything. All of them are there, and nothing is under way.
func (m *mirrorCrashes) whole(rt *rapid.T) {
	m.namesAll(rt)
	has := func() bool {
		s, r := m.dev.Snapshot().Mirror, m.newest()
		for i := range m.f.stations {
			if slot := m.f.slotOf(&r, i); slot >= 0 && m.f.durable(i, m.same) != nil {
				return false
			}
		}
		for _, l := range s.Legs {
			if l.Slot != "" && l.State != remote.LegInSync && l.State != remote.LegFollows {
				return false
			}
		}
		return r.Present() == r.F|r.Async
	}
	for range 1200 {
		if has() {
			return
		}
		time.Sleep(time.Second)
	}
	require.Fail(m.t, "members do not become copies, although all are there", "%+v", m.dev.Snapshot().Mirror)
}

// namesAll begins another life if no target of this one leads to a member. Whoever asked for that member may
// have heard no answer, and a life that went on after a kill has finished the change. If the member has no
// record, and another initiator was the one that opened it, the operator adds it again.
func (m *mirrorCrashes) namesAll(rt *rapid.T) {
	r := m.newest()
	for slot := range r.Members {
		i := m.f.at(&r, slot)
		found := func(l remote.LegSnapshot) bool { return l.Target == address(i) && l.Slot != "" }
		if i >= 0 && !slices.ContainsFunc(m.dev.Snapshot().Mirror.Legs, found) {
			m.names(rt)
			return
		}
	}
}

// names begins another life, whose targets are those of all members.
func (m *mirrorCrashes) names(rt *rapid.T) {
	m.leaves(rt)
	r := m.newest() // the life that ended may have finished a change
	var members, lost []int
	for slot := range r.Members {
		if i := m.f.at(&r, slot); i >= 0 && m.f.superblock(i).Record == (persist.Record{}) {
			lost = append(lost, i)
		} else if i >= 0 {
			members = append(members, i)
		}
	}
	m.f.listed = members
	p, known := m.f.process(m.id, m.f.state()), m.records()
	p.start(m.lanes, true)
	m.opens(rt, p, known)
	require.NoError(m.t, p.err)
	m.inherit(rt, p, m.past.survived)
	for _, i := range lost {
		require.NoError(m.t, m.adds(p.ctx, p, i))
	}
	m.f.sweep(m.p)
	m.flush(rt)
}

// promote begins a life with the member that follows, without the others (mirror §7.6). It is what a disk
// would be after a crash, or it is refused.
func (m *mirrorCrashes) promote(rt *rapid.T) {
	i, _, _ := m.follower()
	if i < 0 || m.f.mirror.Arbiter != nil {
		rt.Skip("nobody can be promoted")
	}
	m.room(rt)
	how := rapid.SampledFrom([]string{"killed", "killed, late", "alive"}).Draw(rt, "the life before is")
	c := drawCrash(rt)
	m.batch(rt)
	before := m.p
	if how != "alive" {
		before.trapAt(rapid.IntRange(0, 20).Draw(rt, "at step"), how == "killed, late")
		m.batch(rt)
		m.within(time.Second, before.killed)
		before.kill()
		m.hear(rt, false)
	}
	m.note()
	if s := m.f.stations[i]; !s.isDown() && rapid.Bool().Draw(rt, "its target crashes") {
		s.crash(c)
	}
	if m.f.stations[i].isDown() {
		m.starts(rt, i)
	}
	m.f.isolate(i, false)
	m.inspect(rt)
	if how != "alive" {
		time.Sleep(time.Second) // by the bubble's clock: until all is done that the killed life had sent
	}
	now, _, whole := m.follower() // a change that was under way may have removed it
	promoted := now == i && m.promotes(rt, i, whole, how == "alive")
	if !promoted {
		m.begin(rt, m.f.state())
	}
	m.thaw()
	m.heal(rt)
	if how == "alive" {
		_ = m.shut(rt, before) // an error is fine: it may have had nothing to lose
	}
	m.f.sweep(m.p)
	require.True(m.t, bytes.Equal(m.data, m.readAll(rt)), "bytes of the life before landed")
	if promoted {
		m.goesOn(rt, i)
	}
}

// promotes promotes the member of station i, which must succeed if its record says that it is whole, and
// must not if not. While the life before is alive it may change that.
func (m *mirrorCrashes) promotes(rt *rapid.T, i int, whole, alive bool) bool {
	m.f.listed = []int{i}
	m.f.mirror.Degraded = true
	p, known := m.f.process(m.id, m.f.state()), m.records()
	p.start(m.lanes, true)
	opened := m.serves(p, known, m.f.mirror.LegTimeout+time.Minute)
	m.f.mirror.Degraded = false
	if !opened {
		p.cancel()
		<-p.opened
	}
	if p.err != nil {
		require.True(m.t, !whole || alive, "the member that follows is whole, and is not promoted: %v", p.err)
		return false
	}
	require.True(m.t, whole || alive, "a member is promoted that is torn, or lost its contents")
	m.active, m.gone, m.side = persist.Record{}, nil, []int{i}
	m.inherit(rt, p, m.past.trail.check)
	m.past = history{base: bytes.Clone(m.data)}
	m.flush(rt)
	r := m.newest()
	require.True(m.t, m.f.in(&r, i) && r.F.Count() == 1 && r.MinCopies == 1, "%+v", r)
	return true
}

// goesOn has the mirror go on with the member of station i, which was promoted. The other members went
// their own ways. They are given up, or there is another mirror.
func (m *mirrorCrashes) goesOn(rt *rapid.T, i int) {
	m.flush(rt)
	m.leaves(rt)
	m.side = nil
	if r := m.f.superblock(i).Record; m.others(&r, i) {
		m.splitSeen(rt)
	}
	if rapid.IntRange(0, 2).Draw(rt, "another mirror") == 0 {
		m.renew(rt)
		return
	}
	r := m.f.superblock(i).Record
	for slot := range r.Members {
		if other := m.f.at(&r, slot); other >= 0 && other != i {
			m.discard(rt, other, []int{i})
		}
	}
	m.ordinary(&r)
	m.active = persist.Record{}
	right := bytes.Clone(m.data)
	m.begin(rt, m.f.state())
	require.True(m.t, bytes.Equal(m.data, right), "the mirror has other bytes than the member that was promoted")
	m.f.sweep(m.p)
}

// others reports whether a member of r but that of station i has data of its own. The life before may have removed
// all that r knows of.
func (m *mirrorCrashes) others(r *persist.Record, i int) bool {
	for slot := range r.Members {
		if other := m.f.at(r, slot); other >= 0 && other != i {
			if has := m.f.superblock(other).Record; has != (persist.Record{}) && !has.Torn {
				return true
			}
		}
	}
	return false
}

// ordinary has an operator make ordinary regions of those that are no members of r, and have a record: the others
// had added them, after the member that is promoted had heard of them last. Nobody can discard them.
func (m *mirrorCrashes) ordinary(r *persist.Record) {
	for i := range m.f.stations {
		if m.f.slotOf(r, i) >= 0 || m.f.superblock(i).Record == (persist.Record{}) {
			continue
		}
		p := m.f.process(m.id, m.f.state())
		_, err := remote.PrepareMember(p.ctx, m.preparation(p, i), theSet, size, true)
		require.NoError(m.t, err)
	}
}
