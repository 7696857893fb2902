package property

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/remote"
	"pmnbd/persist/pmemsim"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma/rdmafake"
)

var worlds = []world{
	{"gpspm", region.DomainMemory, rdmafake.Config{}, false, 1, "gpspm"},
	{"gpspm, three lanes, tiny queues, an adapter", region.DomainMemory, rdmafake.Config{MaxSendWR: 3, MaxReads: 1, PlacesByDMA: true}, false, 3, "gpspm"},
	{"apm on eADR", region.DomainCaches, rdmafake.Config{}, false, 2, "apm"},
	{"apm on eADR, an adapter", region.DomainCaches, rdmafake.Config{PlacesByDMA: true}, false, 1, "apm"},
	{"apm on ADR, an adapter past the caches", region.DomainMemory, rdmafake.Config{PlacesByDMA: true}, true, 2, "apm"},
	{"flush, an adapter", region.DomainMemory, rdmafake.Config{PersistentFlush: true, MaxSendWR: 4, PlacesByDMA: true}, false, 2, "flush"},
}

// TestCrashes: whatever breaks, what was flushed is on the medium, and reads return
// what was last written, as long as the device lives; and it fails only if its region
// has another owner, or lost what was not durable and might have been read. A process
// that adopts the window of one that was killed has all that that one had answered, or
// says that it was lost.
//
// The flag -crashes makes it go on until there were so many.
func TestCrashes(t *testing.T) {
	fewer(t, 20)
	began := time.Now()
	defer func() {
		n, s := crashed.Load(), time.Since(began).Seconds()
		t.Logf("%d crashes in %.0f s, %.1f a second", n, s, float64(n)/s)
	}()
	end, bounded := t.Deadline()
	for {
		seeded(t, func() { rapid.Check(t, bubble(t, manyCrashes)) })
		if crashed.Load() >= *wanted {
			return
		}
		require.False(t, bounded && time.Until(end) < time.Minute, "there is no time left for %d crashes", *wanted)
	}
}

var wanted = flag.Int64("crashes", 0, "how many crashes TestCrashes makes, at least")

// manyCrashes is one check.
func manyCrashes(t testing.TB, rt *rapid.T, turns turns) {
	w := worlds[rapid.IntRange(0, len(worlds)-1).Draw(rt, "world")]
	rt.Log(w.name)
	s := newStation(t, w, turns)
	m := &crashes{s: s, id: 1, model: &model{t: t, past: history{base: make([]byte, size)}}}
	whole := false
	defer func() { m.close(rt, whole) }()
	m.newOwner(rt)
	m.inherits = false // nobody had it before
	require.Equal(rt, w.method, m.dev.Snapshot().Method)
	rt.Repeat(map[string]func(*rapid.T){
		"submit": m.submit, "submit more": m.submit, "wait": m.settle, "flush": m.flush, "hang up": m.hangUp,
		"lose": m.lose, "evict": m.evict, "crash": m.crash, "owner": m.owner, "kill": m.kill, "second": m.second,
	})
	m.end(rt)
	whole = true
}

// seeded has rapid begin with a seed that bubble can tell, unless it was given one.
func seeded(t *testing.T, check func()) {
	f := flag.Lookup("rapid.seed")
	if was := f.Value.String(); was == f.DefValue {
		require.NoError(t, f.Value.Set(strconv.FormatUint(rand.Uint64(), 10)))
		defer func() { _ = f.Value.Set(was) }()
	}
	check()
}

// fewer has rapid make n checks, unless it was told how many.
func fewer(t *testing.T, n int) {
	f := flag.Lookup("rapid.checks")
	if was := f.Value.String(); was == f.DefValue {
		require.NoError(t, f.Value.Set(strconv.Itoa(n)))
		t.Cleanup(func() { require.NoError(t, f.Value.Set(was)) })
	}
}

// A crashes is a model whose device's target crashes, and gets other owners.
type crashes struct {
	*model
	s        *station
	id       byte // of the owner
	p        *process
	dev      *remote.Device
	inherits bool // the owner before did not close
}

// doubtful reports whether the owner may have read what is not durable.
func (m *crashes) doubtful() bool { return m.inherits && m.durable == 0 }

// newOwner opens a session of a new owner, who finds no window.
func (m *crashes) newOwner(rt *rapid.T) {
	m.inherit(rt, m.take(rt, 0, crash{}), m.past.survived)
}

// inherit makes p the process. It reads all there is, which must be right, and stays as it
// is from then on.
func (m *crashes) inherit(rt *rapid.T, p *process, right func([]byte) error) {
	m.p, m.dev, m.model.s = p, p.dev, subject{dev: p.dev, network: m.s.network, process: p}
	m.open, m.reading, m.held, m.doomed, m.inherits, m.durable = nil, 0, 0, false, true, 0
	m.connect()
	m.data = m.readAll(rt)
	require.NoError(rt, right(m.data), "what a new owner finds")
	m.past.add(change{0, bytes.Clone(m.data)}, false)
}

// readAll reads the whole device.
func (m *crashes) readAll(rt *rapid.T) (all []byte) {
	c := m.clients[0]
	all = make([]byte, 0, size)
	for off := 0; off < size; off += 1 << 20 {
		r := c.Read(uint64(off), min(1<<20, size-off), 0)
		require.NoError(rt, c.Do(r))
		all = append(all, r.Got...)
	}
	return all
}

// note notes what was answered.
func (m *crashes) note() {
	for i := range m.open {
		if e := &m.open[i]; e.req.Completed() && e.req.Err == nil {
			m.answered(e)
		}
	}
}

func drawCrash(rt *rapid.T) crash {
	return crash{
		power: rapid.Bool().Draw(rt, "power"),
		seed:  rapid.Uint64().Draw(rt, "lines"),
		part:  rapid.SampledFrom([]uint8{0, 40, 128, 250}).Draw(rt, "of 256"),
	}
}

// evict has some cache lines written back.
func (m *crashes) evict(rt *rapid.T) {
	c := drawCrash(rt)
	m.s.mem.Evict(pmemsim.Seeded(c.seed, c.part))
}

// crash ends the target, now or when it is about to write something back, for a
// barrier or in a grant; it comes back, perhaps not at the first try.
func (m *crashes) crash(rt *rapid.T) {
	m.room(rt)
	c := drawCrash(rt)
	at := rapid.IntRange(0, 8).Draw(rt, "at write-back") // 0: now
	resuming := rapid.Bool().Draw(rt, "while resuming")
	away := rapid.Bool().Draw(rt, "submit while away")
	var starts []int
	if rapid.IntRange(0, 3).Draw(rt, "starts") == 0 {
		starts = append(starts, rapid.IntRange(1, 3).Draw(rt, "crash at start"))
	}
	answered := make(chan struct{})
	if at > 0 {
		crashed := m.s.crashAt(at, c)
		m.batch(rt)
		if resuming {
			m.s.network.Cut()
		}
		m.batch(rt)
		go await(slices.Clone(m.open), answered)
		select {
		case <-crashed:
		case <-answered:
		}
	} else {
		m.batch(rt)
		close(answered)
	}
	m.s.crash(c)
	if away {
		m.batch(rt)
	}
	lost := m.restart(rt, c, starts...)
	<-answered
	if lost {
		m.bury(rt)
	}
}

// await waits until all is answered, or one with an error. What is open is its own:
// the model notes what else may be read while it waits.
func await(open []expectation, answered chan<- struct{}) {
	defer close(answered)
	for _, e := range open {
		if e.client.Wait(e.req) != nil {
			return
		}
	}
}

// restart restarts the target after crash c, and looks at what it found. If the
// contents are lost, the device is doomed.
func (m *crashes) restart(rt *rapid.T, c crash, starts ...int) (lost bool) {
	m.note()
	found, lost := m.s.restart(c, starts...)
	require.NoError(rt, m.past.survived(found), "what the target finds")
	if lost {
		require.True(rt, m.doubtful(), "nothing was lost that could have been read")
		m.doomed = true
	}
	return lost
}

// bury sees a doomed device fail for good, and makes a new owner.
func (m *crashes) bury(rt *rapid.T) {
	m.settle(rt)
	c := m.clients[0]
	require.ErrorIs(rt, c.Do(c.Flush()), backend.ErrFailed)
	require.ErrorIs(rt, c.Do(c.Write(0, backendtest.Pattern(4096, 0), 0)), backend.ErrFailed)
	require.Error(rt, m.p.close())
	m.refused(rt, m.p)
	m.newOwner(rt)
}

// owner gives the region to a new owner, after the present one closed, or not: with
// its messages held on the way, its connections lost, or its end under way. The
// target may crash in the grant. Nothing of the old owner lands from then on.
func (m *crashes) owner(rt *rapid.T) {
	m.room(rt)
	how := rapid.SampledFrom([]string{"closed", "frozen", "cut", "closing"}).Draw(rt, "how")
	c := drawCrash(rt)
	at := rapid.IntRange(0, 8).Draw(rt, "crash at write-back") // 0: not
	doubt := rapid.Bool().Draw(rt, "crash in doubt")
	other := rapid.Bool().Draw(rt, "another id")
	before, old, client := m.p, m.dev, m.clients[0]
	if other {
		m.id = 3 - m.id
	}
	if how == "closed" {
		m.settle(rt)
		require.NoError(rt, before.close())
		require.NoError(rt, old.Close())
		require.True(rt, m.s.region.Superblock().Clean)
		m.past.closed()
		if other {
			m.newOwner(rt)
			m.refused(rt, before)
		} else {
			before.leave()
			p := m.s.process(m.id, before.left)
			require.NoError(rt, p.dial(m.s.w.lanes, false))
			m.inherit(rt, p, m.past.survived)
		}
		m.inherits = false
		return
	}
	if how == "frozen" {
		m.s.network.Freeze()
	}
	m.batch(rt)
	switch how {
	case "cut":
		m.s.network.Cut()
	case "closing":
		go before.close() //nolint:errcheck // it is closed again, and that waits
	}
	m.s.set(&m.s.slow, doubt)
	p := m.take(rt, at, c)
	m.note()
	m.inherit(rt, p, m.past.survived)
	m.s.network.Thaw()
	if how != "closing" {
		client.Submit(client.Write(0, backendtest.Pattern(size/4, 0), 0))
	}
	_ = before.close() // it may have had nothing to lose
	_ = old.Close()
	m.refused(rt, before)
	require.True(rt, bytes.Equal(m.data, m.readAll(rt)), "something of the old owner landed")
	m.s.sweep(m.p)
	if doubt {
		m.crashInDoubt(rt)
	}
}

// crashInDoubt ends the target while the flush of the whole extent lasts, of which
// the owner's first FLUSH has to wait for the end.
func (m *crashes) crashInDoubt(rt *rapid.T) {
	c := drawCrash(rt)
	if rapid.Bool().Draw(rt, "resume before") {
		m.s.network.Cut()
		require.True(rt, bytes.Equal(m.data, m.readAll(rt)))
	}
	e := expectation{client: m.clients[0], req: m.clients[0].Flush(), entry: m.past.end(), what: "flush in doubt"}
	e.reply = m.p.listens(&e.req.Op)
	m.open = append(m.open, e)
	e.client.Submit(e.req)
	m.batch(rt)
	m.s.crash(c)
	m.s.set(&m.s.slow, false)
	if m.restart(rt, c) {
		m.bury(rt)
	}
}

// take opens a session of a new owner while the old one is alive, or what it had sent
// still comes, and the target crashes at a step of that; at 0 it does not.
func (m *crashes) take(rt *rapid.T, at int, c crash) *process {
	if at > 0 {
		crashed := m.s.crashAt(at, c)
		p := m.s.process(m.id, m.s.state())
		p.start(m.s.w.lanes, true)
		early := false
		select {
		case <-p.opened:
			early = true
		case <-crashed: // it tries again
		}
		m.s.crash(c)
		m.note()
		found, lost := m.s.restart(c)
		require.NoError(rt, m.past.survived(found), "what the target finds")
		<-p.opened
		switch {
		case p.err == nil && !lost:
			return p
		case p.err == nil:
			m.s.set(&m.s.slow, false) // if it were to flush, it need not wait
			err := p.close()
			require.False(rt, early && err == nil, "it inherited doubt, and the power went")
		}
	}
	for {
		p := m.s.process(m.id, m.s.state())
		err := p.dial(m.s.w.lanes, true)
		var refused *remote.RefusedError
		if errors.As(err, &refused) && (refused.Code == wire.CodeBusy || refused.Code == wire.CodeEpoch) {
			require.NoError(rt, os.RemoveAll(p.dir))
			continue // the old one was faster
		}
		require.NoError(rt, err)
		return p
	}
}

// end ends a run in which all went well: what is flushed is all there is.
func (m *crashes) end(rt *rapid.T) {
	m.flush(rt)
	c := crash{power: true}
	m.s.crash(c)
	require.False(rt, m.restart(rt, c))
	require.True(rt, bytes.Equal(m.data, m.readAll(rt)))
	backendtest.AllBack(m.t, m.dev)
}

// close closes what was opened.
func (m *crashes) close(rt *rapid.T, whole bool) {
	m.s.revive()
	if m.p != nil {
		if !whole { // what a check found may never end
			m.p.abandon()
		}
		err := m.p.close()
		if whole {
			require.NoError(rt, err)
			require.True(rt, m.s.region.Superblock().Clean)
		}
	}
	m.s.close()
}
