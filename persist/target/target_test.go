package target

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is a served region and the wire to it.
type site struct {
	p      *rdmafake.Provider
	region *region.Region
	path   string
	server *Server
	addr   string
	stop   func()
}

const size = 1 << 20

// serveRegion serves the region at path, which is made if it is not there.
func serveRegion(t *testing.T, path string, sync func(int) error, cfg Config) *site {
	return serveWith(t, path, regiontest.Medium{Sync: sync}, cfg)
}

func serveWith(t *testing.T, path string, m regiontest.Medium, cfg Config) *site {
	r, err := region.Open(path, region.OpenOptions{Name: "log", CreateSize: size, AllowVolatile: true, Wrap: m.Wrap})
	require.NoError(t, err)
	cfg.Log = zaptest.NewLogger(t)
	s := &site{p: rdmafake.New(rdmafake.Config{}), region: r, path: path, server: New(cfg, []*region.Region{r})}
	l, err := s.p.Listen(context.Background(), "")
	require.NoError(t, err)
	s.addr = l.Addr()
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		require.NoError(t, s.server.Close())
		require.NoError(t, s.server.Close(), "idempotent")
		require.NoError(t, <-served)
		require.NoError(t, r.Close())
	}
	t.Cleanup(s.stop)
	return s
}

func newSite(t *testing.T) *site {
	return serveRegion(t, filepath.Join(t.TempDir(), "region"), nil, Config{})
}

// A peer is an initiator that sends what the test likes.
type peer struct {
	t      *testing.T
	domain rdma.Domain
	conn   rdma.Conn
	mem    []byte // a message to send, then receives, then data
	mr     *rdma.MemoryRegion
}

const peerBuffers = 40

func (s *site) connect(t *testing.T) *peer { return dial(t, s.p, s.addr) }

func dial(t *testing.T, provider rdma.Provider, addr string) *peer {
	p, err := dialWith(t, provider, addr, nil)
	require.NoError(t, err)
	return p
}

// dialWith connects with private data.
func dialWith(t *testing.T, provider rdma.Provider, addr string, privateData []byte) (p *peer, err error) {
	p = &peer{t: t}
	p.domain, err = provider.OpenDomain(context.Background(), addr)
	require.NoError(t, err)
	p.mem, err = unix.Mmap(-1, 0, peerBuffers*wire.MaxMessage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	p.mr, err = p.domain.Register(p.mem, rdma.LocalWrite)
	require.NoError(t, err)
	var recvs []rdma.WorkRequest
	for i := uint64(1); i < peerBuffers-1; i++ {
		recvs = append(recvs, rdma.WorkRequest{ID: i, Op: rdma.OpRecv, Local: rdma.SGE{Region: p.mr, Off: i * wire.MaxMessage, Len: wire.MaxMessage}})
	}
	p.conn, err = p.domain.Dial(context.Background(), addr, rdma.ConnConfig{PrivateData: privateData, MaxRecvWR: peerBuffers}, recvs)
	t.Cleanup(func() {
		if p.conn != nil {
			require.NoError(t, p.conn.Close())
		}
		require.NoError(t, p.domain.Close())
		require.NoError(t, unix.Munmap(p.mem))
	})
	return p, err
}

func (p *peer) post(wr rdma.WorkRequest) {
	_, _ = p.conn.Post([]rdma.WorkRequest{wr}) // a broken connection shows at receive
}

func (p *peer) send(msg []byte) {
	n := copy(p.mem, msg)
	p.post(rdma.WorkRequest{Op: rdma.OpSend, Local: rdma.SGE{Region: p.mr, Len: uint32(n)}})
}

// receive waits for a message.
func (p *peer) receive() ([]byte, error) {
	var cs [1]rdma.Completion
	for {
		n, err := p.conn.Poll(cs[:])
		if n == 1 && cs[0].Op == rdma.OpRecv {
			return p.mem[cs[0].ID*wire.MaxMessage:][:cs[0].Len], nil
		}
		if n == 0 && err == nil {
			err = p.conn.Wait()
		}
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// everyMethod is what an initiator has that insists on nothing.
const everyMethod = persist.Methods(1<<persist.MethodGPSPM | 1<<persist.MethodAPM | 1<<persist.MethodFlush)

type message interface {
	Append([]byte) []byte
	Decode([]byte) error
}

// ask sends m and decodes the answer.
func (p *peer) ask(m message, answer message) {
	p.t.Helper()
	p.send(m.Append(nil))
	require.NoError(p.t, p.decode(answer))
}

// decode waits for a message and decodes it.
func (p *peer) decode(answer message) error {
	msg, err := p.receive()
	if err != nil {
		return err
	}
	return answer.Decode(msg)
}

// signed is m with the initiator's proof.
func signed(s *wire.Secret, m message) []byte {
	b := m.Append(nil)
	s.SignRequest(b)
	return b
}

var (
	alice = persist.Owner{ID: [16]byte{1}, Nonce: [16]byte{1}}
	bob   = persist.Owner{ID: [16]byte{2}, Nonce: [16]byte{2}}
)

// refused sends OPEN and returns the refusal.
func (p *peer) refused(owner persist.Owner, epoch uint64) (r wire.Refused) {
	p.t.Helper()
	p.ask(&wire.Open{Methods: everyMethod, Owner: owner, Epoch: epoch, Region: "log", Flags: wire.OpenAllowVolatile}, &r)
	return r
}

// open obtains a session.
func (p *peer) open(owner persist.Owner) (o wire.Opened) { return p.openNamed(owner, "log") }

func (p *peer) openNamed(owner persist.Owner, region string) (o wire.Opened) {
	p.t.Helper()
	var r wire.Refused
	m := wire.Open{Methods: everyMethod, Owner: owner, Region: region, Flags: wire.OpenAllowVolatile}
	p.ask(&m, &r)
	require.Equal(p.t, wire.CodeEpoch, r.Code, r.Text)
	m.Epoch = r.Epoch
	p.ask(&m, &o)
	return o
}

// write posts a Write of b at off and a barrier behind it, and returns its answer.
func (p *peer) write(o wire.Opened, seq uint64, off uint64, b []byte) error {
	const data = (peerBuffers - 1) * wire.MaxMessage
	copy(p.mem[data:], b)
	p.post(rdma.WorkRequest{Op: rdma.OpWrite, Local: rdma.SGE{Region: p.mr, Off: data, Len: uint32(len(b))}, Remote: rdma.Remote{Key: o.Key, Addr: o.Base + off}})
	p.send((&wire.Barrier{Seq: seq, Last: true, Ranges: []persist.Range{{Off: off, Len: uint64(len(b))}}}).Append(nil))
	msg, err := p.receive()
	if err != nil {
		return err
	}
	var ack wire.BarrierAck
	require.NoError(p.t, ack.Decode(msg))
	require.Equal(p.t, wire.BarrierAck{Seq: seq, Last: true}, ack)
	return nil
}

func TestSession(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	o := p.open(alice)
	require.EqualValues(t, size, o.Size)
	require.Equal(t, s.region.UUID(), o.UUID)
	require.EqualValues(t, 2, o.Epoch, "the first epoch is 1")
	sb := s.region.Superblock()
	require.EqualValues(t, 2, sb.Epoch)
	require.False(t, sb.Clean)
	require.Equal(t, persist.Owner(alice), sb.Owner)

	require.NoError(t, p.write(o, 1, 4096, []byte("hello")))
	require.Equal(t, "hello", string(s.region.Data()[4096:4101]))

	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 7}, &hb)
	require.EqualValues(t, 7, hb.Seq)

	var closed wire.Closed
	p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	require.True(t, s.region.Superblock().Clean)
	require.Error(t, p.write(o, 2, 0, []byte("late")), "the key ended with the session")
	require.NotEqual(t, "late", string(s.region.Data()[:4]))
}

// The epoch of a grant, the new owner and "unclean" are durable before the
// initiator hears of it: at the OPENED the file has them already.
func TestGrantIsPersistedBeforeTheReply(t *testing.T) {
	path := filepath.Join(t.TempDir(), "region")
	synced := make(chan region.Superblock, 64)
	s := serveRegion(t, path, func(fd int) error {
		if info, err := region.Inspect(path); err == nil {
			synced <- info.Superblock
		}
		return unix.Fdatasync(fd)
	}, Config{})
	o := s.connect(t).open(alice)
	var last region.Superblock
	for len(synced) > 0 {
		last = <-synced
	}
	require.Equal(t, o.Epoch, last.Epoch)
	require.Equal(t, persist.Owner(alice), last.Owner)
	require.False(t, last.Clean)
}

// A grant ends the old session for good: its connection is gone, its key is good
// for nothing, and a late or repeated OPEN of its epoch is refused.
func TestGrantEndsTheOldSession(t *testing.T) {
	s := newSite(t)
	old := s.connect(t)
	o := old.open(alice)
	next := alice
	next.Nonce = [16]byte{9}
	p := s.connect(t)
	n := p.open(next)
	require.NotEqual(t, o.Key, n.Key)
	require.Equal(t, o.Epoch+1, n.Epoch)
	require.Error(t, old.write(o, 1, 0, []byte("old")))
	require.NotEqual(t, "old", string(s.region.Data()[:3]))

	late := s.connect(t)
	for _, epoch := range []uint64{o.Epoch - 1, o.Epoch, n.Epoch + 1} {
		r := late.refused(alice, epoch)
		require.Equal(t, wire.CodeEpoch, r.Code)
		require.Equal(t, n.Epoch, r.Epoch)
	}
	require.NoError(t, p.write(n, 1, 0, []byte("new")), "none of that touched the owner")

	// A key of one session is unknown to another's domain, before it ended and after.
	require.Error(t, p.write(o, 2, 0, []byte("key")))
}

// durable sends a barrier without ranges and waits for its ack.
func (p *peer) durable(seq uint64) {
	p.t.Helper()
	var ack wire.BarrierAck
	p.ask(&wire.Barrier{Seq: seq, Last: true}, &ack)
	require.Equal(p.t, wire.BarrierAck{Seq: seq, Last: true}, ack)
}

// A predecessor that did not close leaves doubt. The grant costs one update of the
// superblock as any does; beside it the whole extent is flushed and the doubt
// cleared, and a barrier waits for that, also one that covers nothing.
func TestDoubt(t *testing.T) {
	var syncs atomic.Int64
	s := serveRegion(t, filepath.Join(t.TempDir(), "region"), func(fd int) error {
		syncs.Add(1)
		return unix.Fdatasync(fd)
	}, Config{})
	p := s.connect(t)
	syncs.Store(0)
	o := p.open(alice)
	update := syncs.Load()
	require.Zero(t, o.Flags&(wire.OpenedUnclean|wire.OpenedDoubt))
	syncs.Store(0)
	p.durable(1)
	require.EqualValues(t, 1, syncs.Load())

	p = s.connect(t)
	syncs.Store(0)
	o = p.open(alice)
	require.Equal(t, wire.OpenedUnclean|wire.OpenedDoubt, o.Flags)
	p.durable(1)
	require.False(t, s.region.Superblock().Doubt)
	require.GreaterOrEqual(t, syncs.Load(), 2*update+1, "two updates, and the barrier's own; the whole extent may be covered by the first update's")
	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 1}, &hb)
	require.False(t, hb.Doubt)
	require.Zero(t, hb.DoubtLeft)
}

// A whole-extent flush that fails leaves the doubt, and the region failed.
func TestDoubtThatCannotBeCleared(t *testing.T) {
	var fail atomic.Bool
	s := serveRegion(t, filepath.Join(t.TempDir(), "region"), func(fd int) error {
		if fail.Load() {
			return unix.EIO
		}
		return unix.Fdatasync(fd)
	}, Config{})
	s.connect(t).open(alice)
	p := s.connect(t)
	fail.Store(true)
	r := p.refused(alice, 0)
	p.ask(&wire.Open{Methods: everyMethod, Owner: alice, Epoch: r.Epoch, Region: "log"}, &r)
	require.Equal(t, wire.CodeFailed, r.Code)
	require.Error(t, s.region.Failed())
}

// The whole-extent flush goes on beside everything. Heartbeats tell of it, barriers
// wait for it, CLOSE does not clear the doubt, a session that ends does not wait
// for it (model F5), and a grant to a new owner makes it start again: a flush that
// began before the old session was joined clears nothing (model F2).
func TestDoubtInTheBackground(t *testing.T) {
	began, proceed := make(chan struct{}, 16), make(chan struct{})
	var hold atomic.Bool
	s := serveWith(t, region.PathMemfd, regiontest.Medium{Data: func(_, _ uint64) {
		if hold.Load() {
			began <- struct{}{}
			<-proceed
		}
	}}, Config{})
	s.connect(t).open(alice)
	hold.Store(true)
	p := s.connect(t)
	o := p.open(alice)
	require.NotZero(t, o.Flags&wire.OpenedDoubt, "the grant did not wait")
	<-began
	p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 1}, &hb)
	require.Equal(t, wire.HeartbeatAck{Seq: 1, Barrier: 1, Doubt: true, DoubtLeft: size}, hb, "no ack came before")
	var closed wire.Closed
	p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	sb := s.region.Superblock()
	require.True(t, sb.Doubt)
	require.False(t, sb.Clean, "closed in doubt is not clean")

	next := s.connect(t)
	o = next.open(alice) // although the flush stands still
	require.NotZero(t, o.Flags&wire.OpenedDoubt)
	proceed <- struct{}{} // the first flush ends
	<-began               // and is done again
	require.True(t, s.region.Superblock().Doubt, "cleared by a flush that began before the grant")
	hold.Store(false)
	proceed <- struct{}{}
	next.durable(1)
	require.False(t, s.region.Superblock().Doubt)
	next.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	require.True(t, s.region.Superblock().Clean)
}

// Doubt survives a restart of the target, which clears it by itself.
func TestDoubtAcrossARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "region")
	s := serveRegion(t, path, nil, Config{})
	require.NoError(t, s.region.Update(func(sb *region.Superblock) error {
		sb.Doubt = true
		return nil
	}))
	s.stop()
	s = serveRegion(t, path, nil, Config{})
	p := s.connect(t)
	p.open(alice)
	p.durable(1)
	require.False(t, s.region.Superblock().Doubt)
}

// A barrier on class volatile writes back the lines of its ranges, all of them,
// before it is acknowledged; so does the flush that clears doubt.
func TestVolatileFlushesLines(t *testing.T) {
	var flushed []persist.Range
	s := serveWith(t, region.PathMemfd, regiontest.Medium{Data: func(off, n uint64) {
		flushed = append(flushed, persist.Range{Off: off, Len: n})
	}}, Config{})
	p := s.connect(t)
	p.open(alice)
	for seq, ranges := range [][]persist.Range{{{Off: 4096, Len: 100}, {Off: 0, Len: 1}}, {{Off: size - 1, Len: 1}}, nil} {
		flushed = nil
		var ack wire.BarrierAck
		p.ask(&wire.Barrier{Seq: uint64(seq), Last: true, Ranges: ranges}, &ack)
		require.Equal(t, ranges, flushed)
	}
	require.EqualValues(t, 3, s.server.Snapshot()[0].Barriers)
	flushed = nil
	p = s.connect(t)
	p.open(alice)
	p.durable(1)
	require.Equal(t, []persist.Range{{Off: 0, Len: size}}, flushed, "what the former session left")
}

// Class volatile needs the initiator's word, too.
func TestVolatileNeedsTheFlag(t *testing.T) {
	s := serveRegion(t, region.PathMemfd, nil, Config{})
	p := s.connect(t)
	var r wire.Refused
	p.ask(&wire.Open{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "log"}, &r)
	require.Equal(t, wire.CodeVolatile, r.Code)
}

func TestLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "region")
	t.Run("another id waits while it runs", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{})
		s.connect(t).open(alice)
		r := s.connect(t).refused(bob, 0)
		require.Equal(t, wire.CodeBusy, r.Code)
		require.Equal(t, alice.ID, r.Holder)
		require.InDelta(t, Lease.Seconds(), float64(r.Seconds), 5)
	})
	t.Run("and for as long after the target's start", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{})
		require.Equal(t, wire.CodeBusy, s.connect(t).refused(bob, 0).Code)
		s.connect(t).open(alice) // the persisted owner's id need not
	})
	t.Run("it ends by itself", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{Lease: time.Nanosecond})
		s.connect(t).open(alice)
		s.connect(t).open(bob)
	})
	t.Run("a lost connection does not end it", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{})
		p := s.connect(t)
		p.open(bob)
		require.NoError(t, p.conn.Close())
		require.Equal(t, wire.CodeBusy, s.connect(t).refused(alice, 0).Code)
	})
	t.Run("CLOSE does, in doubt too", func(t *testing.T) {
		var hold atomic.Bool
		began, proceed := make(chan struct{}), make(chan struct{})
		s := serveWith(t, region.PathMemfd, regiontest.Medium{Data: func(_, _ uint64) {
			if hold.Swap(false) {
				began <- struct{}{}
				<-proceed
			}
		}}, Config{})
		s.connect(t).open(bob)
		hold.Store(true)
		p := s.connect(t)
		o := p.open(bob)
		<-began
		var closed wire.Closed
		p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
		require.False(t, s.region.Superblock().Clean)
		s.connect(t).open(alice)
		close(proceed)
	})
	t.Run("CLOSE does", func(t *testing.T) {
		s := serveRegion(t, path, nil, Config{})
		p := s.connect(t)
		o := p.open(bob)
		var closed wire.Closed
		p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
		s.connect(t).open(alice)
	})
}

// The ack of a barrier goes out after a sync that began after the barrier arrived,
// also when another sync was under way; heartbeats go on meanwhile.
func TestAckAfterItsSync(t *testing.T) {
	began, proceed := make(chan struct{}, 16), make(chan struct{})
	hold := false
	s := serveRegion(t, filepath.Join(t.TempDir(), "region"), func(fd int) error {
		if hold {
			began <- struct{}{}
			<-proceed
		}
		return unix.Fdatasync(fd)
	}, Config{})
	p := s.connect(t)
	p.open(alice)
	hold = true
	p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
	<-began
	p.send((&wire.Barrier{Seq: 2, Last: true}).Append(nil))
	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 1}, &hb)
	require.EqualValues(t, 1, hb.Barrier, "no ack of 1 came before it; it is in progress")
	proceed <- struct{}{}
	var ack wire.BarrierAck
	msg, err := p.receive()
	require.NoError(t, err)
	require.NoError(t, ack.Decode(msg))
	require.EqualValues(t, 1, ack.Seq)
	<-began // a sync of its own for 2
	p.ask(&wire.Heartbeat{Seq: 2}, &hb)
	require.EqualValues(t, 2, hb.Barrier)
	close(proceed)
	msg, err = p.receive()
	require.NoError(t, err)
	require.NoError(t, ack.Decode(msg))
	require.EqualValues(t, 2, ack.Seq)
	require.EqualValues(t, 2, s.server.Snapshot()[0].Barriers)
}

// What a stranger or an initiator sends that breaks the rules costs it its
// connection, and nobody else anything.
func TestHostileMessages(t *testing.T) {
	open := (&wire.Open{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "log"}).Append(nil)
	other := append([]byte(nil), open...)
	other[5] = 9 // version
	barrier := func(r ...persist.Range) []byte { return (&wire.Barrier{Seq: 1, Last: true, Ranges: r}).Append(nil) }
	for name, c := range map[string]struct {
		session bool
		send    []byte
		code    wire.Code // of a REFUSED that comes first
		failed  bool      // a BARRIER_FAIL comes first
		alive   bool
	}{
		"garbage":                     {send: []byte("GET / HTTP/1.1\r\n\r\n")},
		"empty message":               {send: []byte{}},
		"cut off OPEN":                {send: open[:100]},
		"another version":             {send: other, code: wire.CodeVersion},
		"barrier without session":     {send: barrier()},
		"heartbeat without session":   {send: (&wire.Heartbeat{}).Append(nil)},
		"an answer":                   {send: (&wire.Closed{}).Append(nil)},
		"RESUME of another's session": {send: (&wire.Resume{Methods: everyMethod, Owner: alice, Region: "log"}).Append(nil), code: wire.CodeNotOwner, alive: true},
		"JOIN":                        {send: (&wire.Join{Epoch: 1, Lane: 1}).Append(nil), code: wire.CodeNotOwner, alive: true},
		"owner without id":            {send: (&wire.Open{Methods: everyMethod, Epoch: 1, Region: "log"}).Append(nil), code: wire.CodeInvalid, alive: true},
		"RESUME that takes over":      {send: (&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "log", Flags: wire.OpenTakeover}).Append(nil), code: wire.CodeInvalid, alive: true},
		"CHALLENGE":                   {send: (&wire.Challenge{}).Append(nil)},
		"unknown region":              {send: (&wire.Open{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "../log"}).Append(nil), code: wire.CodeUnknownRegion, alive: true},
		"OPEN in a session":           {session: true, send: open},
		"garbage in a session":        {session: true, send: []byte("hello")},
		"CLOSE of another epoch":      {session: true, send: (&wire.Close{Epoch: 1}).Append(nil)},
		"zeroes past the end":         {session: true, send: (&wire.Zero{Off: size - 1, Len: 2}).Append(nil)},
		"zeroes that overflow":        {session: true, send: (&wire.Zero{Off: ^uint64(0), Len: 2}).Append(nil)},
		"too many zeroes":             {session: true, send: (&wire.Zero{Len: wire.MaxZero + 1}).Append(nil)},
		"zeroes without session":      {send: (&wire.Zero{Len: 1}).Append(nil)},
		"barrier past the end":        {session: true, send: barrier(persist.Range{Off: size, Len: 1}), failed: true},
		"barrier that overflows":      {session: true, send: barrier(persist.Range{Off: 4096, Len: ^uint64(0) - 100}), failed: true},
		"barrier far out":             {session: true, send: barrier(persist.Range{Off: 1 << 63, Len: 1 << 63}), failed: true},
		"second of two ranges is bad": {session: true, send: barrier(persist.Range{Off: 0, Len: 1}, persist.Range{Off: size + 1}), failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			bystander := s.connect(t)
			p := s.connect(t)
			if c.session {
				p.open(bob)
			}
			p.send(c.send)
			if c.code != 0 {
				var r wire.Refused
				msg, err := p.receive()
				require.NoError(t, err)
				require.NoError(t, r.Decode(msg))
				require.Equal(t, c.code, r.Code)
			}
			if c.failed {
				var f wire.BarrierFail
				msg, err := p.receive()
				require.NoError(t, err)
				require.NoError(t, f.Decode(msg))
				require.Equal(t, wire.CodeInvalid, f.Code)
			}
			if c.alive {
				p.open(bob)
			} else {
				_, err := p.receive()
				require.ErrorIs(t, err, rdma.ErrLost)
			}
			if !c.session && !c.alive {
				o := bystander.open(alice)
				require.NoError(t, bystander.write(o, 1, 0, []byte("fine")))
			}
			require.NoError(t, s.region.Failed())
		})
	}
}

// An initiator that does not keep its credits is cut off.
func TestCreditsAreKept(t *testing.T) {
	began, proceed := make(chan struct{}, 1), make(chan struct{})
	var hold atomic.Bool
	s := serveRegion(t, filepath.Join(t.TempDir(), "region"), func(fd int) error {
		if hold.Swap(false) {
			began <- struct{}{}
			<-proceed
		}
		return unix.Fdatasync(fd)
	}, Config{})
	p := s.connect(t)
	p.open(alice)
	hold.Store(true)
	p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
	<-began
	for seq := uint64(2); seq <= credits+1; seq++ {
		p.send((&wire.Barrier{Seq: seq, Last: true}).Append(nil))
	}
	_, err := p.receive()
	require.ErrorIs(t, err, rdma.ErrLost, "cut off, with nothing answered")
	close(proceed)
	s.connect(t).open(alice)
}

// A sync that fails after its lane has gone hurts nobody: the answer, which goes
// out of the lane's memory, is not sent.
func TestSyncFailsAfterTheLaneIsGone(t *testing.T) {
	began, proceed := make(chan struct{}, 1), make(chan struct{})
	var fail atomic.Bool
	path := filepath.Join(t.TempDir(), "region")
	s := serveRegion(t, path, func(fd int) error {
		if fail.Swap(false) {
			began <- struct{}{}
			<-proceed
			return unix.EIO
		}
		return unix.Fdatasync(fd)
	}, Config{})
	p := s.connect(t)
	p.open(alice)
	fail.Store(true)
	p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
	<-began
	require.NoError(t, p.conn.Close())
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.server.Close() // waits for the sync
	}()
	close(proceed)
	<-closed
	require.Error(t, s.region.Failed())
}

// A heartbeat, as every message, extends the lease.
func TestHeartbeatExtendsTheLease(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	p.open(alice)
	session := s.server.exports["log"].session
	old := clock() - int64(Lease) - 1
	session.heard.Store(old)
	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 1}, &hb)
	require.Greater(t, session.heard.Load(), old)
	require.Equal(t, wire.CodeBusy, s.connect(t).refused(bob, 0).Code)
}

// Data that arrive extend it, too: on a slow network heartbeats come behind them. What came
// long ago does not.
func TestDataExtendTheLease(t *testing.T) {
	s := serveRegion(t, filepath.Join(t.TempDir(), "region"), unix.Fdatasync, Config{Heartbeat: time.Millisecond})
	p := s.connect(t)
	o := p.open(alice)
	session := s.server.exports["log"].session
	for range 3 {
		old := clock() - int64(Lease) - 1
		session.heard.Store(old)
		p.post(rdma.WorkRequest{Op: rdma.OpWrite, Local: rdma.SGE{Region: p.mr, Len: 8}, Remote: rdma.Remote{Key: o.Key, Addr: o.Base}})
		require.Eventually(t, func() bool { return session.heard.Load() > old }, patience, tick)
	}
	session.mu.Lock()
	session.looks.Stop()
	session.mu.Unlock()
	session.look(time.Hour) // one more may have been under way
	old := clock() - int64(Lease) - 1
	session.heard.Store(old)
	session.look(time.Hour)
	require.Equal(t, old, session.heard.Load(), "nothing came since")
	require.NoError(t, p.conn.Close())
	<-session.conn.done
	session.looks.Stop()
	session.look(time.Hour)
	require.False(t, session.looks.Stop(), "nothing can come any more")
}

// CLOSE waits for a sync in progress, and a grant does: the region is marked clean,
// or given to somebody else, when nothing of the session is under way.
func TestCloseWaitsForSyncs(t *testing.T) {
	for name, end := range map[string]func(s *site, p *peer, o wire.Opened) chan struct{}{
		"CLOSE": func(s *site, p *peer, o wire.Opened) chan struct{} {
			p.send((&wire.Close{Epoch: o.Epoch}).Append(nil))
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 2 { // the ack, and CLOSED
					_, _ = p.receive()
				}
			}()
			return done
		},
		"another grant": func(s *site, p *peer, o wire.Opened) chan struct{} {
			next := s.connect(p.t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				next.open(alice)
			}()
			return done
		},
	} {
		t.Run(name, func(t *testing.T) {
			began, proceed := make(chan struct{}, 1), make(chan struct{})
			var hold atomic.Bool
			s := serveRegion(t, filepath.Join(t.TempDir(), "region"), func(fd int) error {
				if hold.Swap(false) {
					began <- struct{}{}
					<-proceed
				}
				return unix.Fdatasync(fd)
			}, Config{})
			p := s.connect(t)
			o := p.open(alice)
			hold.Store(true)
			p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
			<-began
			done := end(s, p, o)
			require.False(t, s.region.Superblock().Clean)
			require.Equal(t, o.Epoch, s.region.Superblock().Epoch)
			select {
			case <-done:
				t.Fatal("it did not wait")
			default:
			}
			close(proceed)
			<-done
		})
	}
}

// A stranger may not ask for ever.
func TestTooManyOpens(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	for range maxOpens {
		require.Equal(t, wire.CodeEpoch, p.refused(alice, 0).Code)
	}
	p.send((&wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}).Append(nil))
	_, err := p.receive()
	require.ErrorIs(t, err, rdma.ErrLost)
}
