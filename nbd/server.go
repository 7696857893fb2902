// Package nbd serves block devices to NBD clients: the Linux kernel, QEMU, libnbd and
// others.
//
// A Server has one or more Exports. An Export is a backend.Device under a name. Serve
// accepts clients of a listener, such as a unix socket, until Shutdown:
//
//	srv, err := nbd.New(nbd.Config{}, nbd.Export{Name: "disk", Device: dev})
//	if err != nil {
//		return err
//	}
//	go srv.Serve(listener)
//	...
//	err = srv.Shutdown(ctx) // then close dev
//
// The server speaks fixed newstyle with simple, structured and extended replies, TLS by
// STARTTLS, and every command of the protocol but RESIZE. What it refuses, and with which
// error, follows the NBD project's doc/proto.md. FLUSH and FUA are as durable as the
// device makes them.
//
// Each connection has one goroutine. It reads requests into the device's write arena,
// parses them in place and submits them in batches, without a copy and without an
// allocation for a request (design §4). Config bounds the number of connections, because
// each needs a chunk in both arenas of the device.
//
// This package is stable: later releases keep what a program can use of it.
package nbd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"pmnbd/backend"
	"pmnbd/internal/loglimit"
)

// Config configures a Server. The zero value works.
type Config struct {
	// Log gets a line for each connection that begins, ends or breaks the protocol,
	// and none for a request. Clients can connect as often as they like, so at most 10
	// lines of one kind are logged in 10 s. Nil logs nothing.
	Log *slog.Logger
	// MaxConnections bounds the number of connections, including those that are still
	// negotiating. When one more client connects, the server closes the connection that
	// has been negotiating for the longest time, among those of the host that has most
	// of them. If no connection is negotiating, it closes the new one. A connection can
	// hold one chunk of each arena, for which the write arena needs room beside the
	// window. 0 means 64. That is more than any client opens for one device, and takes
	// 16 MiB of each arena.
	MaxConnections int
	// HandshakeTimeout is how long a client may negotiate. 0 means 10 s, as with other
	// servers.
	HandshakeTimeout time.Duration
	// TLS lets clients upgrade by STARTTLS. Nil refuses STARTTLS.
	TLS *tls.Config
	// RequireTLS refuses all other options until the client has upgraded (FORCEDTLS in
	// proto.md).
	RequireTLS bool

	stall  time.Duration // stallTimeout; less in tests
	linger time.Duration // lingerTimeout; more in tests
}

func (cfg Config) withDefaults() Config {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
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
	if cfg.linger == 0 {
		cfg.linger = lingerTimeout
	}
	return cfg
}

// At most samples lines with the same message about clients are logged in a period of
// sampled. That is enough to find out why clients are refused, and little for the disk with
// the log.
const (
	sampled = 10 * time.Second
	samples = 10
)

// An Export is a Device under a name.
type Export struct {
	Name   string // at most 4096 bytes
	Device backend.Device
	// ReadOnly refuses what would change the Device's contents.
	ReadOnly bool
}

// A Server serves exports to NBD clients. The devices belong to the caller, who closes
// them after Shutdown.
type Server struct {
	cfg Config
	log *slog.Logger // for what clients do

	exports atomic.Pointer[[]*export] // the first is the default

	changing sync.Mutex // held by Change

	mu        sync.Mutex
	closed    bool
	done      chan struct{} // closed when closed becomes true
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	wg        sync.WaitGroup // accept loops, connections, background flushes

	handshakes handshakes
}

// New makes a server of exports. The first is the default: clients that name no export
// get it. New returns an error if two exports have the same name, or if the arenas of a
// device are too small for cfg.MaxConnections.
func New(cfg Config, exports ...Export) (*Server, error) {
	s := &Server{
		cfg:       cfg.withDefaults(),
		done:      make(chan struct{}),
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*conn]struct{}),
	}
	s.log = loglimit.PerMessage(s.cfg.Log, samples, sampled)
	s.exports.Store(new([]*export))
	if cfg.RequireTLS && cfg.TLS == nil {
		return nil, errors.New("TLS is required but not configured")
	}
	if err := s.Change(exports...); err != nil {
		return nil, err
	}
	return s, nil
}

// lookup finds an export. The empty name stands for the default.
func (s *Server) lookup(name string) *export {
	exports := s.served()
	if x := find(exports, name); x != nil || name != "" {
		return x
	}
	return exports[0]
}

// Serve accepts clients of l until Shutdown, and then returns nil. It closes l. Several
// goroutines may call Serve, each with a listener of its own.
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
		default: // a client left too early, or the system has run out of something
			s.log.Warn("cannot accept clients, trying again", slog.String("listener", l.Addr().String()), slog.Any("error", err))
			if !s.pause(acceptPause) {
				return nil
			}
		}
	}
}

// acceptPause is how long Serve waits before it tries to accept again. What the system
// has run out of, such as file descriptors, only other work can give back.
const acceptPause = 100 * time.Millisecond

// pause waits for d. It reports false if Shutdown interrupts it.
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

// start serves nc on a goroutine of its own if there is room for it.
func (s *Server) start(nc net.Conn) {
	c := &conn{srv: s, nc: nc, host: hostOf(nc), began: time.Now(), killed: make(chan struct{}), negotiating: true}
	c.log = s.log.With(slog.String("client", clientName(nc)))
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
			slog.Int("limit", s.cfg.MaxConnections), slog.Duration("after", time.Since(away.began)))
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

// slowestLocked returns the connection that has to make room for one more of host, or nil
// if all have negotiated. Clients that say nothing must not keep others out until they time
// out, and a host that connects again and again must not push out the clients of other
// hosts. So the connection is of the host that has most in negotiation, and the one that
// has been negotiating for the longest time.
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

// hostOf returns the address by which clients of one host are counted. With IPv6 that is
// the /64 network, because one host can have all its addresses. All clients of unix sockets
// count as one host.
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

// keepPlace lets c keep its place among the connections. It reports false if the server
// has already given that to another.
func (c *conn) keepPlace() bool {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	c.negotiating = false
	_, ok := c.srv.conns[c]
	return ok
}

// clientName names a client in logs, by its address. A client of a unix socket has none,
// so it is named by the address of the socket.
func clientName(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil && a.String() != "" && a.String() != "@" {
		return a.String()
	}
	return "of " + nc.LocalAddr().String()
}

// Shutdown stops accepting clients, finishes the requests that it has read, replies to
// them and closes the connections. If ctx ends first, it cuts the connections and returns
// the error of ctx. Requests may still be in the devices then: close the devices, and call
// Shutdown again to wait for the end.
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
	return fmt.Errorf("shut down with open connections (%d): %w", n, ctx.Err())
}
