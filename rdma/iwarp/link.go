package iwarp

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"

	"golang.org/x/sys/unix"

	"pmnbd/internal/sockio"
	"pmnbd/rdma"
)

// A link is what MPA runs on: a socket, or TLS on one (Config.Encrypt). As a net.Conn it
// has the socket's addresses, options and deadlines, and its Read and Write are those of
// what MPA runs on.
type link struct {
	net.Conn
	mpa     io.ReadWriter
	secure  *sockio.Handshaken // of a listener that encrypts, until takeOver
	channel *rdma.Channel      // nil: MPA runs on the socket itself
}

// Read implements net.Conn.
func (l *link) Read(p []byte) (int, error) { return l.mpa.Read(p) }

// Write implements net.Conn.
func (l *link) Write(p []byte) (int, error) { return l.mpa.Write(p) }

// served makes the link of nc, which a listener has accepted. If cfg is not nil it does TLS's
// handshake, within nc's deadlines. nc stays the caller's until takeOver.
func served(nc net.Conn, cfg *tls.Config) (l *link, err error) {
	l = &link{Conn: nc, mpa: nc}
	if cfg == nil {
		return l, nil
	}
	if l.secure, err = sockio.HandshakeTLS(nc, cfg); err != nil {
		return nil, err
	}
	l.mpa = l.secure
	l.channel, err = channelOf(l.secure.State())
	return l, err
}

// takeOver makes the stream of a connection on l, and fills in what s says of it. l then runs
// on that. keyBytes is Config.keyBytes. If takeOver fails, the connection is still the caller's.
func (l *link) takeOver(s *setup, keyBytes uint64) (err error) {
	s.channel = l.channel
	if l.secure == nil {
		s.sock, s.mss, err = takeOver(l.Conn)
		if err == nil {
			s.stream, l.Conn, l.mpa = s.sock, s.sock, s.sock
		}
		return err
	}
	s.mss = sockio.MaxRecord // segments are TLS's matter, and fewer FPDUs cost less
	setOptions(l.Conn)
	var secure *sockio.TLS
	if secure, s.sock, err = l.secure.Take(); err != nil {
		return err
	}
	secure.Limit(keyBytes)
	s.stream, l.Conn, l.mpa, l.secure = secure, s.sock, secure, nil
	return nil
}

// dialed makes the link of sock, by which an initiator has reached addr, and fills in what s says
// of it. If cfg says so it does TLS's handshake.
func dialed(s *setup, cfg *Config) (*link, error) {
	l := &link{Conn: s.sock, mpa: s.sock}
	s.stream = s.sock
	if !cfg.Encrypt {
		return l, nil
	}
	secure, err := sockio.DialTLS(s.sock, tlsConfig())
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.As(err, new(tls.RecordHeaderError)) {
		err = fmt.Errorf("%w: %w", errClear, err)
	}
	if err != nil {
		return nil, err
	}
	if l.channel, err = channelOf(secure.State()); err != nil {
		return nil, err
	}
	secure.Limit(cfg.keyBytes)
	s.stream, s.channel, s.mss = secure, l.channel, sockio.MaxRecord
	l.mpa = secure
	return l, nil
}

// errClear adds what to do to the error of a handshake with a peer that does not speak TLS.
var errClear = errors.New("the peer does not speak TLS: does it listen at iwarps://?")

// bindingLabel is that of the channel binding tls-exporter (RFC 9266 §4).
const bindingLabel = "EXPORTER-Channel-Binding"

// channelOf describes the channel of a TLS connection.
func channelOf(state tls.ConnectionState) (*rdma.Channel, error) {
	c := &rdma.Channel{Cipher: fmt.Sprintf("%s, %s, %s", tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite), state.CurveID)}
	b, err := state.ExportKeyingMaterial(bindingLabel, nil, len(c.Binding))
	if err != nil {
		return nil, fmt.Errorf("derive the channel's binding: %w", err)
	}
	copy(c.Binding[:], b)
	return c, nil
}

// tlsConfig returns what both ends want of TLS. There is one choice of each thing, so there is
// nothing that somebody in between could talk them out of.
func tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768},
		// Who the peer is, the proofs of a session say. They cover the channel's binding,
		// and so the certificate, which is thrown away with the process.
		InsecureSkipVerify: true, //nolint:gosec // see above
		// A resumed session would have fewer secrets of its own.
		SessionTicketsDisabled: true,
		// Many small records at the beginning would only cost CPU.
		DynamicRecordSizingDisabled: true,
	}
}

// serverTLS returns the configuration of a listener, with a certificate made for it. TLS needs
// one, and nobody looks at it.
func serverTLS() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("draw a key for TLS: %w", err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	cfg := tlsConfig()
	cfg.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}
	return cfg, nil
}
