package rdmatest

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

// echo checks that a and b still work.
func echo(t *testing.T, a, b *End) {
	t.Helper()
	b.Recv(t, 1, 0, 8)
	a.Post(t, rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("echo")})
	require.Equal(t, rdma.OpRecv, b.Next(t).Op)
}

func (s *suite) remoteAccess(t *testing.T) {
	const size = 1 << 16
	tests := []struct {
		name   string
		access rdma.Access
		n      uint32
		remote func(b *End) rdma.Remote
	}{
		{"unknown key", All, 64, func(b *End) rdma.Remote { return rdma.Remote{Key: b.Region.Key ^ 0x5a5a, Addr: b.Region.Base} }},
		{"key 0", All, 64, func(b *End) rdma.Remote { return rdma.Remote{Addr: b.Region.Base} }},
		{"one past the end", All, 64, func(b *End) rdma.Remote { return b.At(size - 63) }},
		{"at the end", All, 1, func(b *End) rdma.Remote { return b.At(size) }},
		{"longer than the region", All, size + 1, func(b *End) rdma.Remote { return b.At(0) }},
		{"one before the start", All, 64, func(b *End) rdma.Remote { return b.At(math.MaxUint64) }},
		{"wraps around", All, 64, func(b *End) rdma.Remote { return rdma.Remote{Key: b.Region.Key, Addr: math.MaxUint64 - 31} }},
		{"wraps to the start", All, 64, func(b *End) rdma.Remote { return rdma.Remote{Key: b.Region.Key, Addr: math.MaxUint64 - 63} }},
		{"missing right", rdma.LocalWrite, 64, func(b *End) rdma.Remote { return b.At(0) }},
		{"the other right", 0, 64, func(b *End) rdma.Remote { return b.At(0) }},
	}
	l := s.listen(t)
	bystander, target := ConnectTo(t, s.p, l, Config{Size: size})
	for op, verb := range map[rdma.Opcode]string{rdma.OpWrite: "write", rdma.OpRead: "read"} {
		other := map[rdma.Opcode]rdma.Access{rdma.OpWrite: rdma.RemoteRead, rdma.OpRead: rdma.RemoteWrite}[op]
		for _, tt := range tests {
			t.Run(verb+" "+tt.name, func(t *testing.T) {
				access := tt.access
				if access == 0 {
					access = other
				}
				if op == rdma.OpRead && access&rdma.RemoteRead == 0 && slices.Contains(s.lacks, ReadRights) {
					t.Skip("the device does not check the right to read")
				}
				a, b := ConnectTo(t, s.p, l, Config{Size: 2 * size})
				scribble(b.Region.Mem, 7)
				r, err := b.Domain.Register(b.Region.Mem[:size:size], access)
				require.NoError(t, err)
				victim := &End{Region: r}
				before := bytes.Clone(b.Region.Mem)
				a.Post(t, rdma.WorkRequest{Op: op, Signaled: true, Local: a.Local(0, tt.n), Remote: tt.remote(victim)})
				s.refused(t, a.Failed(t), rdma.ErrRemoteAccess)
				require.Error(t, b.Failed(t))
				from := 0
				if tt.n > size {
					from = size // the bytes before the bound may have been placed
				}
				equal(t, before[from:], b.Region.Mem[from:])
				_, err = a.Conn.Post([]rdma.WorkRequest{{Op: rdma.OpSend}})
				s.refused(t, err, rdma.ErrRemoteAccess) // the first error is kept
				echo(t, bystander, target)
			})
		}
	}
}

func (s *suite) otherDomain(t *testing.T) {
	l := s.listen(t)
	a, b := ConnectTo(t, s.p, l, Config{})
	other, victim := ConnectTo(t, s.p, l, Config{})
	a.Post(t, rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(0, 64), Remote: victim.At(0)})
	s.refused(t, a.Failed(t), rdma.ErrRemoteAccess)
	require.Error(t, b.Failed(t))
	echo(t, other, victim)
}

func (s *suite) deregistered(t *testing.T) {
	for name, op := range map[string]rdma.Opcode{"write": rdma.OpWrite, "read": rdma.OpRead} {
		t.Run(name, func(t *testing.T) {
			a, b := s.connect(t, Config{})
			old := b.At(0)
			mem := b.Region.Mem
			require.NoError(t, b.Domain.Deregister(b.Region))
			fresh, err := b.Domain.Register(mem, All)
			require.NoError(t, err)
			require.NotEqual(t, old.Key, fresh.Key, "keys are not reused")
			a.Post(t, rdma.WorkRequest{Op: op, Local: a.Local(0, 64), Remote: old})
			s.refused(t, a.Failed(t), rdma.ErrRemoteAccess)
		})
	}
}

// Once Deregister has returned, Writes that are still on their way change nothing.
func (s *suite) deregisterFences(t *testing.T) {
	a, b := s.connect(t, Config{})
	wrs := []rdma.WorkRequest{
		{Op: rdma.OpWrite, Local: a.Local(0, 1<<20), Remote: b.At(0)},
		{Op: rdma.OpSend, Inline: []byte("more is coming")},
	}
	for range 64 {
		wrs = append(wrs, wrs[0])
	}
	scribble(a.Region.Mem, 8)
	b.Recv(t, 1, 0, 16)
	a.Post(t, wrs...)
	b.Next(t)
	require.NoError(t, b.Domain.Deregister(b.Region))
	clear(b.Region.Mem) // the race detector would see a placement at the same time
	// A kernel may have placed all of them before this goroutine woke.
	_, _ = a.Conn.Post(wrs[:1]) // the connection has failed, or will
	s.refused(t, a.Failed(t), rdma.ErrRemoteAccess)
	require.Error(t, b.Failed(t))
	equal(t, make([]byte, len(b.Region.Mem)), b.Region.Mem)
}

func (s *suite) sendWithoutReceive(t *testing.T) {
	a, b := s.connect(t, Config{})
	a.Post(t, rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("anybody?")})
	s.refused(t, a.Failed(t), rdma.ErrRemoteOp)
	require.Error(t, b.Failed(t))
}

func (s *suite) sendTooLong(t *testing.T) {
	a, b := s.connect(t, Config{})
	b.Recv(t, 1, 0, 7)
	a.Post(t, rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("too long")})
	s.refused(t, a.Failed(t), rdma.ErrRemoteOp)
	require.Error(t, b.Failed(t))
	equal(t, make([]byte, 16), b.Region.Mem[:16])
}

func (s *suite) localAccess(t *testing.T) {
	a, b := s.connect(t, Config{})
	readOnly, err := a.Domain.Register(a.Region.Mem, rdma.RemoteRead)
	require.NoError(t, err)
	ended, err := a.Domain.Register(a.Region.Mem, All)
	require.NoError(t, err)
	require.NoError(t, a.Domain.Deregister(ended))
	for _, tt := range []struct {
		name  string
		local rdma.SGE
		op    rdma.Opcode
	}{
		{"past the end", a.Local(1<<20-1, 2), rdma.OpWrite},
		{"offset wraps", a.Local(math.MaxUint64, 2), rdma.OpSend},
		{"another domain's region", b.Local(0, 64), rdma.OpWrite},
		{"no region", rdma.SGE{Len: 1}, rdma.OpSend},
		{"deregistered", rdma.SGE{Region: ended, Len: 1}, rdma.OpWrite},
		{"read into what cannot be written", rdma.SGE{Region: readOnly, Len: 1}, rdma.OpRead},
		{"receive into what cannot be written", rdma.SGE{Region: readOnly, Len: 1}, rdma.OpRecv},
		{"receive past the end", a.Local(1<<20-1, 2), rdma.OpRecv},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wrs := []rdma.WorkRequest{{Op: tt.op, Local: tt.local, Remote: b.At(0)}}
			var err error
			if tt.op == rdma.OpRecv {
				err = a.Conn.PostRecv(wrs)
			} else {
				_, err = a.Conn.Post(wrs)
			}
			require.ErrorIs(t, err, rdma.ErrLocalAccess)
		})
	}
}
