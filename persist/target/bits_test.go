package target

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

const chunk = wire.MinChunk // of a region of size

// A kept has what a power loss would leave of a region's bits: what they were when they were
// last made durable.
type kept struct {
	mu   sync.Mutex
	s    *site
	bits [persist.MaxMembers][]byte
}

// bitsOf returns the bits that r has of other members, by slot.
func bitsOf(r *region.Region) (all [persist.MaxMembers][]byte) {
	for slot := range all {
		b := make([]byte, 8)
		if n, err := r.ReadBits(slot, 0, b); err == nil {
			all[slot] = b[:n]
		}
	}
	return all
}

func (k *kept) note() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.s != nil {
		k.bits = bitsOf(k.s.region)
	}
}

// keepers returns, by class, what serves a region and records what it keeps.
func keepers(t *testing.T) map[string]func(cfg Config) (*site, *kept) {
	serve := func(path string, m regiontest.Medium, k *kept, cfg Config) (*site, *kept) {
		s := serveWith(t, path, m, cfg)
		k.mu.Lock()
		k.s = s
		k.mu.Unlock()
		return s, k
	}
	header := func(k *kept) func(off, n uint64) {
		return func(off, _ uint64) {
			if off >= 2*region.CopySize {
				k.note()
			}
		}
	}
	return map[string]func(cfg Config) (*site, *kept){
		"volatile": func(cfg Config) (*site, *kept) {
			k := new(kept)
			return serve(region.PathMemfd, regiontest.Medium{Data: regiontest.Discard, Header: header(k)}, k, cfg)
		},
		"pmem": func(cfg Config) (*site, *kept) {
			k, m := new(kept), regiontest.ADR
			m.Header = header(k)
			return serve(onDisk(t), m, k, cfg)
		},
		"file": func(cfg Config) (*site, *kept) {
			k := new(kept)
			return serve(onDisk(t), regiontest.Medium{Sync: func(fd int) error {
				k.note()
				return unix.Fdatasync(fd)
			}}, k, cfg)
		},
	}
}

// parts sends a barrier in parts and waits for the acknowledgements.
func (p *peer) parts(parts ...wire.Barrier) {
	p.t.Helper()
	for i, b := range parts {
		b.Seq, b.Last = 9, i == len(parts)-1
		var ack wire.BarrierAck
		p.ask(&b, &ack)
		require.Equal(p.t, wire.BarrierAck{Seq: 9, Last: b.Last}, ack)
	}
}

// A barrier that was sent before a record that sets all bits, and comes behind it, clears none of
// them.
func TestClearBehindAFill(t *testing.T) {
	for name, c := range map[string]struct {
		fills uint8 // that the barrier counts
		want  byte
	}{
		"sent before the fill": {0, 0xff},
		"sent behind the fill": {1, 0xfe},
		"of a session before":  {2, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			p, _ := s.become(t, memberA|memberB)
			p.record(memberOf(s.region, 1, 2, memberA), memberB)
			p.parts(wire.Barrier{Clear: []persist.Range{{Len: s.region.ChunkSize()}}, ClearSlot: 1, Fills: c.fills})
			require.Equal(t, c.want, bitsOf(s.region)[1][0])
		})
	}
}

// A barrier sets the bits of its ranges for every member outside F, and clears those that it
// is told to. All of that is durable when it is acknowledged.
func TestBarrierKeepsBits(t *testing.T) {
	type ranges = []persist.Range
	at := func(n int) persist.Range { return persist.Range{Off: uint64(n) * chunk, Len: chunk} }
	byteOf := func(n int) persist.Range { return persist.Range{Off: uint64(n)*chunk + 5, Len: 1} }
	for name, c := range map[string]struct {
		f       persist.Members // C's bits are 0, 1 and 2 before if it is outside
		parts   []wire.Barrier
		b, c, d []byte // the bits of the members
		doubt   bool
	}{
		"all in F":               {f: memberA | memberB | memberC, parts: []wire.Barrier{{Ranges: ranges{byteOf(3)}}}, b: []byte{0, 0}, c: []byte{0, 0}},
		"one outside":            {f: memberA | memberB, parts: []wire.Barrier{{Ranges: ranges{byteOf(3)}}}, b: []byte{0, 0}, c: []byte{0x0f, 0}},
		"two outside":            {f: memberA, parts: []wire.Barrier{{Ranges: ranges{byteOf(3)}}}, b: []byte{8, 0}, c: []byte{0x0f, 0}},
		"itself outside":         {f: memberB, parts: []wire.Barrier{{Ranges: ranges{byteOf(3)}}}, b: []byte{0, 0}, c: []byte{0x0f, 0}},
		"no ranges":              {f: memberA | memberB, parts: []wire.Barrier{{}}, b: []byte{0, 0}, c: []byte{7, 0}},
		"to the end":             {f: memberA | memberB, parts: []wire.Barrier{{Ranges: ranges{{Off: 4 * chunk, Len: size - 4*chunk}}}}, b: []byte{0, 0}, c: []byte{0xf7, 0xff}},
		"parts":                  {f: memberA | memberB, parts: []wire.Barrier{{Ranges: ranges{byteOf(3)}}, {Ranges: ranges{byteOf(8)}}, {}}, b: []byte{0, 0}, c: []byte{0x0f, 1}},
		"clear":                  {f: memberA | memberB, parts: []wire.Barrier{{Clear: ranges{at(1)}, ClearSlot: 2}}, b: []byte{0, 0}, c: []byte{5, 0}},
		"clear part of a chunk":  {f: memberA | memberB, parts: []wire.Barrier{{Clear: ranges{{Off: 1, Len: 2*chunk - 2}}, ClearSlot: 2}}, b: []byte{0, 0}, c: []byte{7, 0}},
		"clear and set the same": {f: memberA | memberB, parts: []wire.Barrier{{Ranges: ranges{byteOf(1)}, Clear: ranges{at(0), at(1)}, ClearSlot: 2}}, b: []byte{0, 0}, c: []byte{6, 0}},
		"clear one, set both":    {f: memberA, parts: []wire.Barrier{{Ranges: ranges{byteOf(1)}, Clear: ranges{at(0), at(1)}, ClearSlot: 2}}, b: []byte{2, 0}, c: []byte{6, 0}},
		"clear in the first part": {f: memberA | memberB, parts: []wire.Barrier{{Clear: ranges{at(0), at(1)}, ClearSlot: 2}, {Ranges: ranges{byteOf(1)}}},
			b: []byte{0, 0}, c: []byte{6, 0}},
		"more than a step, over and over": {f: memberA | memberB, parts: []wire.Barrier{{Ranges: amplified(persist.Range{Off: 4 * chunk, Len: 4 * chunk})}}, b: []byte{0, 0}, c: []byte{0xf7, 0}},
		"in doubt":                        {f: memberA | memberB, doubt: true, parts: []wire.Barrier{{Ranges: ranges{byteOf(3)}, Clear: ranges{at(0)}, ClearSlot: 2}}, b: []byte{0, 0}, c: []byte{0x0e, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			for class, serve := range keepers(t) {
				t.Run(class, func(t *testing.T) {
					s, k := serve(Config{step: 2 * chunk})
					p, _ := s.become(t, memberA|memberB|memberC)
					p.record(memberOf(s.region, 1, 2, c.f), 0)
					if !c.f.Has(2) {
						before := ranges{{Len: 3 * chunk}}
						require.NoError(t, s.region.SetBits(memberC, before))
						require.NoError(t, s.region.FlushBits(memberC, before))
					}
					if c.doubt {
						s.server.served()["log"].syncer.doubted()
					}
					p.parts(c.parts...)
					k.mu.Lock()
					defer k.mu.Unlock()
					want := [persist.MaxMembers][]byte{1: c.b, 2: c.c}
					require.Equal(t, want, bitsOf(s.region))
					if c.f != memberA|memberB|memberC {
						require.Equal(t, want, k.bits, "what is durable")
					}
				})
			}
		})
	}
}

// A barrier without members outside F costs no more than on a region that is no member. The
// others cost no allocation either.
func TestKeepBitsAllocatesNothing(t *testing.T) {
	clears := []persist.Range{{Off: chunk, Len: 2 * chunk}}
	for name, c := range map[string]struct {
		f      persist.Members
		clears []persist.Range
	}{
		"no member":   {},
		"all in F":    {f: memberA | memberB | memberC},
		"one outside": {f: memberA | memberB},
		"two outside": {f: memberA, clears: clears},
	} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			s := serveWith(t, region.PathMemfd, regiontest.Medium{Data: regiontest.Discard, Header: func(_, _ uint64) { writes++ }}, Config{step: step})
			if c.f == 0 {
				s.connect(t).open(alice)
			} else {
				p, _ := s.become(t, memberA|memberB|memberC)
				p.record(memberOf(s.region, 1, 2, c.f), 0)
			}
			conn := s.server.served()["log"].session.conn
			for ranges, all := range map[string][]persist.Range{
				"some": {{Off: 4096, Len: 4096}, {Off: 9 * chunk, Len: 1}},
				"many": amplified(persist.Range{Len: size}),
			} {
				b := wire.Barrier{Ranges: make([]persist.Range, len(all)), ClearSlot: 2}
				writes = 0
				require.Zero(t, testing.AllocsPerRun(100, func() {
					b.Ranges = b.Ranges[:len(all)]
					copy(b.Ranges, all)
					b.Clear = c.clears
					if err := conn.keepBits(&b); err != nil {
						t.Error(err)
					}
				}), ranges)
				require.Equal(t, s.region.Outside() != 0, writes > 0, ranges)
			}
		})
	}
}

// A session reads the bits of the other members, a message at a time.
func TestBits(t *testing.T) {
	s := newSite(t)
	p, _ := s.become(t, memberA|memberB) // C lacks everything
	for name, c := range map[string]struct {
		m    wire.Bits
		want []byte
	}{
		"all":            {wire.Bits{Seq: 1, Slot: 2}, []byte{0xff, 0xff}},
		"the rest":       {wire.Bits{Seq: 2, Slot: 2, From: 8}, []byte{0xff}},
		"of a member in": {wire.Bits{Seq: 3, Slot: 1}, []byte{0, 0}},
	} {
		var got wire.Bitmap
		p.ask(&c.m, &got)
		require.Equal(t, wire.Bitmap{Seq: c.m.Seq, Slot: c.m.Slot, From: c.m.From, Chunk: chunk, Bits: c.want}, got, name)
	}
}

// A DIGEST sums what is ahead of it on its lane, durable or not, on any region.
func TestDigest(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	o := p.open(alice)
	want := make([]byte, size)
	digest := func(off, n uint64) {
		t.Helper()
		var got wire.Digested
		p.ask(&wire.Digest{Seq: off, Off: off, Len: n}, &got)
		require.Equal(t, wire.Digested{Seq: off, Sum: sha256.Sum256(want[off : off+n])}, got)
	}
	digest(0, size)
	require.NoError(t, p.write(o, 1, 5, []byte("data")))
	copy(want[5:], "data")
	digest(0, size)
	digest(5, 2)
	digest(size, 0)
	const data = (peerBuffers - 1) * wire.MaxMessage
	p.post(rdma.WorkRequest{Op: rdma.OpWrite, Local: rdma.SGE{Region: p.mr, Off: data, Len: 4}, Remote: rdma.Remote{Key: o.Key, Addr: o.Base + 100}})
	copy(want[100:], "data")
	digest(64, 100)
	p.send((&wire.Zero{Seq: 1, Off: 101, Len: 2}).Append(nil))
	require.NoError(t, p.decode(&wire.ZeroAck{}))
	copy(want[101:], []byte{0, 0})
	digest(64, 100)
}

// What an initiator may not ask of a member ends its session and does no harm.
func TestHostileMember(t *testing.T) {
	barrier := func(slot uint8, clears ...persist.Range) message {
		return &wire.Barrier{Seq: 1, Last: true, Clear: clears, ClearSlot: slot}
	}
	for name, c := range map[string]struct {
		single bool // a region that is no member
		lane   bool // on lane 1
		m      message
		failed bool // a BARRIER_FAIL comes first
	}{
		"bits of itself":                 {m: &wire.Bits{Slot: 0}},
		"bits of a free slot":            {m: &wire.Bits{Slot: 3}},
		"bits behind the last chunk":     {m: &wire.Bits{Slot: 1, From: 16}},
		"bits far out":                   {m: &wire.Bits{Slot: 1, From: ^uint64(7)}},
		"bits of no member":              {single: true, m: &wire.Bits{Slot: 1}},
		"bits on another lane":           {lane: true, m: &wire.Bits{Slot: 1}},
		"clear past the end":             {m: barrier(1, persist.Range{Off: size, Len: 1}), failed: true},
		"clear that overflows":           {m: barrier(1, persist.Range{Off: 4096, Len: ^uint64(0) - 100}), failed: true},
		"clear far out":                  {m: barrier(1, persist.Range{Off: 1 << 63, Len: 1 << 63}), failed: true},
		"second of two clears is bad":    {m: barrier(1, persist.Range{Len: 1}, persist.Range{Off: size + 1}), failed: true},
		"clear of itself":                {m: barrier(0, persist.Range{Len: chunk}), failed: true},
		"clear of a free slot":           {m: barrier(3, persist.Range{Len: chunk}), failed: true},
		"clear on a single region":       {single: true, m: barrier(1, persist.Range{Len: chunk}), failed: true},
		"RECORD on another lane":         {lane: true, m: &wire.Record{}},
		"RECORD of a life, in none":      {single: true, m: &wire.Record{Record: memberOf(&region.Region{}, 1, 1, memberA)}},
		"digest past the end":            {m: &wire.Digest{Off: size - 1, Len: 2}},
		"digest that overflows":          {m: &wire.Digest{Off: ^uint64(0), Len: 2}},
		"digest of too much":             {m: &wire.Digest{Len: wire.MaxDigest + 1}},
		"digest past the end, as a lane": {lane: true, m: &wire.Digest{Off: size + 1}},
		"digest past a single region":    {single: true, m: &wire.Digest{Off: size + 1}},
		"an answer":                      {m: &wire.Recorded{}},
		"another answer":                 {m: &wire.Bitmap{Chunk: chunk}},
		"yet another answer":             {m: &wire.Digested{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			p := s.connect(t)
			var o wire.Opened
			if c.single {
				o = p.open(alice)
			} else {
				p, o = s.become(t, memberA)
			}
			if r, ok := c.m.(*wire.Record); ok && c.single {
				r.Record.Members[0].UUID = s.region.UUID()
			}
			if c.lane {
				var err error
				p, err = s.connectLane(t, o, 1, nil)
				require.NoError(t, err)
				p.send(signed(&o.Token, &wire.Join{Epoch: o.Epoch, Lane: 1}))
				require.NoError(t, p.decode(&wire.Joined{}))
			}
			before := s.region.Superblock()
			bits := bitsOf(s.region)
			p.send(c.m.Append(nil))
			if c.failed {
				var f wire.BarrierFail
				require.NoError(t, p.decode(&f))
				require.Equal(t, wire.CodeInvalid, f.Code)
			}
			_, err := p.receive()
			require.ErrorIs(t, err, rdma.ErrLost)
			require.Equal(t, before, s.region.Superblock())
			require.Equal(t, bits, bitsOf(s.region))
			var n wire.Opened
			s.connect(t).ask(&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log"}, &n)
		})
	}
}

// More unanswered requests than the protocol allows end the session.
func TestUnansweredRequests(t *testing.T) {
	for name, c := range map[string]struct {
		m     message
		most  int
		alive bool
	}{
		"8 DIGESTs": {m: &wire.Digest{Len: 1}, most: wire.MaxDigests, alive: true},
		"9 DIGESTs": {m: &wire.Digest{Len: 1}, most: wire.MaxDigests + 1},
		"1 BITS":    {m: &wire.Bits{Slot: 1}, most: 1, alive: true},
		"2 BITS":    {m: &wire.Bits{Slot: 1}, most: 2},
		"1 RECORD":  {m: &wire.Record{}, most: 1, alive: true},
		"2 RECORDs": {m: &wire.Record{}, most: 2},
	} {
		t.Run(name, func(t *testing.T) {
			began, proceed := make(chan struct{}), make(chan struct{})
			var hold sync.Once
			s := serveWith(t, region.PathMemfd, regiontest.Medium{Data: func(_, _ uint64) { hold.Do(func() { close(began); <-proceed }) }}, Config{})
			p, _ := s.become(t, memberA)
			p.send((&wire.Barrier{Seq: 1, Last: true, Ranges: []persist.Range{{Len: 1}}}).Append(nil))
			<-began
			for range c.most {
				p.send(c.m.Append(nil))
			}
			close(proceed)
			require.NoError(t, p.decode(&wire.BarrierAck{}))
			var err error
			for range c.most {
				if _, e := p.receive(); e != nil {
					err = e
				}
			}
			if !c.alive {
				require.ErrorIs(t, err, rdma.ErrLost)
				return
			}
			require.NoError(t, err)
			p.durable(2)
		})
	}
	t.Run("2 RECORDs that wait for a disk", func(t *testing.T) {
		began, proceed := make(chan struct{}), make(chan struct{})
		var hold atomic.Bool
		s := serveRegion(t, onDisk(t), func(fd int) error {
			if hold.Swap(false) {
				close(began)
				<-proceed
			}
			return unix.Fdatasync(fd)
		}, Config{})
		p, _ := s.become(t, memberA)
		hold.Store(true)
		second := (&wire.Record{Seq: 1, Record: memberOf(s.region, 1, 2, memberA)}).Append(nil)
		p.send(second)
		<-began
		p.send(second)
		_, err := p.receive()
		require.ErrorIs(t, err, rdma.ErrLost)
		close(proceed)
	})
}
