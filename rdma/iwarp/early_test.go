package iwarp

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

// A held connection keeps what is written to it until release, and then sends it at once.
type held struct {
	net.Conn
	holds bool
	bytes []byte
}

func (h *held) Write(p []byte) (int, error) {
	if !h.holds {
		return h.Conn.Write(p)
	}
	h.bytes = append(h.bytes, p...)
	return len(p), nil
}

func (h *held) release(t *testing.T) {
	h.holds = false
	_, err := h.Write(h.bytes)
	require.NoError(t, err)
}

// What a peer sends right behind its start-up frame arrives with it: in one segment, and in one
// record of TLS or in two. Whoever reads the frame must not take any of that away, because poll(2)
// never reports it again.
func TestFPDURightBehindTheStartUpFrame(t *testing.T) {
	early := fpdu(send(true, 1, 0, "early"))
	for name, tt := range map[string]struct{ encrypt, apart bool }{
		"clear":       {},
		"one record":  {encrypt: true},
		"two records": {encrypt: true, apart: true},
	} {
		// tell sends frame and the FPDU by peer, which runs on h.
		tell := func(t *testing.T, h *held, peer net.Conn, frame []byte) {
			h.holds = true
			parts := [][]byte{append(frame, early...)}
			if tt.apart {
				parts = [][]byte{frame, early}
			}
			for _, p := range parts {
				_, err := peer.Write(p)
				require.NoError(t, err)
			}
			h.release(t)
		}
		t.Run(name+", request", func(t *testing.T) {
			l := listen(t, Config{Encrypt: tt.encrypt})
			h := &held{Conn: dialRaw(t, l)}
			var peer net.Conn = h
			if tt.encrypt {
				secure := tls.Client(h, tlsConfig())
				require.NoError(t, secure.Handshake())
				peer = secure
			}
			tell(t, h, peer, hello.append(nil, requestKey))
			req, err := l.Accept()
			require.NoError(t, err)
			d, err := req.OpenDomain()
			require.NoError(t, err)
			hears(t, d, func(recvs []rdma.WorkRequest) (rdma.Conn, error) { return req.Accept(d, rdma.ConnConfig{}, recvs) })
		})
		t.Run(name+", reply", func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { _ = l.Close() }()
			d, err := New(Config{Encrypt: tt.encrypt}).OpenDomain(context.Background(), "")
			require.NoError(t, err)
			hears(t, d, func(recvs []rdma.WorkRequest) (c rdma.Conn, err error) {
				dialed := make(chan struct{})
				go func() {
					defer close(dialed)
					c, err = d.Dial(context.Background(), l.Addr().String(), rdma.ConnConfig{}, recvs)
				}()
				nc, aerr := l.Accept()
				require.NoError(t, aerr)
				t.Cleanup(func() { _ = nc.Close() })
				h := &held{Conn: nc}
				var peer net.Conn = h
				if tt.encrypt {
					cfg, cerr := serverTLS()
					require.NoError(t, cerr)
					peer = tls.Server(h, cfg)
				}
				_, aerr = readMPA(peer, requestKey) // after TLS's handshake
				require.NoError(t, aerr)
				rep := hello
				tell(t, h, peer, rep.append(nil, replyKey))
				<-dialed
				return c, err
			})
		})
	}
}

// hears checks that a connection, which makes posts receives for, gets the early message.
func hears(t *testing.T, d rdma.Domain, makes func(recvs []rdma.WorkRequest) (rdma.Conn, error)) {
	r, err := d.Register(rdmatest.Memory(t, 4096), rdma.LocalWrite)
	require.NoError(t, err)
	c, err := makes([]rdma.WorkRequest{{ID: 7, Local: rdma.SGE{Region: r, Len: 16}}})
	require.NoError(t, err)
	next(t, c.(*conn), 7)
	require.Equal(t, "early", string(r.Mem[:5]))
	require.NoError(t, c.Close())
}
