package iwarp

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

// A rawPeer is a hand-made initiator that is connected to a conn.
type rawPeer struct {
	net.Conn
	t testing.TB
	c *conn
	r *rdma.MemoryRegion // of c, peerSize bytes
}

var hello = mpaFrame{CRC: true, Rev: 2, Enhanced: true, IRD: 4, ORD: 4}

func newRawPeer(t testing.TB, cfg rdma.ConnConfig, request mpaFrame) *rawPeer {
	t.Helper()
	l, err := New(Config{}).Listen(context.Background(), "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	nc, err := net.Dial("tcp", l.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(30*time.Second))) // ends a test that hangs
	_, err = nc.Write(request.append(nil, requestKey))
	require.NoError(t, err)
	req, err := l.Accept()
	require.NoError(t, err)
	d, err := req.OpenDomain()
	require.NoError(t, err)
	r, err := d.Register(rdmatest.Memory(t, peerSize), rdmatest.All)
	require.NoError(t, err)
	c, err := req.Accept(d, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	_, err = readMPA(nc, replyKey)
	require.NoError(t, err)
	return &rawPeer{nc, t, c.(*conn), r}
}

func (p *rawPeer) send(ulpdus ...[]byte) {
	for _, u := range ulpdus {
		_, err := p.Write(fpdu(u))
		require.NoError(p.t, err)
	}
}

// next reads an FPDU and decodes it.
func (p *rawPeer) next() segment {
	p.t.Helper()
	var b []byte
	for {
		ulpdu, n, bad := nextFPDU(b, true)
		require.Nil(p.t, bad)
		if n > 0 {
			var s segment
			require.Nil(p.t, decodeSegment(ulpdu, &s))
			return s
		}
		one := make([]byte, 1)
		_, err := io.ReadFull(p, one)
		require.NoError(p.t, err)
		b = append(b, one...)
	}
}

func tagged(op opcode, last bool, stag uint32, to uint64, p string) []byte {
	return append(appendTagged(nil, op, last, stag, to), p...)
}

func send(last bool, msn, mo uint32, p string) []byte {
	return append(appendUntagged(nil, opSend, last, queueSend, msn, mo), p...)
}

func read(msn uint32, r readRequest) []byte {
	return r.append(appendUntagged(nil, opReadRequest, true, queueRead, msn, 0))
}

// invalidate makes an empty Send with Invalidate. The package receives them, but does not
// send any.
func invalidate(msn, key uint32) []byte {
	b := appendUntagged(nil, opSendInvalidate, true, queueSend, msn, 0)
	be.PutUint32(b[2:], key)
	return b
}

// peerSize is the length of a rawPeer's region in bytes.
const peerSize = 1 << 16

// A peer cannot use access that it was not granted, or a key that has ended.
func TestAccessRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		access rdma.Access
		gone   bool
		sent   func(r *rdma.MemoryRegion) []byte
		want   *violation
	}{
		"Write, read only": {rdma.RemoteRead, false, func(r *rdma.MemoryRegion) []byte { return tagged(opWrite, true, r.Key, r.Base, "evil") }, &noAccess},
		"Read, write only": {rdma.RemoteWrite, false, func(r *rdma.MemoryRegion) []byte { return read(1, readRequest{1, 2, 4, r.Key, r.Base}) }, &noAccess},
		"Write, local":     {rdma.LocalWrite, false, func(r *rdma.MemoryRegion) []byte { return tagged(opWrite, true, r.Key, r.Base, "evil") }, &noAccess},
		"Write, gone":      {rdmatest.All, true, func(r *rdma.MemoryRegion) []byte { return tagged(opWrite, true, r.Key, r.Base, "evil") }, &badSTag},
		"Read, gone":       {rdmatest.All, true, func(r *rdma.MemoryRegion) []byte { return read(1, readRequest{1, 2, 4, r.Key, r.Base}) }, &badReadSTag},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRawPeer(t, rdma.ConnConfig{}, hello)
			r, err := p.c.d.Register(rdmatest.Memory(t, 4096), tt.access)
			require.NoError(t, err)
			if tt.gone {
				require.NoError(t, p.c.d.Deregister(r))
			}
			failed := make(chan error, 1)
			go func() { failed <- p.c.Wait() }()
			p.send(tt.sent(r))
			s := p.next()
			require.Equal(t, opTerminate, s.Op)
			require.Equal(t, []byte{tt.want.Layer<<4 | tt.want.Type, tt.want.Code}, s.Payload[:2])
			require.NoError(t, p.Close())
			require.ErrorIs(t, <-failed, tt.want)
			require.Equal(t, make([]byte, 4096), r.Mem)
		})
	}
}

// A peer's Send with Invalidate is received like any other Send, and ends the key.
func TestInvalidate(t *testing.T) {
	for name, op := range map[string]opcode{"silently": opSendInvalidate, "solicited": opSendSEInvalidate} {
		t.Run(name, func(t *testing.T) {
			p := newRawPeer(t, rdma.ConnConfig{}, hello)
			r, err := p.c.d.Register(rdmatest.Memory(t, 4096), rdmatest.All)
			require.NoError(t, err)
			require.NoError(t, p.c.PostRecv([]rdma.WorkRequest{{ID: 5, Local: rdma.SGE{Region: p.r, Len: 16}}}))
			message := append(invalidate(1, r.Key), "done"...)
			message[1] = rdmapVersion | byte(op)
			p.send(tagged(opWrite, true, r.Key, r.Base, "good"), message)
			next(t, p.c, 5)
			require.Equal(t, "done", string(p.r.Mem[:4]))
			failed := make(chan error, 1)
			go func() { failed <- p.c.Wait() }()
			p.send(tagged(opWrite, true, r.Key, r.Base+4, "evil"))
			s := p.next()
			require.Equal(t, opTerminate, s.Op)
			require.Equal(t, []byte{badSTag.Layer<<4 | badSTag.Type, badSTag.Code}, s.Payload[:2])
			require.NoError(t, p.Close())
			require.ErrorIs(t, <-failed, &badSTag)
			require.Equal(t, append([]byte("good"), make([]byte, 4092)...), r.Mem)
			require.NoError(t, p.c.d.Deregister(r))
		})
	}
}

// A peer that stops in the middle of an FPDU places nothing of it. The connection ends when
// the peer hangs up, or by Close.
func TestHalfAnFPDU(t *testing.T) {
	for name, hangUp := range map[string]bool{"then hangs up": true, "then is silent": false} {
		t.Run(name, func(t *testing.T) {
			p := newRawPeer(t, rdma.ConnConfig{}, hello)
			failed := make(chan error, 1)
			go func() { failed <- p.c.Wait() }()
			b := fpdu(tagged(opWrite, true, p.r.Key, p.r.Base, "evil"))
			for i := range b[:len(b)-1] { // slowly
				_, err := p.Write(b[i : i+1])
				require.NoError(t, err)
			}
			want := rdma.ErrLost
			if hangUp {
				require.NoError(t, p.Close())
			} else {
				want = rdma.ErrClosed
				require.NoError(t, p.c.Close())
			}
			require.ErrorIs(t, <-failed, want)
			require.Equal(t, make([]byte, 1<<16), p.r.Mem)
		})
	}
}

// A Read Response is placed only into the range of its Read.
func TestReadResponsesRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(r readRequest) []byte
		want   *violation
	}{
		"another STag":  {func(r readRequest) []byte { return tagged(opReadResponse, true, r.SinkSTag+256, r.SinkTO, "evilevil") }, &badSTag},
		"before":        {func(r readRequest) []byte { return tagged(opReadResponse, true, r.SinkSTag, r.SinkTO-1, "evilevil") }, &badBounds},
		"not the start": {func(r readRequest) []byte { return tagged(opReadResponse, true, r.SinkSTag, r.SinkTO+1, "evilevi") }, &badBounds},
		"too long":      {func(r readRequest) []byte { return tagged(opReadResponse, true, r.SinkSTag, r.SinkTO, "evilevile") }, &badBounds},
		"too short":     {func(r readRequest) []byte { return tagged(opReadResponse, true, r.SinkSTag, r.SinkTO, "evilevi") }, &badBounds},
		"never ending":  {func(r readRequest) []byte { return tagged(opReadResponse, false, r.SinkSTag, r.SinkTO, "evilevil") }, &badBounds},
		"a Write to it": {func(r readRequest) []byte { return tagged(opWrite, true, r.SinkSTag, r.SinkTO, "evilevil") }, &noAccess},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRawPeer(t, rdma.ConnConfig{}, hello)
			sink, err := p.c.d.Register(rdmatest.Memory(t, 4096), rdma.LocalWrite)
			require.NoError(t, err)
			_, err = p.c.Post([]rdma.WorkRequest{{Op: rdma.OpRead, Local: rdma.SGE{Region: sink, Off: 16, Len: 8}}})
			require.NoError(t, err)
			failed := make(chan error, 1)
			go func() { failed <- p.c.Wait() }()
			p.send(tagged(opWrite, true, 0, 0, "")) // the responder may speak now
			s := p.next()
			require.Equal(t, opReadRequest, s.Op)
			p.send(tt.answer(decodeReadRequest(s.Payload)))
			s = p.next()
			require.Equal(t, opTerminate, s.Op)
			require.Equal(t, []byte{tt.want.Layer<<4 | tt.want.Type, tt.want.Code}, s.Payload[:2])
			require.NoError(t, p.Close())
			require.ErrorIs(t, <-failed, tt.want)
			require.Equal(t, make([]byte, 4096), sink.Mem)
		})
	}
}

// A responder is silent until the initiator's first FPDU (RFC 5044 §7.1.2).
func TestResponderWaitsForTheFirstFPDU(t *testing.T) {
	p := newRawPeer(t, rdma.ConnConfig{}, hello)
	_, err := p.c.Post([]rdma.WorkRequest{{ID: 1, Op: rdma.OpSend, Inline: []byte("early"), Signaled: true}})
	require.NoError(t, err)
	require.Zero(t, p.c.tx.out.Queued())
	p.send(tagged(opWrite, true, 0, 0, ""))
	require.NoError(t, p.c.Wait())
	require.Equal(t, "early", string(p.next().Payload))
}

func TestReadsAreNegotiated(t *testing.T) {
	for name, tt := range map[string]struct {
		request  mpaFrame
		ord      int
		rep      mpaFrame
		emptyRTR bool
	}{
		"revision 1":          {mpaFrame{CRC: true, Rev: 1}, 8, mpaFrame{CRC: true, Rev: 1, Private: []byte{}}, false},
		"fewer than ours":     {mpaFrame{Rev: 2, Enhanced: true, IRD: 3, ORD: 2}, 3, mpaFrame{CRC: true, Rev: 2, Enhanced: true, IRD: 6, ORD: 3, Private: []byte{}}, false},
		"more than ours":      {mpaFrame{Rev: 2, Enhanced: true, IRD: 100, ORD: 100}, 8, mpaFrame{CRC: true, Rev: 2, Enhanced: true, IRD: 6, ORD: 8, Private: []byte{}}, false},
		"none":                {mpaFrame{Rev: 2, Enhanced: true}, 0, mpaFrame{CRC: true, Rev: 2, Enhanced: true, IRD: 6, Private: []byte{}}, false},
		"unsaid":              {mpaFrame{Rev: 2, Enhanced: true, IRD: readsUnsaid, ORD: readsUnsaid}, 8, mpaFrame{CRC: true, Rev: 2, Enhanced: true, IRD: 6, ORD: 8, Private: []byte{}}, false},
		"revision 2, plain":   {mpaFrame{Rev: 2}, 8, mpaFrame{CRC: true, Rev: 2, Private: []byte{}}, false},
		"peer-to-peer, write": {mpaFrame{Rev: 2, Enhanced: true, IRD: ctlPeer | ctlEmpty | 4, ORD: ctlWrite | ctlRead | 4}, 4, mpaFrame{CRC: true, Rev: 2, Enhanced: true, IRD: ctlPeer | 6, ORD: ctlWrite | 4, Private: []byte{}}, false},
		"peer-to-peer, empty": {mpaFrame{Rev: 2, Enhanced: true, IRD: ctlPeer | ctlEmpty | 4, ORD: 4}, 4, mpaFrame{CRC: true, Rev: 2, Enhanced: true, IRD: ctlPeer | ctlEmpty | 6, ORD: 4, Private: []byte{}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := New(Config{}).Listen(context.Background(), "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			nc, err := net.Dial("tcp", l.Addr())
			require.NoError(t, err)
			defer func() { require.NoError(t, nc.Close()) }()
			_, err = nc.Write(tt.request.append(nil, requestKey))
			require.NoError(t, err)
			req, err := l.Accept()
			require.NoError(t, err)
			d, err := req.OpenDomain()
			require.NoError(t, err)
			c, err := req.Accept(d, rdma.ConnConfig{MaxReads: 8, MaxReadsIn: 6}, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			rep, err := readMPA(nc, replyKey)
			require.NoError(t, err)
			require.Equal(t, tt.rep, rep)
			require.Equal(t, tt.ord, c.Caps().MaxReads)
			if tt.ord == 0 {
				_, err = c.Post([]rdma.WorkRequest{{Op: rdma.OpRead}})
				require.ErrorIs(t, err, rdma.ErrNotSupported)
			}
			if tt.emptyRTR {
				_, err = c.Post([]rdma.WorkRequest{{Op: rdma.OpSend, Signaled: true}})
				require.NoError(t, err)
				_, err = nc.Write(fpdu(nil))
				require.NoError(t, err)
				require.NoError(t, c.Wait(), "the RTR lets the Send out")
			}
		})
	}
}
