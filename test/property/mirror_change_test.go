package property

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pmnbd/backend/remote"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// An alteration is a change of the members, or of M, that a process is asked for.
type alteration struct {
	what  string
	stop  context.CancelFunc
	done  chan struct{}
	err   error
	told  bool                            // the region that leaves is an ordinary one
	shows func(now *persist.Record) error // returns an error if the mirror, whose record is now, was not changed
}

// ended reports whether the process has answered.
func (a *alteration) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// changing reports whether a change is under way.
func (m *mirrorCrashes) changing() bool { return m.change != nil && !m.change.ended() }

// alters changes the members, or M, and perhaps waits until that is done. Else it goes on beside what
// happens next.
func (m *mirrorCrashes) alters(rt *rapid.T) {
	m.room(rt)
	m.altered(rt)
	if m.changing() {
		rt.Skip("a change is under way")
	}
	m.alter(rt)
	m.batch(rt)
	if rapid.Bool().Draw(rt, "wait for it") {
		m.within(m.f.mirror.LegTimeout+30*time.Second, m.change.done)
	}
	m.altered(rt)
}

// mayAlter perhaps begins a change.
func (m *mirrorCrashes) mayAlter(rt *rapid.T) {
	if m.f.members < len(m.f.stations) && !m.changing() && rapid.Bool().Draw(rt, "in a change") {
		m.alter(rt)
	}
}

// forgets has nobody wait for a change that a process was asked for which serves no more. Its end could
// overwrite a region that has become a member since, as an operator's order can that comes too late.
func (m *mirrorCrashes) forgets() {
	if a := m.change; a != nil {
		m.change = nil
		a.stop()
		<-a.done
	}
}

// alter begins a change.
func (m *mirrorCrashes) alter(rt *rapid.T) {
	now := m.newest()
	var free, taken []int
	for i := range m.f.stations {
		if m.f.slotOf(&now, i) >= 0 {
			taken = append(taken, i)
		} else if m.f.slotOf(&m.active, i) < 0 {
			free = append(free, i)
		}
	}
	p, set, a := m.p, 0, &alteration{done: make(chan struct{})}
	out := rapid.SampledFrom(taken).Draw(rt, "who leaves")
	what := rapid.SampledFrom([]string{"add", "add", "remove", "remove", "replace", "set M", "set M"}).Draw(rt, "change")
	if len(free) == 0 && (what == "add" || what == "replace") {
		what = "remove"
	}
	in := -1
	if len(free) > 0 {
		in = rapid.SampledFrom(free).Draw(rt, "who comes")
	}
	leaver := m.f.slotOf(&now, out) // now: a station that starts again changes under the process
	var run func(ctx context.Context) error
	switch what {
	case "add":
		run = func(ctx context.Context) error { return m.adds(ctx, p, in) }
	case "remove":
		run = func(ctx context.Context) error { return a.removes(ctx, p, leaver) }
	case "replace":
		run = func(ctx context.Context) error {
			if err := m.adds(ctx, p, in); err != nil {
				return err
			}
			m.copied(ctx, p)
			return a.removes(ctx, p, leaver)
		}
	default:
		set = rapid.IntRange(1, 3).Draw(rt, "M")
		run = func(ctx context.Context) error { return p.dev.SetMinCopies(ctx, set) }
	}
	before := m.f.superblock(out)
	a.what = fmt.Sprintf("%s (%d leaves, %d comes, M %d)", what, out, in, set)
	a.shows = func(now *persist.Record) error {
		comes, leaves := what == "add" || what == "replace", what == "remove" || what == "replace"
		switch {
		case comes && m.f.slotOf(now, in) < 0, leaves && m.f.slotOf(now, out) >= 0, set != 0 && int(now.MinCopies) != set:
			return fmt.Errorf("%s has succeeded, and the newest generation is %v{%v} of %v with M %d", a.what, now.Generation, now.F, now.Present(), now.MinCopies)
		case a.told && (m.f.superblock(out).Record != persist.Record{} || before.Record != persist.Record{} && m.f.superblock(out).Contents == before.Contents):
			return fmt.Errorf("%s has succeeded, and the region of station %d keeps what it was told to forget", a.what, out)
		}
		return nil
	}
	m.change = a
	var ctx context.Context
	ctx, a.stop = context.WithCancel(p.ctx)
	p.ended.Go(func() {
		p.turn()
		a.err = run(ctx)
		m.f.mirror.Log.Info("a change has ended", "process", p.number, "what", a.what, "error", a.err)
		close(a.done)
	})
}

// adds makes the region of station i a member, whatever it holds.
func (m *mirrorCrashes) adds(ctx context.Context, p *process, i int) error {
	ready, err := remote.PrepareMember(ctx, m.preparation(p, i), theSet, size, true)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	_, err = p.dev.AddMember(ctx, p.target(i), ready)
	return err
}

// preparation is how the region of station i is made ready to be a member, whatever it holds.
func (m *mirrorCrashes) preparation(p *process, i int) remote.Config {
	return remote.Config{
		ID: [16]byte{p.id}, StateDir: p.dir, Members: []remote.Target{p.target(i)},
		AcceptLoss: true, Takeover: true, Jitter: p.turns.jitter(p.number),
	}
}

// copied waits, for a while, until all members are copies.
func (m *mirrorCrashes) copied(ctx context.Context, p *process) {
	for range 120 {
		if s := p.dev.Snapshot().Mirror; s.Copies == s.Synchronous() {
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
}

// removes makes the region in slot an ordinary one.
func (a *alteration) removes(ctx context.Context, p *process, slot int) error {
	told, err := p.dev.RemoveMember(ctx, slot)
	a.told = err == nil && told == nil
	return err
}

// altered checks what has become of a change that has ended.
func (m *mirrorCrashes) altered(rt *rapid.T) {
	a := m.change
	if a == nil || !a.ended() {
		return
	}
	m.change = nil
	if a.err == nil && !m.p.isDead() {
		now := m.newest()
		require.NoError(m.t, a.shows(&now))
	}
}

// settles waits for the change that is under way. All members are there.
func (m *mirrorCrashes) settles(rt *rapid.T) {
	if m.change != nil {
		require.True(m.t, m.within(10*time.Minute, m.change.done), "%s does not end, although all members are there: %+v", m.change.what, m.dev.Snapshot().Mirror)
		m.altered(rt)
	}
}

// lists has the next process name all targets, or only those of members. The life before may go on for a
// while, and end a change that it has begun. Nobody can discard a member that was removed, could not be told,
// and went its own way: an operator takes its target out.
func (m *mirrorCrashes) lists(rt *rapid.T) {
	m.f.listed = nil
	all := m.f.members == len(m.f.stations) || m.change != nil || rapid.IntRange(0, 2).Draw(rt, "names strangers") == 0
	now := m.newest()
	for i := range m.f.stations {
		r := m.f.superblock(i).Record
		strays := r.Set == now.Set && !r.Torn && !mirror.Behind(&r, &now)
		if all && !strays || m.f.slotOf(&now, i) >= 0 || m.f.slotOf(&m.active, i) >= 0 {
			m.f.listed = append(m.f.listed, i)
		}
	}
}

// split lets members go separate ways. One member is away, the others go on without it, and then an
// operator begins with that one alone. The next start sees both sides and ends. One side is given up, and
// the mirror goes on with exactly what the other one has.
func (m *mirrorCrashes) split(rt *rapid.T) {
	m.heal(rt)
	m.settles(rt)
	m.flush(rt)
	r := m.newest()
	alone := m.station(rt)
	if m.f.mirror.Arbiter != nil || r.MinCopies != 1 || !m.f.in(&r, alone) || r.F.Count() < 2 || r.Async != 0 || len(m.gone) > 0 {
		rt.Skip("nobody can go on alone")
	}
	if m.f.superblock(alone).Record.Generation != r.Generation {
		rt.Skip("that member is only becoming a copy")
	}
	var others []int
	for slot := range r.Members {
		if i := m.f.at(&r, slot); i >= 0 && i != alone {
			others = append(others, i)
		}
	}
	one := bytes.Clone(m.data)
	m.f.isolate(alone, true)
	m.batch(rt)
	m.flush(rt)
	if r = m.newest(); m.f.in(&r, alone) || m.dev.Snapshot().Mirror.Pending {
		m.heal(rt)
		rt.Skip("the other members are away, too")
	}
	two := bytes.Clone(m.data)
	m.p.kill()
	for _, i := range others {
		m.f.isolate(i, true)
	}
	m.f.isolate(alone, false)
	m.f.listed, m.side = append(slices.Clone(others), alone), []int{alone}
	m.forced(rt, func(found []byte) error { m.data = one; return m.same(found) })
	m.batch(rt)
	m.flush(rt)
	one = bytes.Clone(m.data)
	m.heal(rt)
	m.leaves(rt)
	m.side = nil
	m.splitSeen(rt)
	keep, give := others, []int{alone}
	if rapid.Bool().Draw(rt, "keeps the one") {
		keep, give, two = give, keep, one
	}
	m.active = persist.Record{}
	for _, i := range give {
		m.discard(rt, i, keep)
	}
	m.past = history{base: two}
	m.begin(rt, m.f.state())
	require.True(m.t, bytes.Equal(m.data, two), "the mirror has other bytes than the side that was kept")
	m.f.sweep(m.p)
}

// forced begins a life by an operator's force, which must find what right judges.
func (m *mirrorCrashes) forced(rt *rapid.T, right func([]byte) error) {
	m.f.mirror.Degraded = true
	p, known := m.f.process(m.id, m.f.state()), m.records()
	p.start(m.lanes, true)
	require.True(m.t, m.serves(p, known, m.f.mirror.LegTimeout+time.Minute), "a member is there that has everything, and no life begins with it")
	m.f.mirror.Degraded = false
	require.NoError(m.t, p.err)
	m.active = persist.Record{}
	m.inherit(rt, p, right)
	m.past = history{base: bytes.Clone(m.data)}
}

// splitSeen checks that a start which sees several sides ends, and changes nothing.
func (m *mirrorCrashes) splitSeen(rt *rapid.T) {
	m.lists(rt)
	p := m.f.process(m.id, m.f.state())
	p.start(m.lanes, true)
	require.True(m.t, m.within(lease+time.Minute, p.opened), "a start sees members that went separate ways, and does not end")
	var way *remote.MirrorError
	require.ErrorAs(m.t, p.err, &way)
	require.ErrorContains(m.t, p.err, "split brain")
}

// discard gives up what station i has, for what the stations of keep have, if it went its own way. An owner
// whose life ended without telling a member holds it for a lease, which ends by the clock of the machine and not by
// that of the bubble. On the owner's host nobody waits for it.
func (m *mirrorCrashes) discard(rt *rapid.T, i int, keep []int) {
	p := m.f.process(m.id, m.f.state())
	cfg := remote.Config{ID: [16]byte{p.id}, StateDir: p.dir, Jitter: p.turns.jitter(p.number)}
	for _, j := range append([]int{i}, keep...) {
		cfg.Members = append(cfg.Members, p.target(j))
	}
	x, err := remote.FindDiscard(p.ctx, cfg, 1)
	var refused *remote.RefusedError
	if errors.As(err, &refused) && refused.Reason() == remote.ReasonBusy && m.f.superblock(i).Record == (persist.Record{}) {
		return // somebody was adding it: it has nothing to give up
	}
	if errors.As(err, &refused) && refused.Reason() == remote.ReasonBusy {
		cfg.ID = m.f.superblock(i).Owner.ID
		x, err = remote.FindDiscard(p.ctx, cfg, 1)
	}
	if err != nil {
		require.ErrorContains(m.t, err, "did not go its own way")
		return
	}
	require.NoError(m.t, x.Do(p.ctx))
	require.NoError(m.t, x.Close())
}
