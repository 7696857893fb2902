package target

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

const (
	fuzzSize  = 64 << 10
	fuzzPeers = 3
)

// What the steps of an input do.
const (
	stepConnect = iota
	stepJoinHint
	stepOpen
	stepClose
	stepWrite
	stepRead
	stepBarrier
	stepZero
	stepHeartbeat
	stepOther
	stepRaw
	steps
)

// A model is what the regions must hold, and who may change the one that is
// attacked. It learns who may from the target's answers, and from nothing else.
type model struct {
	t      *testing.T
	s      *site
	log    *region.Region
	own    *region.Region
	in     []byte
	want   []byte // log's data
	kept   []byte // own's data
	epoch  uint64 // log's
	holder int    // the peer with the session on log; -1
	opened wire.Opened
	peers  [fuzzPeers]*peer
	keys   [fuzzPeers]uint32 // that each was granted last
	owner  *peer             // of own
	hers   wire.Opened
}

// FuzzTarget lets three peers, in turn, do what the input says: messages good, bad
// and damaged, Writes and Reads by keys that are theirs and that are not. Beside
// them somebody owns another region. Nobody without a session changes a region, and
// nobody changes another's; a grant adds one to the epoch and nothing else does; the
// target goes on serving.
func FuzzTarget(f *testing.F) {
	raw := func(p byte, msg []byte) []byte { return append([]byte{stepRaw, p, byte(len(msg)), 0}, msg...) }
	f.Add([]byte{stepOpen, 0, 1, 0, stepWrite, 0, 0, 0, 0, 4, 4, 7, stepBarrier, 0, 1, 1, 0, 4, 0, 1, stepClose, 0, 0, stepWrite, 0, 0, 0, 0, 4, 4, 7})
	f.Add([]byte{stepOpen, 0, 1, 0, stepOpen, 1, 1, 0, stepWrite, 0, 0, 0, 0, 4, 4, 7, stepWrite, 1, 0, 0, 0, 4, 4, 7, stepZero, 1, 0, 2, 0, 9, stepHeartbeat, 1})
	f.Add([]byte{stepWrite, 0, 0, 0, 0, 4, 4, 7, stepConnect, 0, stepWrite, 0, 0, 1, 0, 4, 4, 7, stepRead, 1, 0, 1, 0, 4, 4, stepRead, 2, 1, 2, 0, 4, 4})
	f.Add([]byte{stepOpen, 0, 1, 0, stepZero, 0, 255, 255, 255, 255, stepOpen, 1, 1, 3, stepOpen, 1, 0, 0, stepOther, 1, 1, stepOther, 2, 3})
	f.Add([]byte{stepOpen, 0, 1, 0, stepJoinHint, 1, 1, stepWrite, 1, 0, 0, 0, 0, 4, 1, stepBarrier, 1, 0})
	later := (&wire.Heartbeat{Seq: 1}).Append(nil)
	binary.BigEndian.PutUint16(later[4:], wire.Version+1)
	f.Add([]byte{stepOpen, 0, 1, 0, stepBarrier, 0, 1, 1, 0xff, 0xff, 0, 2, stepWrite, 0, 0, 0, 0, 0})
	f.Add(slices.Concat([]byte{stepOpen, 0, 1, 0}, raw(0, later), []byte{stepWrite, 0, 0, 0, 0, 0}))
	f.Add(raw(0, (&wire.Close{Epoch: 1}).Append(nil)))
	f.Add(raw(2, (&wire.Barrier{Seq: 1, Last: true, Ranges: []wire.Range{{Off: fuzzSize, Len: 1}}}).Append(nil)))

	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<10 {
			return
		}
		m := newModel(t, in)
		for n := 0; len(m.in) > 0 && n < 40; n++ { // well below maxStrangers
			m.step()
			m.check()
		}
		m.finish()
	})
}

func newModel(t *testing.T, in []byte) *model {
	m := &model{t: t, in: in, holder: -1, want: make([]byte, fuzzSize), kept: make([]byte, fuzzSize)}
	open := func(name string) *region.Region {
		r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: name, CreateSize: fuzzSize, AllowVolatile: true})
		require.NoError(t, err)
		return r
	}
	m.log, m.own = open("log"), open("own")
	m.s = &site{p: rdmafake.New(rdmafake.Config{}), server: New(Config{Log: zap.NewNop()}, []*region.Region{m.log, m.own})}
	l, err := m.s.p.Listen(context.Background(), "")
	require.NoError(t, err)
	m.s.addr = l.Addr()
	served := make(chan error, 1)
	go func() { served <- m.s.server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, m.s.server.Close())
		require.NoError(t, <-served)
		require.NoError(t, m.log.Close())
		require.NoError(t, m.own.Close())
	})
	m.epoch = m.log.Superblock().Epoch
	for i := range m.peers {
		m.peers[i] = m.s.connect(t)
	}
	m.owner = m.s.connect(t)
	var r wire.Refused
	request := wire.Open{Methods: everyMethod, Owner: wire.Owner{ID: m.own.UUID(), Nonce: [16]byte{1}}, Region: "own", Flags: wire.OpenAllowVolatile} // an id that no input guesses
	m.owner.ask(&request, &r)
	request.Epoch = r.Epoch
	m.owner.ask(&request, &m.hers)
	return m
}

// number takes up to n bytes off the input.
func (m *model) number(n int) (v uint64) {
	for ; n > 0 && len(m.in) > 0; n-- {
		v = v<<8 | uint64(m.in[0])
		m.in = m.in[1:]
	}
	return v
}

func (m *model) step() {
	kind := m.number(1) % steps
	i := int(m.number(1) % fuzzPeers)
	p := m.peers[i]
	switch kind {
	case stepConnect:
		require.NoError(m.t, p.conn.Close())
		m.peers[i], m.keys[i] = m.s.connect(m.t), 0
		m.left(i)
	case stepJoinHint: // as a lane, by a guess at the session's token
		hint := wire.JoinHint{Lane: uint16(m.number(1)), Epoch: m.epoch, Region: m.log.UUID()}
		_, err := p.domain.Dial(context.Background(), m.s.addr, rdma.ConnConfig{PrivateData: hint.Append(nil)}, nil)
		require.Error(m.t, err)
	case stepOpen:
		epoch, name := m.epoch, "log"
		if m.number(1) == 0 {
			epoch = m.number(1)
		}
		if m.number(1)%4 == 3 {
			name, epoch = "own", m.own.Superblock().Epoch
		}
		m.send(i, (&wire.Open{Methods: everyMethod, Owner: alice, Epoch: epoch, Region: name, Flags: wire.OpenAllowVolatile}).Append(nil))
	case stepClose:
		m.send(i, (&wire.Close{Epoch: m.epoch + m.number(1)}).Append(nil))
	case stepWrite, stepRead:
		m.access(i, kind == stepWrite)
	case stepBarrier:
		b := wire.Barrier{Seq: m.number(1), Last: true}
		for range m.number(1) % 4 {
			b.Ranges = append(b.Ranges, wire.Range{Off: m.number(2), Len: m.number(2)})
		}
		m.send(i, b.Append(nil))
	case stepZero:
		m.send(i, (&wire.Zero{Seq: 1, Off: m.number(2), Len: m.number(2)}).Append(nil))
	case stepHeartbeat:
		m.send(i, (&wire.Heartbeat{Seq: 1}).Append(nil))
	case stepOther:
		msgs := [][]byte{
			(&wire.Resume{Owner: alice, Epoch: m.epoch, Region: "log"}).Append(nil),
			(&wire.Join{Epoch: m.epoch, Lane: 1}).Append(nil),
			(&wire.Closed{Epoch: m.epoch}).Append(nil),
			(&wire.BarrierAck{Seq: 1, Last: true}).Append(nil),
		}
		msg := msgs[m.number(1)%uint64(len(msgs))]
		msg[m.number(1)%uint64(len(msg))] ^= byte(m.number(1)) // damaged, mostly
		m.send(i, msg)
	case stepRaw:
		n := min(int(m.number(1)), len(m.in))
		flip := m.number(1)
		msg := bytes.Clone(m.in[:min(n, len(m.in))])
		m.in = m.in[len(msg):]
		if len(msg) >= wire.HeaderSize && flip == 1 { // a length that is right
			binary.BigEndian.PutUint32(msg[8:], uint32(len(msg)))
		}
		m.send(i, msg)
	}
}

// left: peer i's connection has ended. The region stays its owner's, whom nobody can
// speak for any more.
func (m *model) left(i int) {
	if m.holder == i {
		m.holder = -1
	}
}

// ends: the target closes peer i's connection, behind the answer that says why.
func (m *model) ends(i int) {
	_, err := m.peers[i].receive()
	require.Error(m.t, err)
	m.left(i)
}

// access posts a Write or a Read by some key, somewhere.
func (m *model) access(i int, write bool) {
	key := [...]uint32{m.keys[i], m.opened.Key, m.hers.Key, uint32(m.number(1)) << 8}[m.number(1)%4]
	off, n := m.number(2), uint32(m.number(1))
	op := rdma.OpRead
	const data = (peerBuffers - 1) * wire.MaxMessage
	p := m.peers[i]
	if write {
		op = rdma.OpWrite
		copy(p.mem[data:], bytes.Repeat([]byte{byte(m.number(1))}, int(n)))
	}
	may := i == m.holder && key == m.opened.Key && off+uint64(n) <= fuzzSize
	_, err := p.conn.Post([]rdma.WorkRequest{{Op: op, Local: rdma.SGE{Region: p.mr, Off: data, Len: n}, Remote: rdma.Remote{Key: key, Addr: m.opened.Base + off}}})
	switch {
	case !may:
		require.Error(m.t, err)
		m.left(i)
	case write:
		require.NoError(m.t, err)
		copy(m.want[off:], p.mem[data:data+n])
	default:
		require.NoError(m.t, err)
		require.Equal(m.t, m.want[off:off+uint64(n)], p.mem[data:data+n])
	}
}

// send sends a message as peer i, and learns from its answer. Every message has one,
// or ends the connection.
func (m *model) send(i int, msg []byte) {
	p := m.peers[i]
	p.send(msg)
	answer, err := p.receive()
	if err != nil {
		m.left(i)
		return
	}
	t, err := wire.TypeOf(answer)
	require.NoError(m.t, err)
	switch t {
	case wire.TypeOpened:
		require.NoError(m.t, m.opened.Decode(answer))
		require.Equal(m.t, m.log.UUID(), m.opened.UUID, "the other region has an owner")
		m.epoch++
		require.Equal(m.t, m.epoch, m.opened.Epoch)
		m.holder, m.keys[i] = i, m.opened.Key
	case wire.TypeRefused: // of a session only a version that it does not speak, which ends it
		if m.holder == i {
			m.ends(i)
		}
	case wire.TypeBarrierFail: // no range of a sound barrier leaves the region
		var fail wire.BarrierFail
		require.NoError(m.t, fail.Decode(answer))
		require.Equal(m.t, wire.CodeInvalid, fail.Code)
		m.ends(i)
	case wire.TypeClosed:
		require.Equal(m.t, m.holder, i)
		m.holder = -1
	case wire.TypeZeroAck:
		require.Equal(m.t, m.holder, i)
		var z wire.Zero
		require.NoError(m.t, z.Decode(msg))
		clear(m.want[z.Off : z.Off+z.Len])
	case wire.TypeHeartbeatAck, wire.TypeBarrierAck:
		require.Equal(m.t, m.holder, i)
	default:
		require.Fail(m.t, "an answer that is none", "%v", t)
	}
}

func (m *model) check() {
	if !bytes.Equal(m.want, m.log.Data()) {
		require.Fail(m.t, "the region has what nobody may have written")
	}
	if !bytes.Equal(m.kept, m.own.Data()) {
		require.Fail(m.t, "the other region has what nobody may have written")
	}
	require.Equal(m.t, m.epoch, m.log.Superblock().Epoch)
	require.NoError(m.t, m.log.Failed())
	require.NoError(m.t, m.own.Failed())
}

// finish shows that the target still serves.
func (m *model) finish() {
	p := m.s.connect(m.t)
	o := p.open(alice)
	require.Equal(m.t, m.epoch+1, o.Epoch)
	require.NoError(m.t, p.write(o, 1, 0, []byte("fine")))
	require.Equal(m.t, "fine", string(m.log.Data()[:4]))
	require.NoError(m.t, m.owner.write(m.hers, 1, 0, []byte("hers")))
	require.Equal(m.t, "hers", string(m.own.Data()[:4]))
}
