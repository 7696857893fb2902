package iwarp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
	"pmnbd/rdma/rdmatest"
)

// socketPair makes a connected pair of unix sockets.
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

// FuzzConn feeds FPDUs to a connection. It makes them from the input: a length byte, then
// that many bytes of ULPDU. After a length of 255 the rest of the input goes in unframed.
// Memory, completions and what the peer receives must be what the model says. Memory outside
// the granted region must not change, and the connection must close.
func FuzzConn(f *testing.F) {
	const guard = 64
	frame := func(us ...[]byte) (b []byte) {
		for _, u := range us {
			b = append(b, byte(len(u)))
			b = append(b, u...)
		}
		return b
	}
	write := func(off uint64, p string) []byte { return tagged(opWrite, true, fuzzKey, regionBase+off, p) }
	response := func(last bool, off uint64, p string) []byte {
		return tagged(opReadResponse, last, fuzzKey, regionBase+fuzzSink+off, p)
	}
	source := func(msn uint32, off uint64, n uint32) []byte {
		return read(msn, readRequest{1, 2, n, fuzzKey, regionBase + off})
	}
	f.Add(frame(write(0, "data"), send(true, 1, 0, "hello"), write(fuzzSize-4, "last")))
	f.Add(frame(source(1, 1, 64), write(7, "data"), source(2, 0, fuzzSize), source(3, 0, 0), source(4, fuzzSize-1, 1)))
	f.Add(frame(source(1, 0, 1), source(2, 0, 2), source(3, 0, 3), source(4, 0, 4), source(5, 0, 5)))
	f.Add(frame(response(true, 0, "0123456789abcdef")))
	f.Add(frame(response(false, 0, "01234567"), response(true, 8, "89abcdef"), response(true, 0, "0123456789abcdef")))
	f.Add(frame(send(false, 1, 0, "1234"), send(true, 1, 4, "5678"), invalidate(2, fuzzKey), write(0, "late")))
	f.Add(frame(send(true, 1, 0, "0123456789abcdef"), send(true, 2, 0, "0123456789abcdefg")))
	f.Add(frame(source(1, 0, 0), source(2, 0, 8), invalidate(1, fuzzKey)))
	f.Add(frame(invalidate(1, fuzzKey), send(true, 2, 0, "nowhere")))
	f.Add(frame(invalidate(1, fuzzKey+1)))
	f.Add(frame(send(true, 2, 0, "early")))
	f.Add(frame(send(false, 1, 0, "1234"), send(true, 1, 5, "6")))
	f.Add(frame(write(8, "good"), append(appendUntagged(nil, opTerminate, true, queueTerminate, 1, 0), 0x11, 0, 0, 0), write(16, "late")))
	f.Add(append([]byte{255}, fpdu(write(fuzzSize-3, "past"))...))

	clean := make([]byte, fuzzSize+2*guard)
	for i := range clean {
		clean[i] = byte(i ^ i>>8) // so that a misplaced byte differs
	}
	mem := rdmatest.Memory(f, len(clean))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4<<10 {
			return // it has to fit the socket
		}
		var stream []byte
		for len(in) > 0 {
			n := int(in[0])
			in = in[1:]
			b := in
			if n < 255 {
				b = in[:min(n, len(in))]
				in = in[len(b):]
				b = fpdu(b)
			} else {
				in = nil
			}
			stream = append(stream, b...)
		}
		want := bytes.Clone(clean)
		m := fuzzModel{region: want[guard : guard+fuzzSize]}
		m.take(stream)

		copy(mem, clean)
		got, sent := converse(t, mem[guard:guard+fuzzSize], stream)
		if !bytes.Equal(want, mem) {
			require.Equal(t, want, mem) // to see the difference; it is slow
		}
		require.Equal(t, m.completions(), got)
		replies, terminate := m.replies()
		gotReplies, gotTerminate := replied(t, sent)
		require.Equal(t, replies, gotReplies)
		require.Equal(t, terminate, gotTerminate)
	})
}

// converse lets a peer send all of stream to a connection whose region is mem. It returns
// what completed and what the peer received.
func converse(t *testing.T, mem, stream []byte) (got []rdma.Completion, sent []byte) {
	d := newDomain(Config{})
	r := &region{mem: mem, access: rdmatest.All, key: fuzzKey}
	r.public = &rdma.MemoryRegion{Mem: mem, Key: fuzzKey, Base: regionBase, Access: r.access}
	d.regions[fuzzKey] = r
	cfg, err := queue.Complete(rdma.ConnConfig{MaxSendWR: 4, MaxRecvWR: 4, MaxReadsIn: fuzzReads}, queue.MaxDepth, maxReads)
	require.NoError(t, err)
	own, peer := socketPair(t)
	sock, mss, err := takeOver(own)
	require.NoError(t, err)
	require.NoError(t, peer.SetReadDeadline(time.Now().Add(30*time.Second))) // ends a test that hangs
	request := func(id uint64, op rdma.Opcode, off int) rdma.WorkRequest {
		return rdma.WorkRequest{ID: id, Op: op, Local: rdma.SGE{Region: r.public, Off: uint64(off), Len: fuzzPart}}
	}
	c, err := newConn(d, &setup{sock: sock, stream: sock, mss: mss, ord: 2}, cfg, []rdma.WorkRequest{request(1, 0, fuzzRecvOff(0)), request(2, 0, fuzzRecvOff(1))})
	require.NoError(t, err)
	_, err = c.Post([]rdma.WorkRequest{request(fuzzReadID, rdma.OpRead, fuzzSink)})
	require.NoError(t, err)

	_, err = peer.Write(stream)
	require.NoError(t, err)
	require.NoError(t, peer.(interface{ CloseWrite() error }).CloseWrite())
	var cs [4]rdma.Completion
	for err == nil {
		var n int
		n, err = c.Poll(cs[:])
		got = append(got, cs[:n]...)
		if err == nil {
			err = c.Wait()
		}
	}
	require.True(t, isKind(err), err)
	sent, err = io.ReadAll(peer) // until the end of the stream
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, peer.Close())
	return got, sent
}

func isKind(err error) bool {
	for _, kind := range []error{rdma.ErrLost, rdma.ErrRemoteAccess, rdma.ErrRemoteOp} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
