package iwarp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

func listen(t *testing.T, cfg Config) *listener {
	l, err := New(cfg).Listen(context.Background(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l.(*listener)
}

func dialRaw(t *testing.T, l *listener) net.Conn {
	nc, err := net.Dial("tcp", l.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(30*time.Second)))
	return nc
}

// ended waits until the other end has closed.
func ended(t *testing.T, nc net.Conn) {
	t.Helper()
	rest, err := io.ReadAll(nc)
	if err != nil {
		require.ErrorIs(t, err, unix.ECONNRESET, "for bytes that nobody read")
	}
	require.Empty(t, rest)
}

// An IPv4 address listens on IPv4 only. [::] listens on both.
func TestListenFamilies(t *testing.T) {
	for address, c := range map[string]struct {
		bound  string
		v4, v6 bool
	}{
		"0.0.0.0:0":   {"0.0.0.0", true, false},
		"127.0.0.1:0": {"127.0.0.1", true, false},
		"[::]:0":      {"::", true, true},
		"[::1]:0":     {"::1", false, true},
	} {
		t.Run(address, func(t *testing.T) {
			if c.v6 {
				testhost.IPv6(t)
			}
			l, err := New(Config{}).Listen(t.Context(), address)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			host, port, err := net.SplitHostPort(l.Addr())
			require.NoError(t, err)
			require.Equal(t, c.bound, host, "as the ready line shows it")
			for from, want := range map[string]bool{"127.0.0.1": c.v4, "::1": c.v6} {
				nc, err := net.Dial("tcp", net.JoinHostPort(from, port))
				require.Equal(t, want, err == nil, "%s: %v", from, err)
				if err == nil {
					require.NoError(t, nc.Close())
				}
			}
		})
	}
}

// Peers that send nothing, or slowly, or rubbish, delay nobody else.
func TestSlowPeersStopNobody(t *testing.T) {
	l := listen(t, Config{})
	for range maxHalfOpen / 2 {
		dialRaw(t, l)
		slow := dialRaw(t, l)
		_, err := slow.Write([]byte(requestKey[:5]))
		require.NoError(t, err)
	}
	ended(t, dialRubbish(t, l))
	rdmatest.ConnectTo(t, New(Config{}), l, rdmatest.Config{})
}

func TestHalfOpenConnectionsAreBounded(t *testing.T) {
	l := listen(t, Config{})
	oldest := dialRaw(t, l)
	for range 3 * maxHalfOpen {
		dialRaw(t, l)
	}
	ended(t, oldest)
	l.mu.Lock()
	require.LessOrEqual(t, len(l.halfOpen), maxHalfOpen)
	l.mu.Unlock()
	rdmatest.ConnectTo(t, New(Config{}), l, rdmatest.Config{})
}

// Half-open connections of one address do not push out another address's.
func TestHalfOpenConnectionsOfAnotherAddress(t *testing.T) {
	l := listen(t, Config{})
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	other, err := from.Dial("tcp", l.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	for range 3 * maxHalfOpen {
		dialRaw(t, l)
	}
	ended(t, dialRubbish(t, l)) // the listener has seen everybody that came before
	_, err = other.Write(hello.append(nil, requestKey))
	require.NoError(t, err)
	req, err := l.Accept()
	require.NoError(t, err)
	require.Equal(t, other.LocalAddr().String(), req.RemoteAddr())
	require.NoError(t, req.Reject(nil))
}

func dialRubbish(t *testing.T, l *listener) net.Conn {
	rubbish := dialRaw(t, l)
	_, err := rubbish.Write([]byte("GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n"))
	require.NoError(t, err)
	return rubbish
}

func TestHandshakeTimeout(t *testing.T) {
	l := listen(t, Config{HandshakeTimeout: time.Millisecond})
	nc := dialRaw(t, l)
	_, err := nc.Write([]byte(requestKey))
	require.NoError(t, err)
	ended(t, nc)
}

func TestRequestsThatNobodyAcceptsAreBounded(t *testing.T) {
	l := listen(t, Config{})
	// Each is answered and closed, or waits. In the end the listener drops one of them.
	var last net.Conn
	for range maxWaiting + 1 {
		last = dialRaw(t, l)
		_, err := last.Write(hello.append(nil, requestKey))
		require.NoError(t, err)
	}
	for len(l.ready) < maxWaiting {
		nc := dialRaw(t, l)
		_, err := nc.Write(hello.append(nil, requestKey))
		require.NoError(t, err)
	}
	dropped := dialRaw(t, l)
	_, err := dropped.Write(hello.append(nil, requestKey))
	require.NoError(t, err)
	ended(t, dropped)
}

// Both ends use CRCs if either asks for them (RFC 5044 §7.1).
func TestCRCIsNegotiated(t *testing.T) {
	for name, tt := range map[string]struct{ initiator, responder, used bool }{
		"both ask":      {true, true, true},
		"the initiator": {true, false, true},
		"the responder": {false, true, true},
		"nobody":        {false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, Config{NoCRC: !tt.responder})
			a, b := rdmatest.ConnectTo(t, New(Config{NoCRC: !tt.initiator}), l, rdmatest.Config{})
			require.Equal(t, tt.used, a.Conn.(*conn).crc)
			require.Equal(t, tt.used, b.Conn.(*conn).crc)
		})
	}
}

func TestMarkersAreRefused(t *testing.T) {
	l := listen(t, Config{})
	nc := dialRaw(t, l)
	req := mpaFrame{Markers: true, CRC: true, Rev: 1}
	_, err := nc.Write(req.append(nil, requestKey))
	require.NoError(t, err)
	rep, err := readMPA(nc, replyKey)
	require.NoError(t, err)
	require.True(t, rep.Reject)
	require.False(t, rep.Markers)
	ended(t, nc)
}

func TestCloseDropsHalfOpenAndWaiting(t *testing.T) {
	l := listen(t, Config{})
	half, waiting := dialRaw(t, l), dialRaw(t, l)
	_, err := waiting.Write(hello.append(nil, requestKey))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for _, nc := range []net.Conn{half, waiting} {
		_, err := io.ReadAll(nc)
		_ = err // it is reset if it was still in the backlog
	}
}

// A peer that sends anything but a request frame gets no answer: the listener closes the
// connection and calls Refused once. Nobody else notices.
func TestRequestsRefused(t *testing.T) {
	request := func(f mpaFrame) []byte { return f.append(nil, requestKey) }
	patched := func(at int, v byte) []byte {
		b := request(hello)
		b[at] = v
		return b
	}
	for name, tt := range map[string]struct {
		sent []byte
		hang bool // the peer sends no more and closes its half
		want error
	}{
		"nothing":                    {nil, true, io.EOF},
		"half a key":                 {[]byte(requestKey[:7]), true, io.ErrUnexpectedEOF},
		"half a header":              {request(hello)[:mpaLengthAt], true, io.ErrUnexpectedEOF},
		"half the private data":      {request(mpaFrame{CRC: true, Rev: 1, Private: make([]byte, 8)})[:mpaHeaderLen+4], true, io.ErrUnexpectedEOF},
		"magic":                      {patched(0, 'm'), false, errMPA},
		"a reply":                    {hello.append(nil, replyKey), false, errMPA},
		"revision 0":                 {patched(mpaRevAt, 0), false, errMPA},
		"revision 3":                 {patched(mpaRevAt, 3), false, errMPA},
		"revision 255":               {patched(mpaRevAt, 255), false, errMPA},
		"oversized private data":     {request(mpaFrame{CRC: true, Rev: 1, Private: make([]byte, maxMPAPrivate+1)}), false, errMPA},
		"all the private data":       {patched(mpaLengthAt, 0xff), false, errMPA},
		"no room for IRD and ORD":    {patched(mpaLengthAt+1, mpaReadsLen-1), false, errMPA},
		"zeroes":                     {make([]byte, 1<<12), false, errMPA},
		"a TLS hello":                {append([]byte{0x16, 3, 1, 2, 0}, make([]byte, 600)...), false, errMPA},
		"an FPDU before a request":   {fpdu(tagged(opWrite, true, 1<<8, regionBase, "evil evil evil")), false, errMPA},
		"an NBD client's first word": {append([]byte("NBDMAGICIHAVEOPT"), make([]byte, 8)...), false, errMPA},
	} {
		t.Run(name, func(t *testing.T) {
			refused := make(chan error, 1)
			l := listen(t, Config{Refused: func(addr string, err error) {
				if addr == "" {
					err = nil // which the test does not expect
				}
				refused <- err
			}})
			nc := dialRaw(t, l)
			_, err := nc.Write(tt.sent)
			require.NoError(t, err)
			if tt.hang {
				require.NoError(t, nc.(*net.TCPConn).CloseWrite())
			}
			ended(t, nc)
			require.ErrorIs(t, <-refused, tt.want)
			rdmatest.ConnectTo(t, New(Config{}), l, rdmatest.Config{})
			require.Empty(t, refused)
		})
	}
}

// Refused hears why the listener dropped honest peers, and does not hear of those that Close
// dropped.
func TestRefusedSaysWhy(t *testing.T) {
	refused := make(chan error, 4*maxHalfOpen)
	l := listen(t, Config{Refused: func(_ string, err error) { refused <- err }})
	oldest := dialRaw(t, l)
	for range maxHalfOpen {
		dialRaw(t, l)
	}
	ended(t, oldest)
	require.ErrorIs(t, <-refused, errCrowded)
	require.NoError(t, l.Close())
	require.Empty(t, refused)

	l = listen(t, Config{HandshakeTimeout: time.Millisecond, Refused: func(_ string, err error) { refused <- err }})
	ended(t, dialRaw(t, l))
	require.ErrorIs(t, <-refused, os.ErrDeadlineExceeded)
}

// Dial meets every kind of answer that a responder may give.
func TestRepliesRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		reply mpaFrame
		want  error
	}{
		"markers":               {mpaFrame{Markers: true, CRC: true, Rev: 2}, rdma.ErrNotSupported},
		"another revision":      {mpaFrame{CRC: true, Rev: 1}, rdma.ErrLost},
		"wants too many Reads":  {mpaFrame{CRC: true, Rev: 2, Enhanced: true, IRD: 1, ORD: 17}, rdma.ErrLost},
		"too much private data": {mpaFrame{CRC: true, Rev: 2, Private: make([]byte, maxMPAPrivate+1)}, rdma.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			result := make(chan error)
			go func() {
				_, err := newDomain(Config{Revision: 2}).Dial(context.Background(), l.Addr().String(), rdma.ConnConfig{}, nil)
				result <- err
			}()
			nc, err := l.Accept()
			require.NoError(t, err)
			defer func() { require.NoError(t, nc.Close()) }()
			_, err = readMPA(nc, requestKey)
			require.NoError(t, err)
			_, err = nc.Write(tt.reply.append(nil, replyKey))
			require.NoError(t, err)
			require.ErrorIs(t, <-result, tt.want)
		})
	}
}

// Allow judges a connection by its addresses before the peer gets an answer. A peer that it
// refuses hears why.
func TestAllow(t *testing.T) {
	refused := make(chan error, 1)
	unwanted := errors.New("nobody wants it")
	var local, remote netip.AddrPort
	var answer error
	l := listen(t, Config{
		Allow: func(l, r netip.AddrPort) error {
			local, remote = l, r
			return answer
		},
		Denied:  "not you",
		Refused: func(_ string, err error) { refused <- err },
	})
	rdmatest.ConnectTo(t, New(Config{}), l, rdmatest.Config{})
	require.Equal(t, l.Addr(), local.String())
	require.Equal(t, local.Addr(), remote.Addr())

	answer = unwanted
	_, err := newDomain(Config{Revision: 2}).Dial(context.Background(), l.Addr(), rdma.ConnConfig{}, nil)
	var reject *rdma.RejectError
	require.ErrorAs(t, err, &reject)
	require.Equal(t, "not you", string(reject.PrivateData))
	require.ErrorContains(t, err, `connection refused by the peer: "not you"`)
	require.ErrorIs(t, <-refused, unwanted)
	require.Empty(t, l.ready, "it never became a request")
}
