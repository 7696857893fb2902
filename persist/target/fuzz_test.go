package target

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

const (
	fuzzSize  = 64 << 10
	fuzzPeers = 3
)

// The steps of an input.
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
	stepResume
	stepRecorded
	stepRecord
	stepBits
	stepDigest
	stepClear
	steps
)

// A model knows what the regions must hold, and who may change the one under attack. It
// learns that from the target's answers alone.
type model struct {
	t      *testing.T
	s      *site
	log    *region.Region
	own    *region.Region
	in     []byte
	want   []byte // log's data
	kept   []byte // own's data
	epoch  uint64 // log's
	holder int    // the peer with the session on log, or -1
	opened wire.Opened
	peers  [fuzzPeers]*peer
	keys   [fuzzPeers]uint32 // the key that each was granted last
	owner  *peer             // holds own
	hers   wire.Opened

	by    persist.Owner // the owner that log was granted to last
	given bool          // that owner has not closed: the lease outlasts the input

	keyed      bool                       // sessions authenticate
	challenges [fuzzPeers]*wire.Challenge // of the peers' connections
	recorded   [fuzzPeers][]byte          // each peer's last OPEN or RESUME

	life   uint64          // log's
	record persist.Record  // log's
	lack   persist.Members // who may lack its one chunk
	fills  uint8           // records of the session that filled bits
}

// keyOf returns the key with which peer i claims to be id. Peer 0 has alice's and bob's
// keys, peer 1 only bob's, and peer 2 none.
func keyOf(i int, id [16]byte) wire.Key {
	switch {
	case i == 0 && id == alice.ID:
		return aliceKey
	case i <= 1:
		return bobKey
	}
	return nil
}

// FuzzTarget lets three peers, in turn, do what the input says. They send valid, invalid
// and damaged messages, and post Writes and Reads with keys that may not be theirs.
// Another owner has another region. The rules:
//
//   - A peer without a session changes no region, and nobody changes another's.
//   - Only a grant changes the epoch, and adds one.
//   - OPEN must name the epoch, and needs a takeover if another id holds the lease.
//   - RESUME needs that nobody had the region in between.
//   - With keys, a grant needs a proof made for that very connection.
//   - Only the owner changes the record, and a member's generation never goes back.
//   - A member is opened by a larger life only, or as a single region.
//   - A barrier that is acknowledged has set the bits of the members outside F.
//
// In the end the target must still serve.
func FuzzTarget(f *testing.F) {
	raw := func(p byte, msg []byte) []byte { return append([]byte{stepRaw, p, byte(len(msg)), 0}, msg...) }
	const open, keyed = 0, 1
	granted := []byte{open, stepOpen, 0, 1, 0, 0}
	f.Add(slices.Concat(granted, []byte{stepWrite, 0, 0, 0, 0, 4, 4, 7, stepBarrier, 0, 1, 1, 0, 4, 0, 1, stepClose, 0, 0, stepWrite, 0, 0, 0, 0, 4, 4, 7}))
	f.Add(slices.Concat(granted, []byte{stepOpen, 1, 1, 0, 0, stepWrite, 0, 0, 0, 0, 4, 4, 7, stepWrite, 1, 0, 0, 0, 4, 4, 7, stepZero, 1, 0, 2, 0, 9, stepHeartbeat, 1}))
	f.Add([]byte{open, stepWrite, 0, 0, 0, 0, 4, 4, 7, stepConnect, 0, stepWrite, 0, 0, 1, 0, 4, 4, 7, stepRead, 1, 0, 1, 0, 4, 4, stepRead, 2, 1, 2, 0, 4, 4})
	f.Add(slices.Concat(granted, []byte{stepZero, 0, 255, 255, 255, 255, stepOpen, 1, 1, 3, 0, stepOpen, 1, 0, 0, 0, 0, stepOther, 1, 1, stepOther, 2, 3}))
	f.Add(slices.Concat(granted, []byte{stepJoinHint, 1, 1, stepWrite, 1, 0, 0, 0, 0, 4, 1, stepBarrier, 1, 0}))
	later := (&wire.Heartbeat{Seq: 1}).Append(nil)
	binary.BigEndian.PutUint16(later[4:], wire.Version+1)
	f.Add(slices.Concat(granted, []byte{stepBarrier, 0, 1, 1, 0xff, 0xff, 0, 2, stepWrite, 0, 0, 0, 0, 0}))
	f.Add(slices.Concat(granted, raw(0, later), []byte{stepWrite, 0, 0, 0, 0, 0}))
	f.Add(append([]byte{open}, raw(0, (&wire.Close{Epoch: 1}).Append(nil))...))
	f.Add(append([]byte{open}, raw(2, (&wire.Barrier{Seq: 1, Last: true, Ranges: []persist.Range{{Off: fuzzSize, Len: 1}}}).Append(nil))...))
	// Bob is refused without a takeover, and without the epoch. He takes over, and alice
	// comes back too late.
	f.Add(slices.Concat(granted, []byte{stepOpen, 1, 1, 0, 1, stepOpen, 1, 0, 1, 0, 3, stepOpen, 1, 1, 0, 3, stepWrite, 1, 0, 0, 0, 4, 4, 7, stepResume, 2, 0, 0, stepConnect, 1, stepResume, 1, 0, 1}))
	// With keys, the target challenges the first message and grants the second. The third
	// peer plays it back. The peer that lost its connection resumes.
	f.Add([]byte{keyed, stepOpen, 0, 0, 0, 0, 0, stepOpen, 0, 1, 0, 0, stepWrite, 0, 0, 0, 0, 4, 4, 7, stepRecorded, 2, 0, stepRecorded, 2, 0,
		stepConnect, 0, stepResume, 0, 0, 0, stepResume, 0, 0, 0, stepRecorded, 1, 0, stepRecorded, 1, 0, stepOpen, 1, 1, 0, 3, stepOpen, 1, 1, 0, 3})
	f.Add([]byte{keyed, stepOpen, 1, 1, 0, 0, stepOpen, 1, 1, 0, 0, stepOpen, 1, 1, 0, 1}) // as alice with bob's key, then as bob

	// Alice makes log a member, lets B go and takes it in again. Bob has to say that he knows
	// of it, or have a larger life.
	const life, single, join = 4, 8, 16
	member := []byte{open, stepOpen, 0, 1, 0, life | join, 1, stepRecord, 0, 0, 1, 3, 0, 4}
	f.Add(slices.Concat(member, []byte{stepRecord, 0, 0, 1, 1, 0, 0, stepBarrier, 0, 1, 1, 0, 4, 0, 1, stepBits, 0, 1, 0, stepClear, 0, 1, 1, 0, 0, stepRecord, 0, 0, 1, 3, 0, 0}))
	f.Add(slices.Concat(member, []byte{stepOpen, 1, 1, 0, 3, stepOpen, 1, 1, 0, 3 | single, stepOpen, 2, 1, 0, 2 | life, 0, stepOpen, 2, 1, 0, 2 | life, 1}))
	f.Add(slices.Concat(member, []byte{stepRecord, 0, 0, 1, 2, 6, 0, stepResume, 1, 0, 0, stepRecord, 1, 0, 1, 3, 6, 2, stepDigest, 1, 0, 0, 0xff, 0xff, stepRecord, 1, 0, 0, 1, 1, 0}))
	f.Add(slices.Concat(granted, []byte{stepWrite, 0, 0, 0, 0, 4, 4, 7, stepDigest, 0, 0, 0, 0, 9, stepBits, 0, 1, 0, stepClear, 0, 1, 0, 0, 0}))

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
	m.keyed = m.number(1)%2 == 1
	open := func(name string) *region.Region {
		r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: name, CreateSize: fuzzSize, AllowVolatile: true})
		require.NoError(t, err)
		return r
	}
	m.log, m.own = open("log"), open("own")
	hers := m.own.UUID() // an id that no input can guess
	cfg := Config{Name: testName, Lease: time.Hour, Heartbeat: time.Hour, Allow: map[string][][16]byte{"own": {hers}}, Log: slog.New(slog.DiscardHandler)}
	if m.keyed {
		cfg.Keys = Keys{alice.ID: {aliceKey}, bob.ID: {bobKey}, hers: {aliceKey}}
	}
	m.s = &site{p: rdmafake.New(rdmafake.Config{}), server: New(cfg, []*region.Region{m.log, m.own})}
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
	m.hers = m.open(m.owner, persist.Owner{ID: hers, Nonce: [16]byte{1}}, "own")
	return m
}

// open gets a session for a peer that may have one.
func (m *model) open(p *peer, owner persist.Owner, name string) (o wire.Opened) {
	secret := &wire.Secret{}
	if m.keyed {
		secret = p.challenged(aliceKey, owner.ID)
	}
	request := wire.Open{Methods: everyMethod, Owner: owner, Region: name, Flags: wire.OpenAllowVolatile | wire.OpenTakeover | wire.OpenSingle}
	var r wire.Refused
	p.send(signed(secret, &request))
	require.NoError(m.t, p.decode(&r))
	request.Epoch = r.Epoch
	p.send(signed(secret, &request))
	require.NoError(m.t, p.decode(&o))
	return o
}

// number takes a number of up to n bytes from the input.
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
		m.peers[i], m.keys[i], m.challenges[i] = m.s.connect(m.t), 0, nil
		m.left(i)
	case stepJoinHint: // as a lane, with a guess of the session's secret
		hint := wire.JoinHint{Lane: uint16(m.number(1)), Epoch: m.epoch, Region: m.log.UUID()}
		(&wire.Secret{}).Sign(&hint)
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
		flags, owner := wire.OpenAllowVolatile, alice
		choice := m.number(1)
		if choice&1 != 0 {
			owner = bob
		}
		if choice&2 != 0 {
			flags |= wire.OpenTakeover
		}
		var life uint64
		if choice&4 != 0 {
			life = m.life + m.number(1)
		}
		if choice&8 != 0 {
			flags |= wire.OpenSingle
		}
		if choice&16 != 0 {
			flags |= wire.OpenJoin
		}
		m.ask(i, owner.ID, &wire.Open{Methods: everyMethod, Owner: owner, Epoch: epoch, Region: name, Flags: flags, Life: life})
	case stepResume:
		owner := alice
		epoch := m.epoch - m.number(1)
		if m.number(1)&1 != 0 {
			owner = bob
		}
		m.ask(i, owner.ID, &wire.Resume{Methods: everyMethod, Owner: owner, Epoch: epoch, Region: "log", Flags: wire.OpenAllowVolatile})
	case stepRecorded:
		if msg := m.recorded[m.number(1)%fuzzPeers]; msg != nil {
			m.send(i, msg)
		}
	case stepClose:
		m.send(i, (&wire.Close{Epoch: m.epoch + m.number(1)}).Append(nil))
	case stepWrite, stepRead:
		m.access(i, kind == stepWrite)
	case stepBarrier:
		b := wire.Barrier{Seq: m.number(1), Last: true}
		for range m.number(1) % 4 {
			b.Ranges = append(b.Ranges, persist.Range{Off: m.number(2), Len: m.number(2)})
		}
		m.send(i, b.Append(nil))
	case stepZero:
		m.send(i, (&wire.Zero{Seq: 1, Off: m.number(2), Len: m.number(2)}).Append(nil))
	case stepHeartbeat:
		m.send(i, (&wire.Heartbeat{Seq: 1}).Append(nil))
	case stepRecord:
		m.send(i, m.newRecord().Append(nil))
	case stepBits:
		m.send(i, (&wire.Bits{Seq: 1, Slot: uint8(m.number(1) % persist.MaxMembers), From: 8 * m.number(1)}).Append(nil))
	case stepDigest:
		m.send(i, (&wire.Digest{Seq: 1, Off: m.number(2), Len: m.number(2)}).Append(nil))
	case stepClear:
		m.send(i, (&wire.Barrier{Seq: 1, Last: m.number(1) != 0, Fills: m.fills, ClearSlot: uint8(m.number(1) % persist.MaxMembers),
			Clear: []persist.Range{{Off: m.number(1), Len: fuzzSize - m.number(1)}}}).Append(nil))
	case stepOther:
		msgs := [][]byte{
			(&wire.Resume{Owner: alice, Epoch: m.epoch, Region: "log"}).Append(nil),
			(&wire.Join{Epoch: m.epoch, Lane: 1}).Append(nil),
			(&wire.Closed{Epoch: m.epoch}).Append(nil),
			(&wire.BarrierAck{Seq: 1, Last: true}).Append(nil),
			(&wire.Bad{Seq: 1, From: m.number(1)}).Append(nil),
		}
		msg := msgs[m.number(1)%uint64(len(msgs))]
		msg[m.number(1)%uint64(len(msg))] ^= byte(m.number(1)) // usually damages the message
		m.send(i, msg)
	case stepRaw:
		n := min(int(m.number(1)), len(m.in))
		flip := m.number(1)
		msg := bytes.Clone(m.in[:min(n, len(m.in))])
		m.in = m.in[len(msg):]
		if len(msg) >= 16 && flip == 1 { // a correct length
			binary.BigEndian.PutUint32(msg[8:], uint32(len(msg)))
		}
		m.send(i, msg)
	}
}

// left: peer i's connection has ended. The region stays with its owner, and nobody can
// act for that owner any more.
func (m *model) left(i int) {
	if m.holder == i {
		m.holder = -1
	}
}

// ends: the target must close peer i's connection after the answer that says why.
func (m *model) ends(i int) {
	_, err := m.peers[i].receive()
	require.Error(m.t, err)
	m.left(i)
}

// access posts a Write or a Read with some key, somewhere.
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

// ask sends an OPEN or RESUME as peer i, with the best proof that i can make.
func (m *model) ask(i int, id [16]byte, request message) {
	msg := request.Append(nil)
	if c := m.challenges[i]; c != nil {
		secretOf(keyOf(i, id), id, c).SignRequest(msg)
	}
	m.recorded[i] = msg
	m.send(i, msg)
}

func (m *model) check() {
	if !bytes.Equal(m.want, m.log.Data()) {
		require.Fail(m.t, "the region has bytes that nobody was allowed to write")
	}
	if !bytes.Equal(m.kept, m.own.Data()) {
		require.Fail(m.t, "the other region has bytes that nobody was allowed to write")
	}
	sb, own := m.log.Superblock(), m.own.Superblock()
	require.Equal(m.t, m.epoch, sb.Epoch)
	require.Equal(m.t, m.record, sb.Record)
	require.Equal(m.t, m.life, sb.Life)
	require.Zero(m.t, own.Record)
	for slot := range persist.MaxMembers {
		require.Equal(m.t, m.lack.Has(slot), m.log.BitsSet(slot) == 1, "%v of %+v", persist.Member(slot), m.record)
	}
	require.NoError(m.t, m.log.Failed())
	require.NoError(m.t, m.own.Failed())
}

// finish checks that the target still serves.
func (m *model) finish() {
	p := m.s.connect(m.t)
	o := m.open(p, alice, "log")
	require.Equal(m.t, m.epoch+1, o.Epoch)
	require.NoError(m.t, p.write(o, 1, 0, []byte("fine")))
	require.Equal(m.t, "fine", string(m.log.Data()[:4]))
	require.NoError(m.t, m.owner.write(m.hers, 1, 0, []byte("hers")))
	require.Equal(m.t, "hers", string(m.own.Data()[:4]))
}
