package iwarp

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

// socketPair is a connected pair of unix sockets.
func socketPair(t testing.TB) (a, b net.Conn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	conns := [2]net.Conn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		conns[i], err = net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return conns[0], conns[1]
}

// FuzzConn feeds a connection with FPDUs made of the input: a length byte, then
// that many times 4 bytes of ULPDU; with length 255 the rest goes in unframed.
// Whatever comes, memory outside the granted region stays as it was, and the
// connection can be closed.
func FuzzConn(f *testing.F) {
	// Keys and tagged offsets that can be guessed, or no input would find memory.
	const key, size, guard = 0x0100_0007, 4096, 64
	frame := func(us ...[]byte) (b []byte) {
		for _, u := range us {
			u = append(u, make([]byte, -len(u)&3)...)
			b = append(b, byte(len(u)/4))
			b = append(b, u...)
		}
		return b
	}
	f.Add(frame(tagged(opWrite, true, key, regionBase, "data"), send(true, 1, 0, "hello")))
	f.Add(frame(read(1, readRequest{1, 2, 64, key, regionBase}), read(2, readRequest{1, 2, size, key, regionBase})))
	f.Add(frame(tagged(opReadResponse, true, key, regionBase+guard, "0123456789abcdef")))
	f.Add(frame(tagged(opReadResponse, false, key, regionBase+guard, "01234567"), tagged(opReadResponse, true, key, regionBase+guard+8, "89abcdef")))
	f.Add(frame(send(false, 1, 0, "1234"), send(true, 1, 4, "5678"), appendUntagged(nil, opSendInvalidate, true, key, queueSend, 2, 0)))
	f.Add(frame(append(appendUntagged(nil, opTerminate, true, 0, queueTerminate, 1, 0), 0x11, 0, 0, 0)))
	f.Add(append([]byte{255}, fpdu(tagged(opWrite, true, key, regionBase+size-2, "past"))...))

	mem := rdmatest.Memory(f, size+2*guard)
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4<<10 {
			return // it has to fit the socket
		}
		clear(mem)
		d := newDomain(Config{})
		r := &region{mem: mem[guard : guard+size], access: rdmatest.All, key: key}
		r.public = &rdma.MemoryRegion{Mem: r.mem, Key: key, Base: regionBase, Access: r.access}
		d.regions[key] = r
		cfg, err := complete(rdma.ConnConfig{MaxSendWR: 4, MaxRecvWR: 4})
		require.NoError(t, err)
		own, peer := socketPair(t)
		local := rdma.SGE{Region: r.public, Off: guard, Len: 16}
		c, err := newConn(d, &setup{conn: own, ord: 2}, cfg, []rdma.WorkRequest{{Local: local}, {Local: local}})
		require.NoError(t, err)
		_, err = c.Post([]rdma.WorkRequest{{Op: rdma.OpRead, Local: local}})
		require.NoError(t, err)

		var stream []byte
		for len(in) > 0 {
			n := int(in[0]) * 4
			in = in[1:]
			b := in
			if n < 255*4 {
				b = in[:min(n, len(in))]
				in = in[len(b):]
				b = fpdu(b)
			} else {
				in = nil
			}
			stream = append(stream, b...)
		}
		_, err = peer.Write(stream)
		require.NoError(t, err)
		require.NoError(t, peer.(halves).CloseWrite())
		var cs [4]rdma.Completion
		for err == nil {
			if _, err = c.Poll(cs[:]); err == nil {
				err = c.Wait()
			}
			if err == nil {
				continue
			}
			require.True(t, isKind(err), err)
		}
		require.NoError(t, c.Close())
		require.NoError(t, peer.Close())
		require.Equal(t, make([]byte, guard), mem[:guard])
		require.Equal(t, make([]byte, guard), mem[guard+size:])
	})
}

func isKind(err error) bool {
	for _, kind := range []error{rdma.ErrLost, rdma.ErrRemoteAccess, rdma.ErrRemoteOp} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
