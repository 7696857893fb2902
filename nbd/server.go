// Package nbd is the NBD protocol server: it negotiates with clients, turns what
// they send into batches of backend.Op, and writes the replies.
//
// It exists so that a Device knows nothing of NBD. It owns the listeners and the
// client connections, each with one goroutine that reads requests into the write
// arena, parses them in place, submits them and replies (design §4). It may import
// backend, sockio and nbd/wire; it links no RDMA.
package nbd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"pmnbd/backend"
	"pmnbd/internal/loglimit"
	"pmnbd/nbd/wire"
)

// Config is how a Server serves. The zero value works.
type Config struct {
	// Logger gets lines per connection and per breach of the protocol, none per
	// request; of each kind at most 10 in 10 s, for clients come as often as they
	// like. Nil is silence.
	Logger *zap.Logger
	// MaxConnections bounds the connections, those in negotiation included. One more
	// takes the place of one that is negotiating, or is closed at once: of the host that
	// has most of these, the one that has been at it for the longest time. Each may hold a receive chunk, for which the write arena
	// needs room beside the window, and a chunk of the read arena. 0 means 64: more than
	// any client opens for one device, and 16 MiB of chunks in each arena.
	MaxConnections int
	// HandshakeTimeout is how long a client may negotiate. 0 means 10 s, as other
	// servers allow.
	HandshakeTimeout time.Duration
	// TLS lets clients upgrade by STARTTLS; nil refuses that. RequireTLS refuses
	// everything else until they have ("FORCEDTLS" of proto.md).
	TLS        *tls.Config
	RequireTLS bool

	stall time.Duration // stallTimeout, less in tests
}

func (cfg Config) withDefaults() Config {
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.MaxConnections == 0 {
		cfg.MaxConnections = 64
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = 10 * time.Second
	}
	if cfg.stall == 0 {
		cfg.stall = stallTimeout
	}
	return cfg
}

// Of each message about clients, samples go out in a time of sampled: enough for somebody
// who looks for the cause of a refusal, little for the disk with the log.
const (
	sampled = 10 * time.Second
	samples = 10
)

// An Export is a Device under a name.
type Export struct {
	Name   string // at most wire.MaxString bytes
	Device backend.Device
	// ReadOnly refuses what would change the Device's contents.
	ReadOnly bool
}

// A Server serves exports. The Devices stay the caller's, who closes them after
// Shutdown.
type Server struct {
	cfg     Config
	log     *zap.Logger // of what clients do
	exports []*export   // the first is the default

	mu        sync.Mutex
	closed    bool
	done      chan struct{} // closed with closed
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	wg        sync.WaitGroup // accept loops, connections, background flushes
}

// New makes a server of exports, of which the first is the default. Names are
// unique, and each Device's arenas have room for the connections.
func New(cfg Config, exports ...Export) (*Server, error) {
	s := &Server{
		cfg:       cfg.withDefaults(),
		done:      make(chan struct{}),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
	}
	s.log = loglimit.PerMessage(s.cfg.Logger, samples, sampled)
	memories := make(map[*backend.Arenas]*memory)
	for _, e := range exports {
		if len(e.Name) > wire.MaxString {
			return nil, fmt.Errorf("export name of %d bytes: at most %d are allowed", len(e.Name), wire.MaxString)
		}
		if s.lookup(e.Name) != nil {
			return nil, fmt.Errorf("export %q: the name is taken", e.Name)
		}
		x, err := newExport(e, s.log, s.cfg.MaxConnections, memories)
		if err != nil {
			return nil, fmt.Errorf("export %q: %w", e.Name, err)
		}
		s.exports = append(s.exports, x)
	}
	if cfg.RequireTLS && cfg.TLS == nil {
		return nil, errors.New("TLS is required and not configured")
	}
	if len(s.exports) == 0 {
		return nil, errors.New("a server without exports")
	}
	return s, nil
}

// lookup finds an export. The empty name is the default's, whatever else it has.
func (s *Server) lookup(name string) *export {
	for _, x := range s.exports {
		if x.name == name {
			return x
		}
	}
	if name == "" && len(s.exports) > 0 {
		return s.exports[0]
	}
	return nil
}

// Serve accepts clients of l, which it closes, until Shutdown; then it returns
// nil. It may be called for several listeners at the same time.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return l.Close()
	}
	s.listeners[l] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
		_ = l.Close() // Shutdown closed it already, or the cause is returned
	}()
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			s.start(nc)
		case s.isClosed():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %v: %w", l.Addr(), err)
		default: // a client's failure, or the system is out of something: it may pass
			s.log.Warn("accepting clients is interrupted", zap.Stringer("listener", l.Addr()), zap.Error(err))
			if !s.pause(acceptPause) {
				return nil
			}
		}
	}
}

// acceptPause is how long accepting rests when it failed: what is missing only other
// work can give back.
const acceptPause = 100 * time.Millisecond

// pause waits for d, and reports false when Shutdown cut that short.
func (s *Server) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.done:
		return false
	}
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// start serves nc on a goroutine of its own, if there is room for it.
func (s *Server) start(nc net.Conn) {
	c := &conn{srv: s, nc: nc, host: hostOf(nc), began: time.Now(), killed: make(chan struct{}), negotiating: true}
	c.log = s.log.With(zap.String("client", clientName(nc)))
	s.mu.Lock()
	var away *conn
	switch {
	case s.closed:
		s.mu.Unlock()
		_ = nc.Close()
		return
	case len(s.conns) >= s.cfg.MaxConnections:
		if away = s.slowestLocked(c.host); away == nil {
			away = c
		}
		delete(s.conns, away)
	}
	if away != c {
		s.conns[c] = struct{}{}
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if away != nil {
		away.kill()
		away.log.Warn("client turned away: too many connections",
			zap.Int("limit", s.cfg.MaxConnections), zap.Duration("after", time.Since(away.began)))
	}
	if away == c {
		return
	}
	go func() {
		defer s.wg.Done()
		c.run()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
}

// slowestLocked is the connection that makes room for one more of host, or nil. Clients that say
// nothing must not keep others out until they time out, and a host that connects again and
// again must not push out those of other hosts. So it is of the host that has most
// connections in negotiation, and the one that has been at it for the longest time. mu is
// held.
func (s *Server) slowestLocked(host netip.Addr) (slowest *conn) {
	negotiate := map[netip.Addr]int{host: 1}
	for c := range s.conns {
		if c.negotiating {
			negotiate[c.host]++
		}
	}
	for c := range s.conns {
		if !c.negotiating {
			continue
		}
		if slowest == nil || negotiate[c.host] > negotiate[slowest.host] ||
			negotiate[c.host] == negotiate[slowest.host] && c.began.Before(slowest.began) {
			slowest = c
		}
	}
	return slowest
}

// hostOf is where a client is: with IPv6, the network, of which a host has all addresses.
// Clients of unix sockets are all in one place.
func hostOf(nc net.Conn) netip.Addr {
	tcp, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	host := tcp.AddrPort().Addr().Unmap()
	if network, err := host.Prefix(64); host.Is6() && err == nil {
		host = network.Addr()
	}
	return host
}

// keepPlace gives c its place for good, and reports whether it still has one.
func (c *conn) keepPlace() bool {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	c.negotiating = false
	_, ok := c.srv.conns[c]
	return ok
}

// clientName names a client in logs: the address of its end, or of ours where it
// has none, as clients of unix sockets do.
func clientName(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil && a.String() != "" && a.String() != "@" {
		return a.String()
	}
	return "of " + nc.LocalAddr().String()
}

// Shutdown stops accepting, finishes the requests that were read, replies to them
// and closes the connections. When ctx ends first, it cuts the connections, returns
// ctx's error, and what the Devices still owe is waited for by calling it again,
// after they were closed.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	for l := range s.listeners {
		_ = l.Close() // Serve reports what matters
	}
	for c := range s.conns {
		c.interrupt()
	}
	s.mu.Unlock()

	gone := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	n := len(s.conns)
	for c := range s.conns {
		c.kill()
	}
	s.mu.Unlock()
	return fmt.Errorf("shut down with %d connections open: %w", n, ctx.Err())
}
