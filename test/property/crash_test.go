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
	"pmnbd/internal/testhost"
	"pmnbd/persist/region"
	"pmnbd/rdma/rdmafake"
	"pmnbd/test/pmemsim"
)

var worlds = []world{
	{"gpspm", region.DomainMemory, rdmafake.Config{}, false, 1, "gpspm", 0},
	{"gpspm, three lanes, tiny queues, an adapter", region.DomainMemory, rdmafake.Config{MaxSendWR: 3, MaxReads: 1, PlacesByDMA: true}, false, 3, "gpspm", 0},
	{"apm on eADR", region.DomainCaches, rdmafake.Config{}, false, 2, "apm", 0},
	{"apm on eADR, an adapter", region.DomainCaches, rdmafake.Config{PlacesByDMA: true}, false, 1, "apm", 0},
	{"apm on ADR, an adapter past the caches", region.DomainMemory, rdmafake.Config{PlacesByDMA: true}, true, 2, "apm", 0},
	{"flush, an adapter", region.DomainMemory, rdmafake.Config{PersistentFlush: true, MaxSendWR: 4, PlacesByDMA: true}, false, 2, "flush", 0},
	{"gpspm, four parts", region.DomainMemory, rdmafake.Config{}, false, 2, "gpspm", 4},
	{"apm on eADR, four parts", region.DomainCaches, rdmafake.Config{}, false, 1, "apm", 4},
	{"flush, an adapter, four parts", region.DomainMemory, rdmafake.Config{PersistentFlush: true, MaxSendWR: 4, PlacesByDMA: true}, false, 2, "flush", 4},
}

// TestCrashes lets targets, networks and initiators crash. After any crash the medium holds
// what was flushed, and as long as the device lives a READ returns what was written last. The
// device fails only if another owner had its region, or if the region lost bytes that were not
// durable and that somebody may have read. A process that adopts the window of a killed one has
// every write that the killed one acknowledged, or reports the loss.
//
// The flag -crashes keeps it going until it has counted that many crashes.
func TestCrashes(t *testing.T) {
	fewer(t, 20)
	untilWanted(t, manyCrashes)
}

// untilWanted repeats check until it has counted as many crashes as the flag -crashes wants.
func untilWanted(t *testing.T, check func(testing.TB, *rapid.T, turns)) {
	testhost.Memory(t) // a check cannot skip the test
	began, before := time.Now(), crashed.Load()
	defer func() {
		n, s := crashed.Load()-before, time.Since(began).Seconds()
		t.Logf("%d crashes in %.0f s, %.1f a second", n, s, float64(n)/s)
	}()
	end, bounded := t.Deadline()
	for {
		seeded(t, func() { rapid.Check(t, bubble(t, check)) })
		if crashed.Load()-before >= *wanted {
			return
		}
		require.False(t, bounded && time.Until(end) < time.Minute, "there is no time left for %d crashes", *wanted)
	}
}

var wanted = flag.Int64("crashes", 0, "how many crashes TestCrashes and TestMirrorCrashes make, at least")

// manyCrashes is one check.
func manyCrashes(t testing.TB, rt *rapid.T, turns turns) {
	w := worlds[rapid.IntRange(0, len(worlds)-1).Draw(rt, "world")]
	rt.Log(w.name)
	s := newStation(t, w, turns, nil)
	m := &crashes{s: s, id: 1, model: &model{t: t, past: history{base: make([]byte, size)}}}
	whole := false
	defer func() { m.close(rt, whole) }()
	m.newOwner(rt)
	m.inherits = false // no owner was there before
	require.Equal(m.t, w.method, m.dev.Snapshot().Method)
	rt.Repeat(map[string]func(*rapid.T){
		"submit": m.submit, "submit more": m.submit, "wait": m.drain, "flush": m.flush, "hang up": m.hangUp,
		"lose": m.lose, "evict": m.evict, "crash": m.crash, "owner": m.owner, "kill": m.kill, "second": m.second,
	})
	m.end(rt)
	whole = true
}

// seeded starts rapid with a seed that bubble knows, unless the command line names one.
func seeded(t *testing.T, check func()) {
	f := flag.Lookup("rapid.seed")
	if was := f.Value.String(); was == f.DefValue {
		require.NoError(t, f.Value.Set(strconv.FormatUint(rand.Uint64(), 10)))
		defer func() { _ = f.Value.Set(was) }()
	}
	check()
}

// fewer limits rapid to n checks, unless the command line says how many.
func fewer(t *testing.T, n int) {
	f := flag.Lookup("rapid.checks")
	if was := f.Value.String(); was == f.DefValue {
		require.NoError(t, f.Value.Set(strconv.Itoa(n)))
		t.Cleanup(func() { require.NoError(t, f.Value.Set(was)) })
	}
}

// A crashes is a model whose target crashes and grants the region to other owners.
type crashes struct {
	*model
	s        *station
	id       byte // the present owner's
	p        *process
	dev      *remote.Device
	inherits bool // the previous owner did not close
}

// doubtful reports whether the owner may have read bytes that are not durable.
func (m *crashes) doubtful() bool { return m.inherits && m.durable == 0 }

// newOwner opens a session of a new owner, which finds no window.
func (m *crashes) newOwner(rt *rapid.T) {
	m.inherit(rt, m.take(rt, 0, crash{}), m.past.survived)
}

// inherit makes p the model's process. p reads the whole device, and right judges what it read.
// From then on the model expects those bytes.
func (m *crashes) inherit(rt *rapid.T, p *process, right func([]byte) error) {
	m.p, m.dev, m.model.s = p, p.dev, subject{dev: p.dev, network: m.s.network, process: p}
	m.open, m.reading, m.held, m.doomed, m.inherits, m.durable = nil, 0, 0, false, true, 0
	m.connect()
	m.data = m.readAll(rt)
	require.NoError(m.t, right(m.data), "a new owner found other bytes")
	m.past.add(change{0, bytes.Clone(m.data)}, false)
}

// readAll reads the whole device.
func (m *crashes) readAll(rt *rapid.T) (all []byte) {
	c := m.clients[0]
	all = make([]byte, 0, size)
	for off := 0; off < size; off += 1 << 20 {
		r := c.Read(uint64(off), min(1<<20, size-off), 0)
		require.NoError(m.t, c.Do(r))
		all = append(all, r.Got...)
	}
	return all
}

// note records which open requests have completed.
func (m *crashes) note() {
	for i := range m.open {
		if e := &m.open[i]; e.req.Completed() && e.req.Err == nil {
			m.completed(e)
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

// evict writes some cache lines back.
func (m *crashes) evict(rt *rapid.T) {
	c := drawCrash(rt)
	m.s.mem.Evict(pmemsim.Seeded(c.seed, c.part))
}

// crash ends the target, now or when it is about to write something back for a barrier or in a
// grant. The target then comes back, perhaps not at the first try.
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
	completed := make(chan struct{})
	if at > 0 {
		crashed := m.s.crashAt(at, c)
		m.batch(rt)
		if resuming {
			m.s.network.Cut()
		}
		m.batch(rt)
		go await(slices.Clone(m.open), completed)
		select {
		case <-crashed:
		case <-completed:
		}
	} else {
		m.batch(rt)
		close(completed)
	}
	m.s.crash(c)
	if away {
		m.batch(rt)
	}
	lost := m.restart(rt, c, starts...)
	<-completed
	if lost {
		m.bury(rt)
	}
}

// await waits until every request has completed, or one has failed. open must be a
// copy, because the model goes on changing its own requests meanwhile.
func await(open []expectation, completed chan<- struct{}) {
	defer close(completed)
	for _, e := range open {
		if e.client.Wait(e.req) != nil {
			return
		}
	}
}

// restart starts the target again after crash c and checks what the target found. If the
// contents are lost the device must fail from here on.
func (m *crashes) restart(rt *rapid.T, c crash, starts ...int) (lost bool) {
	m.note()
	found, lost := m.s.restart(c, starts...)
	require.NoError(m.t, m.past.survived(found), "the target found other bytes")
	if lost {
		require.True(m.t, m.doubtful(), "the contents count as lost, but nobody can have read them")
		m.doomed = true
	}
	return lost
}

// bury checks that a doomed device fails for good, then opens a new owner's session.
func (m *crashes) bury(rt *rapid.T) {
	m.drain(rt)
	c := m.clients[0]
	require.ErrorIs(m.t, c.Do(c.Flush()), backend.ErrFailed)
	require.ErrorIs(m.t, c.Do(c.Write(0, backendtest.Pattern(4096, 0), 0)), backend.ErrFailed)
	require.Error(m.t, m.p.close())
	m.refused(rt, m.p)
	m.newOwner(rt)
}

// owner gives the region to a new owner. Before that the old one closes, or its messages stay
// on the wire, or it loses its connections, or it is in the middle of its Close. The target may
// crash in the grant. From the grant on nothing of the old owner may land.
func (m *crashes) owner(rt *rapid.T) {
	m.room(rt)
	how := rapid.SampledFrom([]string{"closed", "frozen", "cut", "closing"}).Draw(rt, "how")
	c := drawCrash(rt)
	at := rapid.IntRange(0, 8).Draw(rt, "crash at write-back") // 0: no crash
	doubt := rapid.Bool().Draw(rt, "crash in doubt")
	other := rapid.Bool().Draw(rt, "another id")
	before, old, client := m.p, m.dev, m.clients[0]
	if other {
		m.id = 3 - m.id
	}
	if how == "closed" {
		m.drain(rt)
		require.NoError(m.t, before.close())
		require.NoError(m.t, old.Close())
		require.True(m.t, m.s.region.Superblock().Clean)
		m.past.closed()
		if other {
			m.newOwner(rt)
			m.refused(rt, before)
		} else {
			before.leave()
			p := m.s.process(m.id, before.left)
			require.NoError(m.t, p.dial(m.s.w.lanes, false))
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
		go before.close() //nolint:errcheck // it is closed again below, and that call waits
	}
	m.s.set(&m.s.slow, doubt)
	p := m.take(rt, at, c)
	m.note()
	m.inherit(rt, p, m.past.survived)
	m.s.network.Thaw()
	if how != "closing" {
		client.Submit(client.Write(0, backendtest.Pattern(size/4, 0), 0))
	}
	_ = before.close() // an error is fine: it may have had nothing to lose
	_ = old.Close()
	m.refused(rt, before)
	require.True(m.t, bytes.Equal(m.data, m.readAll(rt)), "bytes of the old owner landed")
	m.s.sweep(m.p)
	if doubt {
		m.crashInDoubt(rt)
	}
}

// crashInDoubt ends the target while it flushes the whole extent. The owner's first FLUSH has
// to wait for that flush.
func (m *crashes) crashInDoubt(rt *rapid.T) {
	c := drawCrash(rt)
	if rapid.Bool().Draw(rt, "resume before") {
		m.s.network.Cut()
		require.True(m.t, bytes.Equal(m.data, m.readAll(rt)))
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

// take opens a session of a new owner while the old one is alive, or while messages of the old
// one still arrive. The target crashes at the nth write-back of this, or not at all if at is 0.
func (m *crashes) take(rt *rapid.T, at int, c crash) *process {
	if at > 0 {
		crashed := m.s.crashAt(at, c)
		p := m.s.process(m.id, m.s.state())
		p.start(m.s.w.lanes, true)
		early := false
		select {
		case <-p.opened:
			early = true
		case <-crashed: // the process tries again
		}
		m.s.crash(c)
		m.note()
		found, lost := m.s.restart(c)
		require.NoError(m.t, m.past.survived(found), "the target found other bytes")
		<-p.opened
		switch {
		case p.err == nil && !lost:
			return p
		case p.err == nil:
			m.s.set(&m.s.slow, false) // so that a flush of its Close need not wait
			err := p.close()
			require.False(m.t, early && err == nil, "a Close succeeded although the power failed in inherited doubt")
		}
	}
	for {
		p := m.s.process(m.id, m.s.state())
		err := p.dial(m.s.w.lanes, true)
		var refused *remote.RefusedError
		if errors.As(err, &refused) && (refused.Reason() == remote.ReasonBusy || refused.Reason() == remote.ReasonEpoch) {
			require.NoError(m.t, os.RemoveAll(p.dir))
			continue // the old process was faster
		}
		require.NoError(m.t, err)
		return p
	}
}

// end ends a run in which nothing failed: the target must hold exactly what was flushed.
func (m *crashes) end(rt *rapid.T) {
	m.flush(rt)
	c := crash{power: true}
	m.s.crash(c)
	require.False(m.t, m.restart(rt, c))
	require.True(m.t, bytes.Equal(m.data, m.readAll(rt)))
	backendtest.AllBack(m.t, m.dev)
}

// close closes the model's process and station.
func (m *crashes) close(rt *rapid.T, whole bool) {
	m.s.revive()
	if m.p != nil {
		if !whole { // after a failed check its Close might never return
			m.p.giveUp()
		}
		err := m.p.close()
		if whole {
			require.NoError(m.t, err)
			require.True(m.t, m.s.region.Superblock().Clean)
		}
	}
	m.s.close()
}
