package lab_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
	"pmnbd/rdma/verbs"
	"pmnbd/test/lab"
)

// TestSessionsKeysSwapped gives an initiator with a session on one region the key and address
// of another region of the same target and device. It must not get at a byte of that region,
// and the other session must go on.
func TestSessionsKeysSwapped(t *testing.T) {
	needVerbs(t)
	lab.Run(t, lab.Guest{Setup: []string{"rxe"}}, func(t *testing.T) {
		const at = "10.0.0.1:7204"
		serve(t, "pmnbd-target", "--insecure-no-auth", "--allow-volatile", "--listen", "rdma://"+at,
			"--region", "a=memfd:,size=4M", "--region", "b=memfd:,size=4M")
		p, err := verbs.New(verbs.Config{})
		require.NoError(t, err)
		b := open(t, p, at, "b")
		b.fill('b')
		require.NoError(t, b.do(rdma.OpWrite, b.Key, b.Base))
		for _, tt := range []struct {
			name string
			op   rdma.Opcode
			to   func(a *session) (key uint32, addr uint64)
		}{
			{"write, key and address", rdma.OpWrite, func(*session) (uint32, uint64) { return b.Key, b.Base }},
			{"write, address alone", rdma.OpWrite, func(a *session) (uint32, uint64) { return a.Key, b.Base }},
			{"write, key alone", rdma.OpWrite, func(a *session) (uint32, uint64) { return b.Key, a.Base }},
			{"read, key and address", rdma.OpRead, func(*session) (uint32, uint64) { return b.Key, b.Base }},
			{"read, address alone", rdma.OpRead, func(a *session) (uint32, uint64) { return a.Key, b.Base }},
			{"read, key alone", rdma.OpRead, func(a *session) (uint32, uint64) { return b.Key, a.Base }},
		} {
			t.Run(tt.name, func(t *testing.T) {
				a := open(t, p, at, "a")
				a.fill('a')
				require.NoError(t, a.do(rdma.OpWrite, a.Key, a.Base), "a session's own region")
				key, addr := tt.to(a)
				require.ErrorIs(t, a.do(tt.op, key, addr), rdma.ErrRemoteAccess)
				require.Equal(t, bytes.Repeat([]byte{'a'}, dataSize), a.data())
				b.fill(0)
				require.NoError(t, b.do(rdma.OpRead, b.Key, b.Base))
				require.Equal(t, bytes.Repeat([]byte{'b'}, dataSize), b.data())
			})
		}
	})
}

// A session is opened by hand, by an initiator whose id is the region's name.
type session struct {
	wire.Opened
	conn rdma.Conn
	mem  *rdma.MemoryRegion // a message to send, receive buffers, data
}

const (
	receives = 2
	dataOff  = (1 + receives) * wire.MaxMessage
	dataSize = 4096
)

func open(t *testing.T, p rdma.Provider, at, region string) *session {
	t.Helper()
	s := &session{}
	d, err := p.OpenDomain(t.Context(), at)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	s.mem, err = d.Register(rdmatest.Memory(t, dataOff+dataSize), rdma.LocalWrite)
	require.NoError(t, err)
	var recvs []rdma.WorkRequest
	for i := range uint64(receives) {
		recvs = append(recvs, rdma.WorkRequest{ID: i, Local: rdma.SGE{Region: s.mem, Off: (1 + i) * wire.MaxMessage, Len: wire.MaxMessage}})
	}
	s.conn, err = d.Dial(t.Context(), at, rdma.ConnConfig{}, recvs)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.conn.Close()) })

	m := wire.Open{
		Region: region, Methods: 1 << persist.MethodGPSPM, Flags: wire.OpenAllowVolatile, Credits: receives, Lanes: 1,
		Owner: persist.Owner{ID: [16]byte([]byte(region + "0123456789abcde"))},
	}
	var refused wire.Refused
	require.NoError(t, refused.Decode(s.ask(t, &m)))
	require.Equal(t, wire.CodeEpoch, refused.Code, refused.Text)
	m.Epoch = refused.Epoch
	require.NoError(t, s.Decode(s.ask(t, &m)))
	return s
}

// ask sends OPEN and returns the target's answer.
func (s *session) ask(t *testing.T, m *wire.Open) []byte {
	t.Helper()
	n := copy(s.mem.Mem, m.Append(nil))
	_, err := s.conn.Post([]rdma.WorkRequest{{Op: rdma.OpSend, Local: rdma.SGE{Region: s.mem, Len: uint32(n)}}})
	require.NoError(t, err)
	c, err := s.next()
	require.NoError(t, err)
	require.Equal(t, rdma.OpRecv, c.Op)
	return s.mem.Mem[(1+c.ID)*wire.MaxMessage:][:c.Len]
}

// do writes or reads the data at addr of the target, with key.
func (s *session) do(op rdma.Opcode, key uint32, addr uint64) error {
	_, err := s.conn.Post([]rdma.WorkRequest{{
		Op: op, Signaled: true, Local: rdma.SGE{Region: s.mem, Off: dataOff, Len: dataSize}, Remote: rdma.Remote{Key: key, Addr: addr},
	}})
	if err == nil {
		_, err = s.next()
	}
	return err
}

// next waits for the next completion.
func (s *session) next() (rdma.Completion, error) {
	var c [1]rdma.Completion
	for {
		if n, err := s.conn.Poll(c[:]); n > 0 || err != nil {
			return c[0], err
		}
		if err := s.conn.Wait(); err != nil {
			return c[0], err
		}
	}
}

func (s *session) data() []byte { return s.mem.Mem[dataOff:] }
func (s *session) fill(b byte)  { copy(s.data(), bytes.Repeat([]byte{b}, dataSize)) }
