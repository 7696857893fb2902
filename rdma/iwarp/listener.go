package iwarp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"pmnbd/internal/sockio"
	"pmnbd/internal/source"
	"pmnbd/rdma"
)

const (
	// maxHalfOpen bounds the connections whose request frame has not come. For one more,
	// the listener drops the oldest of the source that has the most. That hurts no honest
	// peer, which needs one round trip.
	maxHalfOpen = 128
	// maxWaiting bounds the requests that wait for Accept. The listener drops one more.
	maxWaiting = 128
	// acceptPause is how long a listener waits when accept(2) fails, as it does when the
	// process is out of descriptors.
	acceptPause = 50 * time.Millisecond
)

// A listener reads the request frame of each connection on a goroutine of its own, so
// that a slow peer delays no other.
type listener struct {
	cfg   Config
	tls   *tls.Config // nil: MPA runs on TCP itself
	l     net.Listener
	ready chan *connRequest
	done  chan struct{}
	all   sync.WaitGroup

	mu       sync.Mutex
	halfOpen []halfOpen // oldest first
	closed   bool
}

// A halfOpen is a connection whose request frame has not come.
type halfOpen struct {
	net.Conn
	source netip.Prefix
}

// Listen implements rdma.Provider.
func (p *provider) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	var secure *tls.Config
	if p.cfg.Encrypt {
		var err error
		if secure, err = serverTLS(); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", addr, err)
		}
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // Go would offer MPTCP, and MPA runs on TCP
	l, err := lc.Listen(ctx, sockio.TCPNetwork(addr), addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	ln := &listener{cfg: p.cfg, tls: secure, l: l, ready: make(chan *connRequest, maxWaiting), done: make(chan struct{})}
	ln.all.Go(ln.accept)
	return ln, nil
}

// Addr implements rdma.Listener.
func (ln *listener) Addr() string { return ln.l.Addr().String() }

// accept takes connections until Close.
func (ln *listener) accept() {
	for {
		nc, err := ln.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-time.After(acceptPause):
			case <-ln.done:
				return
			}
			continue
		}
		if ln.hold(nc) {
			ln.all.Go(func() { ln.handshake(nc) })
		}
	}
}

// hold adds nc to the half-open connections. It reports false after Close.
func (ln *listener) hold(nc net.Conn) bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.closed {
		_ = nc.Close()
		return false
	}
	if len(ln.halfOpen) == maxHalfOpen {
		i := source.Crowded(ln.halfOpen, func(h halfOpen) netip.Prefix { return h.source })
		_ = ln.halfOpen[i].Close() // its goroutine then fails to read
		ln.halfOpen = slices.Delete(ln.halfOpen, i, i+1)
	}
	ln.halfOpen = append(ln.halfOpen, halfOpen{nc, source.Of(nc.RemoteAddr().String())})
	return true
}

// release removes nc from the half-open connections.
func (ln *listener) release(nc net.Conn) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.halfOpen = slices.DeleteFunc(ln.halfOpen, func(h halfOpen) bool { return h.Conn == nc })
}

// Reasons to drop a peer that may be honest.
var (
	errCrowded    = errors.New("too many connections whose MPA request has not come")
	errUnaccepted = errors.New("too many requests wait to be accepted")
)

// handshake reads nc's request frame and passes the request to Accept.
func (ln *listener) handshake(nc net.Conn) {
	r, err := ln.readRequest(nc)
	ln.release(nc)
	if err == nil {
		select {
		case ln.ready <- r:
			return
		default: // nobody is in Accept
			err = errUnaccepted
		}
	}
	addr := nc.RemoteAddr().String()
	_ = nc.Close() // without a word: the peer may not speak the protocol
	ln.refused(addr, err)
}

// refused reports that the listener dropped a connection because of err, unless Close
// dropped it.
func (ln *listener) refused(addr string, err error) {
	ln.mu.Lock()
	closed := ln.closed
	ln.mu.Unlock()
	if closed || ln.cfg.Refused == nil {
		return
	}
	if errors.Is(err, net.ErrClosed) {
		err = errCrowded
	}
	ln.cfg.Refused(addr, err)
}

func (ln *listener) readRequest(nc net.Conn) (*connRequest, error) {
	if err := nc.SetDeadline(time.Now().Add(ln.cfg.HandshakeTimeout)); err != nil {
		return nil, err
	}
	l, err := served(nc, ln.tls)
	if err != nil {
		return nil, err
	}
	f, err := readMPA(l, requestKey)
	if err != nil {
		return nil, err
	}
	r := &connRequest{cfg: ln.cfg, channel: l.channel, link: l, frame: f}
	if f.Markers {
		_ = r.Reject(nil)
		return nil, fmt.Errorf("the peer wants markers: %w", rdma.ErrNotSupported)
	}
	if err := ln.allowed(nc); err != nil {
		_ = r.Reject([]byte(ln.cfg.Denied))
		return nil, err
	}
	return r, nc.SetDeadline(never)
}

// allowed asks Config.Allow about nc.
func (ln *listener) allowed(nc net.Conn) error {
	if ln.cfg.Allow == nil {
		return nil
	}
	local, lok := nc.LocalAddr().(*net.TCPAddr)
	remote, rok := nc.RemoteAddr().(*net.TCPAddr)
	if !lok || !rok {
		return fmt.Errorf("a %T has no addresses: %w", nc, rdma.ErrNotSupported)
	}
	return ln.cfg.Allow(local.AddrPort(), remote.AddrPort())
}

// Accept implements rdma.Listener.
func (ln *listener) Accept() (rdma.Request, error) {
	select {
	case <-ln.done:
	default:
		select {
		case r := <-ln.ready:
			return r, nil
		case <-ln.done:
		}
	}
	return nil, fmt.Errorf("accept on %s: %w", ln.Addr(), rdma.ErrClosed)
}

// Close implements rdma.Listener. It drops the requests that nobody accepted.
func (ln *listener) Close() error {
	ln.mu.Lock()
	first := !ln.closed
	ln.closed = true
	for _, nc := range ln.halfOpen {
		_ = nc.Close()
	}
	ln.mu.Unlock()
	var err error
	if first {
		close(ln.done)
		err = ln.l.Close()
	}
	ln.all.Wait()
	for {
		select {
		case r := <-ln.ready:
			r.Abandon()
		default:
			return err
		}
	}
}
