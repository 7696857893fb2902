package nbd

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/sockio"
	"pmnbd/nbd/wire"
)

// selfSigned makes a self-signed certificate.
func selfSigned(name string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name},
		IsCA:     true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		panic(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}
}

// The certificates of a server, of a client that it knows, and of one that it does not.
var (
	serverCert   = sync.OnceValue(func() tls.Certificate { return selfSigned("server") })
	clientCert   = sync.OnceValue(func() tls.Certificate { return selfSigned("client") })
	strangerCert = sync.OnceValue(func() tls.Certificate { return selfSigned("client") })
)

func poolOf(c tls.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.Leaf)
	return p
}

func serverTLS(auth tls.ClientAuthType) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{serverCert()}, ClientAuth: auth, ClientCAs: poolOf(clientCert()),
		SessionTicketsDisabled: true,
	}
}

func clientTLS(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: poolOf(serverCert()), ServerName: "server", Certificates: certs}
}

// startTLS upgrades a connection to TLS after the greeting.
func startTLS(t testing.TB, nc net.Conn, cfg *tls.Config) *tls.Conn {
	t.Helper()
	require.Equal(t, wire.RepAck, last(t, nc, wire.OptStartTLS, nil))
	c := tls.Client(nc, cfg)
	require.NoError(t, c.Handshake())
	return c
}

// requireSilence checks that the server hangs up and has interpreted nothing that the test
// sent.
func requireSilence(t testing.TB, nc net.Conn) {
	t.Helper()
	said := drain(t, nc)
	magic := binary.BigEndian.AppendUint64(nil, wire.MagicOptionReply)
	require.False(t, bytes.Contains(said, magic), "%x", said)
}

// hostileTLS are attacks on the upgrade and on what follows it. Each gets a connection after
// the greeting.
var hostileTLS = []struct {
	name   string
	server string // whose TLS is "on", "require"d, or verifies ("verify") clients
	attack func(t *testing.T, nc net.Conn)
}{
	{"STARTTLS twice", "on", func(t *testing.T, nc net.Conn) {
		c := startTLS(t, nc, clientTLS())
		require.Equal(t, wire.RepErrInvalid, last(t, c, wire.OptStartTLS, nil))
		require.Equal(t, wire.RepErrInvalid, last(t, c, wire.OptStartTLS, []byte("x")))
		require.Equal(t, wire.RepAck, last(t, c, wire.OptList, nil))
	}},
	{"STARTTLS with data", "require", func(t *testing.T, nc net.Conn) {
		require.Equal(t, wire.RepErrInvalid, last(t, nc, wire.OptStartTLS, []byte("x")))
		require.Equal(t, wire.RepErrTLSReqd, last(t, nc, wire.OptList, nil), "it is as if it were not said")
		startTLS(t, nc, clientTLS())
	}},
	{"plaintext behind STARTTLS in its segment", "on", func(t *testing.T, nc net.Conn) {
		b := wire.AppendOption(nil, wire.OptStartTLS, nil)
		_, err := nc.Write(append(b, wire.AppendOption(nil, wire.OptList, nil)...))
		require.NoError(t, err)
		_, r := recvOption(t, nc)
		require.Equal(t, wire.RepAck, r.typ)
		requireSilence(t, nc)
	}},
	{"plaintext between STARTTLS and a good handshake", "on", func(t *testing.T, nc net.Conn) {
		b := wire.AppendOption(nil, wire.OptStartTLS, nil)
		_, err := nc.Write(append(b, wire.AppendOption(nil, wire.OptStructuredReply, nil)...))
		require.NoError(t, err)
		_, r := recvOption(t, nc)
		require.Equal(t, wire.RepAck, r.typ)
		require.Error(t, tls.Client(nc, clientTLS()).Handshake())
		requireSilence(t, nc)
	}},
	{"structured replies and a context before STARTTLS", "on", func(t *testing.T, nc net.Conn) {
		require.Equal(t, wire.RepAck, last(t, nc, wire.OptStructuredReply, nil))
		require.Equal(t, wire.RepAck, last(t, nc, wire.OptSetMetaContext, wire.AppendMetaRequest(nil, "disk", wire.ContextAllocation)))
		c := startTLS(t, nc, clientTLS())
		require.Equal(t, wire.RepErrInvalid, last(t, c, wire.OptSetMetaContext, wire.AppendMetaRequest(nil, "disk", wire.ContextAllocation)))
		require.Equal(t, wire.RepAck, last(t, c, wire.OptGo, wire.AppendInfoRequest(nil, "disk")))
		r := wire.Request{Command: wire.CmdRead, Cookie: 1, Len: 512}
		_, err := c.Write(wire.AppendRequest(nil, r))
		require.NoError(t, err)
		_, a := (&rawConn{Conn: c, form: simple}).recv(t, known(t, r))
		require.Zero(t, a.errno)
	}},
	{"a context before STARTTLS, structured replies behind it", "on", func(t *testing.T, nc net.Conn) {
		require.Equal(t, wire.RepAck, last(t, nc, wire.OptStructuredReply, nil))
		require.Equal(t, wire.RepAck, last(t, nc, wire.OptSetMetaContext, wire.AppendMetaRequest(nil, "disk", wire.ContextAllocation)))
		c := startTLS(t, nc, clientTLS())
		require.Equal(t, wire.RepAck, last(t, c, wire.OptStructuredReply, nil))
		require.Equal(t, wire.RepAck, last(t, c, wire.OptGo, wire.AppendInfoRequest(nil, "disk")))
		r := wire.Request{Command: wire.CmdBlockStatus, Cookie: 1, Len: 512}
		_, err := c.Write(wire.AppendRequest(nil, r))
		require.NoError(t, err)
		_, a := (&rawConn{Conn: c, form: structured}).recv(t, known(t, r))
		require.Equal(t, backend.EINVAL, a.errno)
	}},
	{"extended headers before STARTTLS", "on", func(t *testing.T, nc net.Conn) {
		require.Equal(t, wire.RepAck, last(t, nc, wire.OptExtendedHeaders, nil))
		c := startTLS(t, nc, clientTLS())
		_, err := c.Write(wire.AppendOption(nil, wire.OptExportName, []byte("disk")))
		require.NoError(t, err)
		_, err = wire.DecodeExport(readN(t, c, wire.ExportReplyZeroesSize)[:wire.ExportReplySize])
		require.NoError(t, err, "where extended headers count, it hangs up")
	}},
	{"any option where TLS is required", "require", func(t *testing.T, nc net.Conn) {
		for _, o := range []wire.Option{0, 4, 99, wire.OptList, wire.OptInfo, wire.OptGo, wire.OptStructuredReply,
			wire.OptListMetaContext, wire.OptSetMetaContext, wire.OptExtendedHeaders} {
			for _, data := range []string{"", "\x00\x00\x00\x04disk\x00\x00"} {
				require.Len(t, option(t, nc, o, []byte(data)), 1)
				require.Equal(t, wire.RepErrTLSReqd, last(t, nc, o, []byte(data)), o)
			}
		}
		c := startTLS(t, nc, clientTLS())
		for _, o := range []wire.Option{0, 4, 99, wire.OptList, wire.OptInfo, wire.OptSetMetaContext, wire.OptExtendedHeaders} {
			require.NotEqual(t, wire.RepErrTLSReqd, last(t, c, o, nil), o)
		}
	}},
	{"EXPORT_NAME where TLS is required", "require", func(t *testing.T, nc net.Conn) {
		_, err := nc.Write(wire.AppendOption(nil, wire.OptExportName, []byte("disk")))
		require.NoError(t, err)
		closed(t, nc)
	}},
	{"ABORT where TLS is required", "require", func(t *testing.T, nc net.Conn) {
		require.Equal(t, wire.RepAck, last(t, nc, wire.OptAbort, nil))
		closed(t, nc)
	}},
	{"ABORT in TLS", "require", func(t *testing.T, nc net.Conn) {
		c := startTLS(t, nc, clientTLS())
		require.Equal(t, wire.RepAck, last(t, c, wire.OptAbort, nil))
		closed(t, c)
	}},
	{"a request where TLS is required", "require", func(t *testing.T, nc net.Conn) {
		_, err := nc.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdRead, Len: 512}))
		require.NoError(t, err)
		closed(t, nc)
	}},
	{"plaintext options in TLS", "on", func(t *testing.T, nc net.Conn) {
		startTLS(t, nc, clientTLS())
		_, err := nc.Write(wire.AppendOption(nil, wire.OptList, nil))
		require.NoError(t, err)
		requireSilence(t, nc)
	}},
	{"plaintext requests in TLS", "on", func(t *testing.T, nc net.Conn) {
		c := startTLS(t, nc, clientTLS())
		require.Equal(t, wire.RepAck, last(t, c, wire.OptGo, wire.AppendInfoRequest(nil, "disk")))
		_, err := nc.Write(append(wire.AppendRequest(nil, wire.Request{Command: wire.CmdWrite, Off: 8192, Len: 512}), make([]byte, 512)...))
		require.NoError(t, err)
		requireSilence(t, nc)
	}},
	{"a forged record", "on", func(t *testing.T, nc net.Conn) {
		startTLS(t, nc, clientTLS())
		_, err := nc.Write(append([]byte{23, 3, 3, 1, 0}, make([]byte, 256)...))
		require.NoError(t, err)
		requireSilence(t, nc)
	}},
	{"a record that is too long", "on", func(t *testing.T, nc net.Conn) {
		startTLS(t, nc, clientTLS())
		_, err := nc.Write([]byte{23, 3, 3, 0xff, 0xff})
		require.NoError(t, err)
		requireSilence(t, nc)
	}},
	{"a record of no known type", "on", func(t *testing.T, nc net.Conn) {
		startTLS(t, nc, clientTLS())
		_, err := nc.Write([]byte{99, 3, 3, 0, 1, 0})
		require.NoError(t, err)
		requireSilence(t, nc)
	}},
	{"garbage for a handshake", "on", func(t *testing.T, nc net.Conn) {
		require.Equal(t, wire.RepAck, last(t, nc, wire.OptStartTLS, nil))
		_, err := nc.Write(backendtest.Pattern(4096, 7))
		require.NoError(t, err)
		requireSilence(t, nc)
	}},
	{"half-close in the handshake", "on", func(t *testing.T, nc net.Conn) {
		require.Equal(t, wire.RepAck, last(t, nc, wire.OptStartTLS, nil))
		_, err := nc.Write([]byte{22, 3, 1, 2, 0, 1})
		require.NoError(t, err)
		require.NoError(t, nc.(*net.UnixConn).CloseWrite())
		requireSilence(t, nc)
	}},
	{"a TLS version of old", "on", func(t *testing.T, nc net.Conn) {
		require.Equal(t, wire.RepAck, last(t, nc, wire.OptStartTLS, nil))
		cfg := clientTLS()
		cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		require.Error(t, tls.Client(nc, cfg).Handshake())
		requireSilence(t, nc)
	}},
	{"no certificate where one is required", "verify", func(t *testing.T, nc net.Conn) { requireStranger(t, nc, clientTLS()) }},
	{"a stranger's certificate", "verify", func(t *testing.T, nc net.Conn) { requireStranger(t, nc, clientTLS(strangerCert())) }},
	{"the server's own certificate", "verify", func(t *testing.T, nc net.Conn) { requireStranger(t, nc, clientTLS(serverCert())) }},
	{"every option in a record of its own byte by byte", "require", func(t *testing.T, nc net.Conn) {
		c := startTLS(t, nc, clientTLS())
		for _, b := range wire.AppendOption(wire.AppendOption(nil, wire.OptList, nil), wire.OptAbort, nil) {
			_, err := c.Write([]byte{b})
			require.NoError(t, err)
		}
		for _, want := range []wire.ReplyType{wire.RepServer, wire.RepAck, wire.RepAck} {
			_, r := recvOption(t, c)
			require.Equal(t, want, r.typ)
		}
		closed(t, c)
	}},
	{"options after GO in its record", "require", func(t *testing.T, nc net.Conn) {
		c := startTLS(t, nc, clientTLS())
		b := wire.AppendOption(nil, wire.OptGo, wire.AppendInfoRequest(nil, "disk"))
		_, err := c.Write(append(b, wire.AppendOption(nil, wire.OptInfo, wire.AppendInfoRequest(nil, "disk", 1, 2, 3))...))
		require.NoError(t, err)
		for _, want := range []wire.ReplyType{wire.RepInfo, wire.RepInfo, wire.RepAck} {
			_, r := recvOption(t, c)
			require.Equal(t, want, r.typ)
		}
		closed(t, c)
	}},
}

// requireStranger checks that the server does not talk to a client with cfg. With TLS 1.3
// the client notices when it reads.
func requireStranger(t testing.TB, nc net.Conn, cfg *tls.Config) {
	t.Helper()
	require.Equal(t, wire.RepAck, last(t, nc, wire.OptStartTLS, nil))
	c := tls.Client(nc, cfg)
	if c.Handshake() == nil {
		_, _ = c.Write(wire.AppendOption(nil, wire.OptList, nil)) // it may be gone
		n, err := c.Read(make([]byte, 1))
		require.Zero(t, n)
		require.ErrorContains(t, err, "certificate")
	}
	requireSilence(t, nc)
}

func TestHostileTLS(t *testing.T) {
	type server struct {
		*fixture
		*witness
	}
	servers := make(map[string]server)
	for name, cfg := range map[string]Config{
		"on":      {TLS: serverTLS(tls.NoClientCert)},
		"require": {TLS: serverTLS(tls.NoClientCert), RequireTLS: true},
		"verify":  {TLS: serverTLS(tls.RequireAndVerifyClientCert), RequireTLS: true},
	} {
		f := serveWith(t, cfg, newMem(t, 1<<20))
		servers[name] = server{f, f.witness(entry{tls: clientTLS(clientCert())})}
	}
	for _, tt := range hostileTLS {
		t.Run(tt.name, func(t *testing.T) {
			s := servers[tt.server]
			nc := s.raw()
			greet(t, nc, wire.ClientFixedNewstyle)
			tt.attack(t, nc)
			_ = nc.Close() // it may be closed
			s.check(t)
		})
	}
	for _, s := range servers { // before descriptors are counted
		s.shutdown()
	}
}

// TestTLSNeedsFixedNewstyle: a client that does not speak fixed newstyle gets no TLS. If the
// server requires TLS it gets nothing else either (proto.md, "Server-side requirements").
func TestTLSNeedsFixedNewstyle(t *testing.T) {
	f := serveWith(t, Config{TLS: serverTLS(tls.NoClientCert), RequireTLS: true}, newMem(t, 1<<20))
	nc := f.raw()
	greet(t, nc, 0)
	require.Equal(t, wire.RepErrInvalid, last(t, nc, wire.OptStartTLS, nil))
	require.Equal(t, wire.RepErrTLSReqd, last(t, nc, wire.OptGo, wire.AppendInfoRequest(nil, "disk")))
}

// A client that negotiates holds no thread, with TLS neither: it may be a stranger, and it may wait for as
// long as it likes.
func TestNegotiationHoldsNoThread(t *testing.T) {
	f := serveWith(t, Config{TLS: serverTLS(tls.NoClientCert)}, newMem(t, 1<<20))
	blocks := func() (n int) {
		f.srv.mu.Lock()
		defer f.srv.mu.Unlock()
		for c := range f.srv.conns {
			if _, ok := c.current().(*sockio.Socket); ok {
				n++
			}
		}
		return n
	}
	nc := f.raw()
	greet(t, nc, wire.ClientFixedNewstyle)
	require.Zero(t, blocks())
	c := startTLS(t, nc, clientTLS())
	require.Equal(t, wire.RepAck, last(t, c, wire.OptList, nil))
	require.Zero(t, blocks())
	require.Equal(t, wire.RepAck, last(t, c, wire.OptGo, wire.AppendInfoRequest(nil, "disk")))
	_, err := c.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdFlush, Cookie: 7}))
	require.NoError(t, err)
	require.EqualValues(t, 7, recvReply(t, c).Cookie)
	require.Equal(t, 1, blocks(), "a client that is served has a thread that waits for it")
}
