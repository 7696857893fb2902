package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma/iwarp"
)

// A middle stands between an initiator and a target, and has no key.
type middle struct {
	t    *testing.T
	l    net.Listener
	to   func(n int) string // the address for connection n
	here func(n int) bool   // whether it ends the initiator's TLS on connection n
	out  func(n int) bool   // whether it begins TLS with the target
	cert tls.Certificate

	all sync.WaitGroup
	mu  sync.Mutex
	n   int
	// Of each connection: what the initiator sent, as it was on the wire, and the target's end.
	sent    map[int]*bytes.Buffer
	targets map[int]net.Conn
}

func newMiddle(t *testing.T) *middle {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(2)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, public, private)
	require.NoError(t, err)
	never := func(int) bool { return false }
	m := &middle{
		t: t, l: l, here: never, out: never, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private},
		sent: make(map[int]*bytes.Buffer), targets: make(map[int]net.Conn),
	}
	return m
}

// begin takes connections until the test ends.
func (m *middle) begin() {
	m.all.Go(func() {
		for {
			c, err := m.l.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			n := m.n
			m.n++
			m.mu.Unlock()
			m.all.Go(func() { m.carry(n, c) })
		}
	})
	m.t.Cleanup(func() {
		_ = m.l.Close()
		m.hangUp()
		m.all.Wait()
	})
}

// hangUp ends all connections.
func (m *middle) hangUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.targets {
		_ = c.Close()
	}
}

// carry is the man in the middle of connection n.
func (m *middle) carry(n int, in net.Conn) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", m.to(n))
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	sent := new(bytes.Buffer)
	m.mu.Lock()
	m.sent[n], m.targets[n] = sent, out
	m.mu.Unlock()
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, Certificates: []tls.Certificate{m.cert}}
	if m.here(n) {
		in = tls.Server(in, cfg)
	}
	if m.out(n) {
		out = tls.Client(out, cfg)
	}
	both := make(chan struct{})
	go func() {
		defer close(both)
		_, _ = io.Copy(in, out)
		_ = in.Close()
	}()
	_, _ = io.Copy(io.MultiWriter(out, m.record(sent)), in)
	_ = out.Close()
	<-both
}

// record returns a writer to b that others can read meanwhile.
func (m *middle) record(b *bytes.Buffer) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return b.Write(p)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// captured returns what the initiator sent on connection n so far.
func (m *middle) captured(n int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.sent[n].Bytes())
}

// inject sends b to the target on connection n.
func (m *middle) inject(n int, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.targets[n].Write(b)
	require.NoError(m.t, err)
}

// encrypted is a target that listens at iwarps:// and at iwarp://, whose initiator has a key. cfg goes
// through m.
func encrypted(t *testing.T, m *middle) (p *pair, cfg Config, clear string) {
	id := (&pair{}).config(t).ID
	secure := iwarp.New(iwarp.Config{Encrypt: true})
	p = newPair(t, secure, "127.0.0.1:0", region.PathMemfd, target.Config{Keys: target.Keys{id: {secretKey}}})
	l, err := iwarp.New(iwarp.Config{}).Listen(context.Background(), "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- p.server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, p.server.Close())
		require.NoError(t, <-served)
	})
	cfg = p.config(t)
	cfg.Addr, cfg.Lanes, cfg.Encrypted, cfg.Target, cfg.Key, cfg.LossTimeout = m.l.Addr().String(), 2, true, targetName, only(secretKey), 0
	m.to = func(int) string { return p.addr }
	return p, cfg, l.Addr()
}

// told is a log that passes on the error of each warning.
type told struct {
	slog.Handler
	hear func(err string)
}

func (h told) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" && r.Level == slog.LevelWarn {
			h.hear(a.Value.String())
		}
		return true
	})
	return h.Handler.Handle(ctx, r)
}

// A man in the middle without a key can decrypt and encrypt, but gets no session: what
// proves a connection on the one side does not prove it on the other. That holds for the first
// lane and for any other, and for encryption on one side alone. Nobody falls back to anything.
func TestManInTheMiddle(t *testing.T) {
	never, always, second := func(int) bool { return false }, func(int) bool { return true }, func(n int) bool { return n%2 == 1 }
	for name, c := range map[string]struct {
		here, out func(n int) bool // whether there is TLS with the initiator, and with the target
		clear     func(n int) bool // whether it leads to the target's clear listener
		encrypts  bool             // the initiator does
		says      string           // empty: the start succeeds
		first     bool             // it is the first lane that fails, so nothing is granted
	}{
		"a wire":                           {never, never, never, true, "", false},
		"TLS on both sides":                {always, always, never, true, "authentication refused", true},
		"TLS on both sides of lane 1":      {second, second, never, true, "lane 1: ", false},
		"clear towards the target":         {always, never, always, true, "authentication refused", true},
		"lane 1 clear towards the target":  {second, never, second, true, "lane 1: ", false},
		"TLS towards the target alone":     {never, always, never, false, "authentication refused", true},
		"lane 1 towards the clear door":    {never, never, second, true, "lane 1: ", false},
		"the first lane to the clear door": {never, never, always, true, "the peer does not speak TLS", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMiddle(t)
			p, cfg, door := encrypted(t, m)
			m.here, m.out = c.here, c.out
			m.to = func(n int) string {
				if c.clear(n) {
					return door
				}
				return p.addr
			}
			m.begin()
			if !c.encrypts {
				cfg.Provider, cfg.Encrypted = iwarp.New(iwarp.Config{}), false
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			heard := make(chan string, 1)
			cfg.Log = slog.New(told{cfg.Log.Handler(), func(err string) {
				select {
				case heard <- err: // a start that a lane failed tries again, and says so
					stop()
				default:
				}
			}})
			d, err := Dial(ctx, cfg)
			switch {
			case c.says == "":
				require.NoError(t, err)
				ours, theirs := d.Snapshot().Targets[0], p.server.Snapshot()[0].Session
				require.Regexp(t, "^[0-9a-f]{16}$", ours.Key)
				require.Regexp(t, "^TLS 1.3, ", ours.Cipher)
				require.Equal(t, []string{ours.Key, ours.Cipher}, []string{theirs.Key, theirs.Cipher})
				require.NoError(t, d.Close())
			case c.first:
				require.ErrorContains(t, err, c.says)
				require.EqualValues(t, 1, p.region.Superblock().Epoch, "nothing was granted")
			default:
				require.Error(t, err)
				require.Contains(t, <-heard, c.says)
			}
		})
	}
}

// A provider that does not encrypt is no way round the demand for encryption, and encryption without
// a key is refused.
func TestEncryptionIsDemanded(t *testing.T) {
	m := newMiddle(t)
	p, cfg, door := encrypted(t, m)
	m.to = func(int) string { return door }
	m.begin()
	clear := cfg
	clear.Provider = iwarp.New(iwarp.Config{})
	_, err := Dial(t.Context(), clear)
	require.ErrorIs(t, err, errClear)
	keyless := cfg
	keyless.Key, keyless.Target = nil, ""
	_, err = Dial(t.Context(), keyless)
	require.ErrorIs(t, err, ErrNoKey)
	keyless.Encrypted, keyless.Addr = false, p.addr // the provider encrypts all the same
	_, err = Dial(t.Context(), keyless)
	require.ErrorIs(t, err, ErrNoKey)
	require.EqualValues(t, 1, p.region.Superblock().Epoch)
}

// A session that comes back through somebody in between does not come back, loses nothing, and goes
// on when the way is clear again. What was captured on one connection does nothing on another one
// of the session, or of another session, but end it.
func TestCapturedIsUseless(t *testing.T) {
	m := newMiddle(t)
	p, cfg, _ := encrypted(t, m)
	var between atomic.Bool
	m.here, m.out = func(int) bool { return between.Load() }, func(int) bool { return between.Load() }
	m.begin()
	d, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	want := backendtest.Pattern(block, 1)
	lost := func(change func()) {
		t.Helper()
		before := d.Snapshot().Recoveries
		change()
		require.Eventually(t, func() bool { return d.Snapshot().Recoveries > before }, patience, tick)
		require.NoError(t, c.Do(c.Flush()))
		require.Equal(t, want, p.region.Data()[:block])
		require.Equal(t, want, p.region.Data()[stripe:][:block])
	}
	// Both lanes carry a write that would undo the one that follows.
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 7), 0), c.Write(stripe, backendtest.Pattern(block, 7), 0), c.Flush()))
	old := [][]byte{m.captured(0), m.captured(1)}
	require.NoError(t, c.Do(c.Write(0, want, 0), c.Write(stripe, want, 0), c.Flush()))
	for n := range 2 {
		require.NotContains(t, string(old[n]), string(backendtest.Pattern(block, 7)[:64]))
	}
	lost(func() { m.inject(0, old[1]) }) // another lane's
	lost(func() { m.inject(2, old[0]) }) // another session's, of the same lane
	lost(func() { m.inject(4, old[0][len(old[0])-64:]) })

	between.Store(true)
	m.hangUp()
	require.Eventually(t, func() bool { return strings.Contains(d.Snapshot().Cause, "authentication refused") }, patience, tick)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)))
	require.Equal(t, want, p.region.Data()[:block])
	between.Store(false)
	require.NoError(t, c.Do(c.Flush()))
	require.Equal(t, backendtest.Pattern(block, 2), p.region.Data()[:block])
	require.NoError(t, d.Close())
}

// Everything that a device does, it does on encrypted connections, too.
func TestConformanceEncrypted(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Device {
		m := newMiddle(t)
		p, cfg, _ := encrypted(t, m)
		require.NoError(t, m.l.Close())
		cfg.Addr = p.addr
		d, err := Dial(context.Background(), cfg)
		require.NoError(t, err)
		return d
	})
}
