package target

import (
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// memberOf returns a record of r as member A of a mirror with A, B and C, in generation
// life.count. Slot D is free.
func memberOf(r *region.Region, life, count uint64, f persist.Members) persist.Record {
	rec := persist.Record{
		Set: [16]byte{0x5e}, MinCopies: 1,
		Ancestor: persist.Ancestor{Generation: persist.Generation{Life: life, Count: count, Nonce: [16]byte{byte(life)}}, F: f},
		Members:  [persist.MaxMembers]persist.Membership{{UUID: r.UUID()}, {UUID: [16]byte{0xb}}, {UUID: [16]byte{0xc}}},
	}
	return rec
}

const memberA, memberB, memberC, memberD = persist.Members(1), persist.Members(2), persist.Members(4), persist.Members(8)

// openLife gets a session of a life.
func (p *peer) openLife(owner persist.Owner, life uint64, flags wire.OpenFlags) (o wire.Opened) {
	p.t.Helper()
	r := p.refused(owner, 0)
	p.ask(&wire.Open{Methods: everyMethod, Owner: owner, Epoch: r.Epoch, Region: "log", Flags: wire.OpenAllowVolatile | flags, Life: life}, &o)
	return o
}

// record replaces the record.
func (p *peer) record(rec persist.Record, fill persist.Members) {
	p.t.Helper()
	var done wire.Recorded
	p.ask(&wire.Record{Seq: 7, Record: rec, Fill: fill}, &done)
	require.Equal(p.t, wire.Recorded{Seq: 7}, done)
}

// become makes the region of s a member of a mirror, with F, in life 1, and leaves a
// session on it.
func (s *site) become(t *testing.T, f persist.Members) (*peer, wire.Opened) {
	p := s.connect(t)
	o := p.openLife(alice, 1, wire.OpenJoin)
	p.record(memberOf(s.region, 1, 1, f), 0)
	return p, o
}

// Who may open a member, and with which life.
func TestLife(t *testing.T) {
	const takeover, single, join = wire.OpenTakeover, wire.OpenSingle, wire.OpenJoin
	for name, c := range map[string]struct {
		member bool // in life 5; else the region never had a life
		life   uint64
		flags  wire.OpenFlags
		held   bool // by bob
		code   wire.Code
		after  uint64 // the persisted life
	}{
		"single region":                        {},
		"single region, as a single one":       {flags: single},
		"single region that is to join":        {life: 1, flags: join, after: 1},
		"single region that could join":        {flags: join},
		"single region with a life":            {life: 1, code: wire.CodeNoMember},
		"single region, taken over for a life": {life: 9, flags: takeover, held: true, code: wire.CodeNoMember},
		"member without a life":                {member: true, code: wire.CodeMember, after: 5},
		"member to join, without a life":       {member: true, flags: join, code: wire.CodeMember, after: 5},
		"member taken over without a life":     {member: true, flags: takeover, held: true, code: wire.CodeMember, after: 5},
		"member as a single region":            {member: true, flags: single, after: 5},
		"life before":                          {member: true, life: 4, code: wire.CodeLife, after: 5},
		"the same life":                        {member: true, life: 5, code: wire.CodeLife, after: 5},
		"the same life, as a single region":    {member: true, life: 5, flags: single, code: wire.CodeLife, after: 5},
		"the same life takes over":             {member: true, life: 5, flags: takeover, held: true, code: wire.CodeLife, after: 5},
		"the same life joins":                  {member: true, life: 5, flags: join, code: wire.CodeLife, after: 5},
		"next life":                            {member: true, life: 6, after: 6},
		"next life takes over":                 {member: true, life: 6, flags: takeover, held: true, after: 6},
		"next life without a takeover":         {member: true, life: 6, held: true, code: wire.CodeBusy, after: 5},
		"largest life":                         {member: true, life: ^uint64(0), after: ^uint64(0)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if c.member {
				require.NoError(t, s.region.Update(func(sb *region.Superblock) error { sb.Life = 5; return nil }))
				require.NoError(t, s.region.SetRecord(memberOf(s.region, 5, 1, memberA|memberB), 0))
			}
			rec, life := s.region.Superblock().Record, s.region.Superblock().Life
			if c.held {
				require.NoError(t, s.region.Update(func(sb *region.Superblock) error { sb.Owner, sb.Clean = bob, false; return nil }))
			}
			p := s.connect(t)
			m := wire.Open{Methods: everyMethod, Owner: alice, Region: "log", Flags: c.flags, Life: c.life}
			var r wire.Refused
			p.ask(&m, &r)
			if c.code == wire.CodeBusy {
				require.Equal(t, wire.CodeBusy, r.Code)
			} else {
				require.Equal(t, wire.CodeEpoch, r.Code, "a probe is told the epoch and the record first")
			}
			require.Equal(t, rec, r.Record)
			require.Equal(t, life, r.Life)
			m.Epoch = r.Epoch
			if c.code != 0 {
				p.ask(&m, &r)
				require.Equal(t, c.code, r.Code, r.Text)
				require.Equal(t, rec, r.Record)
				require.Equal(t, life, r.Life)
				require.Equal(t, m.Epoch, s.region.Superblock().Epoch)
			} else {
				var o wire.Opened
				p.ask(&m, &o)
				require.Equal(t, rec, o.Record)
				require.Equal(t, c.after, o.Life)
				require.NoError(t, p.write(o, 1, 0, []byte("fine")))
			}
			require.Equal(t, c.after, s.region.Superblock().Life)
		})
	}
}

// A life that is refused has destroyed nothing: the session that it wanted to end goes on.
func TestRefusedLifeDestroysNothing(t *testing.T) {
	s := newSite(t)
	old, o := s.become(t, memberA)
	for name, life := range map[string]uint64{"no life": 0, "the same life": 1} {
		var r wire.Refused
		s.connect(t).ask(&wire.Open{Methods: everyMethod, Owner: bob, Epoch: o.Epoch, Region: "log", Flags: wire.OpenTakeover, Life: life}, &r)
		require.Contains(t, []wire.Code{wire.CodeMember, wire.CodeLife}, r.Code, name)
		require.NoError(t, old.write(o, 1, 0, []byte("still hers")), name)
	}
	var n wire.Opened
	s.connect(t).ask(&wire.Open{Methods: everyMethod, Owner: bob, Epoch: o.Epoch, Region: "log", Flags: wire.OpenTakeover, Life: 2}, &n)
	require.Error(t, old.write(o, 2, 0, []byte("not any more")))
}

// A life that lost its connections comes back as itself. Its number need not grow, and
// RESUME does not look at it. A later life that takes the region over ends that.
func TestResumeWithinALife(t *testing.T) {
	s := newSite(t)
	_, o := s.become(t, memberA|memberB)
	for _, life := range []uint64{1, 0, 9} {
		p := s.connect(t)
		var n wire.Opened
		p.ask(&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log", Life: life}, &n)
		require.EqualValues(t, 1, n.Life)
		require.Equal(t, memberOf(s.region, 1, 1, memberA|memberB), n.Record)
		o = n
	}
	next := alice
	next.Nonce[0]++
	s.connect(t).openLife(next, 2, 0)
	var r wire.Refused
	p := s.connect(t)
	p.ask(&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log", Life: 1}, &r)
	require.Equal(t, wire.CodeNotOwner, r.Code)
}

// A refusal that says nothing about the region says nothing about its mirror.
func TestRefusalsThatTellNothing(t *testing.T) {
	s := serveRegion(t, onDisk(t), nil, Config{Allow: map[string][][16]byte{"log": {alice.ID}}})
	s.become(t, memberA)
	for name, m := range map[string]*wire.Open{
		"not allowed":    {Methods: everyMethod, Owner: bob, Region: "log"},
		"unknown region": {Methods: everyMethod, Owner: alice, Region: "gol"},
	} {
		var r wire.Refused
		s.connect(t).ask(m, &r)
		require.Zero(t, r.UUID, name)
		require.Zero(t, r.Record, name)
		require.Zero(t, r.Life, name)
	}
	require.NotZero(t, s.connect(t).refused(alice, 0).Record)
}

// A grant looks at the record again when the old session has ended: that may just have
// made the region a member.
func TestGrantLooksAtTheRecordAgain(t *testing.T) {
	began, proceed := make(chan struct{}), make(chan struct{})
	var hold atomic.Bool
	s := serveRegion(t, onDisk(t), func(fd int) error {
		if hold.Swap(false) {
			began <- struct{}{}
			<-proceed
		}
		return unix.Fdatasync(fd)
	}, Config{})
	old := s.connect(t)
	o := old.openLife(alice, 1, wire.OpenJoin)
	rec := memberOf(s.region, 1, 1, memberA)
	hold.Store(true)
	old.send((&wire.Record{Seq: 1, Record: rec}).Append(nil))
	<-began
	p := s.connect(t)
	p.send((&wire.Open{Methods: everyMethod, Owner: bob, Epoch: o.Epoch, Region: "log", Flags: wire.OpenTakeover}).Append(nil))
	_, err := old.receive()
	require.ErrorIs(t, err, rdma.ErrLost, "the grant has begun")
	close(proceed)
	var r wire.Refused
	require.NoError(t, p.decode(&r))
	require.Equal(t, wire.CodeMember, r.Code, r.Text)
	require.Equal(t, rec, r.Record)
	require.Equal(t, o.Epoch, s.region.Superblock().Epoch)
}

// A RECORD is durable before RECORDED, in memory of the CPU and on a disk.
func TestRecordIsDurableFirst(t *testing.T) {
	t.Run("pmem", func(t *testing.T) {
		s := newTracedSite(t, Config{})
		p := s.connect(t) // connection 0
		p.openLife(alice, 1, wire.OpenJoin)
		s.trace.reset()
		for count := range uint64(2) {
			p.record(memberOf(s.region, 1, count+1, memberA), memberB)
			events := s.trace.reset()
			require.Contains(t, events, "persist record")
			require.Equal(t, len(events)-1, slices.Index(events, "RECORDED to 0"), "%q", events)
		}
	})
	t.Run("file", func(t *testing.T) {
		began, proceed := make(chan struct{}, 16), make(chan struct{})
		var hold atomic.Bool
		path := onDisk(t)
		s := serveRegion(t, path, func(fd int) error {
			if hold.Load() {
				began <- struct{}{}
				<-proceed
			}
			return unix.Fdatasync(fd)
		}, Config{})
		p := s.connect(t)
		p.openLife(alice, 1, wire.OpenJoin)
		hold.Store(true)
		rec := memberOf(s.region, 1, 1, memberA)
		p.send((&wire.Record{Seq: 3, Record: rec}).Append(nil))
		<-began
		for seq := range uint64(2) { // the lane goes on meanwhile
			var hb wire.HeartbeatAck
			p.ask(&wire.Heartbeat{Seq: seq}, &hb)
			require.Zero(t, hb.Barrier)
		}
		hold.Store(false)
		close(proceed)
		var done wire.Recorded
		require.NoError(t, p.decode(&done))
		require.Equal(t, wire.Recorded{Seq: 3}, done)
		info, err := region.Inspect(path)
		require.NoError(t, err)
		require.Equal(t, rec, info.Superblock.Record)
	})
	t.Run("protected", func(t *testing.T) {
		for step, n := range map[string]int64{"the write of the header": 1, "its sync": 2} {
			t.Run(step, func(t *testing.T) { testRecordOfProtected(t, n) })
		}
	})
}

// testRecordOfProtected sends a RECORD to a region of class protected, and holds step n of what the disk of its image
// does for that. The target answers heartbeats meanwhile, and a barrier, which needs no disk.
func testRecordOfProtected(t *testing.T, n int64) {
	began, proceed := make(chan struct{}, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(proceed) })
	var steps atomic.Int64 // how many the disk does before it hangs, and that one
	s := serveProtected(t, func() error {
		if steps.Add(-1) == 0 {
			began <- struct{}{}
			<-proceed
		}
		return nil
	})
	t.Cleanup(release) // before the server is stopped
	p := s.connect(t)
	o := p.openLife(alice, 1, wire.OpenJoin)
	steps.Store(n)
	rec := memberOf(s.region, 1, 1, memberA)
	p.send((&wire.Record{Seq: 3, Record: rec}).Append(nil))
	<-began
	for seq := range uint64(2) {
		var hb wire.HeartbeatAck
		p.ask(&wire.Heartbeat{Seq: seq}, &hb)
	}
	require.NoError(t, p.write(o, 1, 0, []byte("beside it")))
	require.Zero(t, s.region.Superblock().Record)
	release()
	var done wire.Recorded
	require.NoError(t, p.decode(&done))
	require.Equal(t, wire.Recorded{Seq: 3}, done)
	info, err := region.Inspect(s.path)
	require.NoError(t, err)
	require.Equal(t, rec, info.Superblock.Record)
}

// The next RECORD may follow RECORDED at once.
func TestRecordAfterRecord(t *testing.T) {
	s := newSite(t)
	p, o := s.become(t, memberA|memberB)
	for count := range uint64(peerBuffers - 10) { // as many answers as p can receive
		p.record(memberOf(s.region, 1, count+2, memberA), 0)
	}
	require.NoError(t, p.write(o, 1, 0, []byte("fine")))
}

// What a RECORD may change, and what it may not.
func TestRecord(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*persist.Record) // of generation 1.2 with F = AB, which the region has
		fill   persist.Members
		bad    bool
		bits   [persist.MaxMembers]uint64 // chunks that the members may lack, if it is kept
	}{
		"the same":                {change: func(*persist.Record) {}, bits: [4]uint64{2: 16}},
		"torn, without it in F":   {change: func(r *persist.Record) { r.Count++; r.F, r.Torn = memberB, true }, bits: [4]uint64{2: 16}},
		"torn, in F":              {change: func(r *persist.Record) { r.Count++; r.Torn = true }, bad: true},
		"next generation":         {change: func(r *persist.Record) { r.Count++ }, bits: [4]uint64{2: 16}},
		"a member leaves F":       {change: func(r *persist.Record) { r.Count++; r.F = memberA }, bits: [4]uint64{2: 16}},
		"it leaves with all bits": {change: func(r *persist.Record) { r.Count++; r.F = memberA }, fill: memberB, bits: [4]uint64{1: 16, 2: 16}},
		"fill of all, F too":      {change: func(r *persist.Record) { r.Count++ }, fill: memberA | memberB | memberC, bits: [4]uint64{2: 16}},
		"a member joins F":        {change: func(r *persist.Record) { r.Count++; r.F |= memberC }},
		"a new member": {change: func(r *persist.Record) { r.Count++; r.Members[3].UUID = [16]byte{0xd} },
			bits: [4]uint64{2: 16, 3: 16}},
		"end of the membership":       {change: func(r *persist.Record) { *r = persist.Record{} }},
		"end of it, with bits":        {change: func(r *persist.Record) { *r = persist.Record{} }, fill: memberB, bad: true},
		"older generation":            {change: func(r *persist.Record) { r.Count-- }, bad: true},
		"generation of another nonce": {change: func(r *persist.Record) { r.Nonce[0]++ }, bad: true},
		"generation of a later life":  {change: func(r *persist.Record) { r.Life++ }, bad: true},
		"another set":                 {change: func(r *persist.Record) { r.Count++; r.Set[0]++ }, bad: true},
		"another slot":                {change: func(r *persist.Record) { r.Count++; r.Slot = 1 }, bad: true},
		"another region in the slot":  {change: func(r *persist.Record) { r.Count++; r.Members[0].UUID[0]++ }, bad: true},
		"members exchanged": {change: func(r *persist.Record) {
			r.Count++
			r.Members[0], r.Members[1] = r.Members[1], r.Members[0]
			r.Slot = 1
		}, bad: true},
		"another F in the same generation":  {change: func(r *persist.Record) { r.F = memberA }, bad: true},
		"other copies, the same generation": {change: func(r *persist.Record) { r.MinCopies = 2 }, bad: true},
		"bits of a free slot":               {change: func(r *persist.Record) { r.Count++ }, fill: memberD, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			p := s.connect(t)
			o := p.openLife(alice, 1, wire.OpenJoin)
			was := memberOf(s.region, 1, 2, memberA|memberB)
			p.record(was, 0)
			rec := was
			c.change(&rec)
			if c.bad {
				p.send((&wire.Record{Seq: 1, Record: rec, Fill: c.fill}).Append(nil))
				_, err := p.receive()
				require.ErrorIs(t, err, rdma.ErrLost)
				require.Equal(t, was, s.region.Superblock().Record)
				require.NoError(t, s.region.Failed())
				var n wire.Opened
				s.connect(t).ask(&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log"}, &n)
				return
			}
			p.record(rec, c.fill)
			require.Equal(t, rec, s.region.Superblock().Record)
			for slot, n := range c.bits {
				require.Equal(t, n, s.region.BitsSet(slot), persist.Member(slot))
			}
		})
	}
}

// A record that cannot be made durable has no RECORDED, and the region fails.
func TestRecordFails(t *testing.T) {
	var fail atomic.Bool
	s := serveRegion(t, onDisk(t), func(fd int) error {
		if fail.Load() {
			return unix.EIO
		}
		return unix.Fdatasync(fd)
	}, Config{})
	p, _ := s.become(t, memberA)
	fail.Store(true)
	p.send((&wire.Record{Seq: 1, Record: memberOf(s.region, 1, 2, memberA)}).Append(nil))
	_, err := p.receive()
	require.ErrorIs(t, err, rdma.ErrLost)
	require.Equal(t, wire.CodeFailed, s.connect(t).refused(alice, 0).Code)
}

// A member can be used under every method. While a member is out, barriers come under
// all of them.
func TestBitsUnderAPM(t *testing.T) {
	dir := testhost.Disk(t)
	s := serveWith(t, filepath.Join(dir, "region"), regiontest.EADR, Config{})
	p := s.connect(t)
	o := p.openLife(alice, 1, wire.OpenJoin)
	require.Equal(t, persist.MethodAPM, o.Method)
	p.record(memberOf(s.region, 1, 1, memberA|memberB), 0)
	p.record(memberOf(s.region, 1, 2, memberA), 0)
	require.Zero(t, s.region.BitsSet(1))
	require.NoError(t, p.write(o, 1, 0, []byte("by gpspm")))
	require.EqualValues(t, 1, s.region.BitsSet(1))
}

// A RECORD that is under way keeps out another one until the peer can have its answer, and
// ends before its lane does.
func TestRecordUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conn{}
		y := &syncer{wake: make(chan struct{}, 1)}
		y.idle.L = &y.mu
		under := &recordJob{c: c}
		y.recording = under
		require.ErrorIs(t, y.addRecord(&recordJob{c: c}), errStranger)
		under.kept = true
		require.NoError(t, y.addRecord(&recordJob{c: c}))
		require.ErrorIs(t, y.addRecord(&recordJob{c: c}), errStranger)

		forgotten := make(chan struct{})
		go func() {
			defer close(forgotten)
			y.forget(c)
		}()
		synctest.Wait()
		y.mu.Lock()
		require.Nil(t, y.record, "nobody waits for its answer any more")
		y.mu.Unlock()
		select {
		case <-forgotten:
			t.Error("the lane has ended, and its record is being kept")
		default:
		}
		y.mu.Lock()
		y.recording = nil
		y.idle.Broadcast()
		y.mu.Unlock()
		<-forgotten
	})
}

// A member that was served alone has other contents than any record of its mirror names, from its
// first session of that kind on, so that no mirror takes it for equal.
func TestServedAlone(t *testing.T) {
	s := newSite(t)
	first := memberOf(s.region, 1, 1, memberA|memberB)
	first.Members[first.Slot].Contents = s.region.Superblock().Contents
	require.NoError(t, s.region.SetRecord(first, 0))
	was := s.region.Superblock()
	var alone [16]byte
	for i := range 2 {
		p := s.connect(t)
		m := wire.Open{Methods: everyMethod, Owner: alice, Region: "log", Flags: wire.OpenSingle, Epoch: s.region.Superblock().Epoch}
		var o wire.Opened
		p.ask(&m, &o)
		require.NotEqual(t, was.Contents, o.ContentsID)
		if i > 0 {
			require.Equal(t, alone, o.ContentsID)
		}
		alone = o.ContentsID
	}
	rec := s.region.Superblock().Record
	require.Zero(t, rec.Members[rec.Slot].Contents)
	require.Equal(t, was.Record.Ancestor, rec.Ancestor)
}
