// Package crash breaks connections from outside, for tests. Its TCP proxy stands between an
// initiator and a target, or any two programs, and does on demand, at a known moment, what
// networks do at their worst.
//
// A proxy owns its sockets and goroutines; Close ends them all. The package knows no protocol
// and imports no other package of this module.
package crash

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// dialTimeout bounds a connection to the server, which is on this machine.
const dialTimeout = 5 * time.Second

// A Direction says which way bytes go.
type Direction int

// The two directions.
const (
	ToServer Direction = iota
	ToClient
)

// Weather is what the bytes of one direction meet. The zero Weather is fair.
type Weather struct {
	// Frozen holds everything back, the end of the stream included.
	Frozen bool
	// Delay is how late each byte arrives. Bytes that wait together wait once.
	Delay time.Duration
	// Piece is how many bytes arrive at a time, with Pause between two pieces; 0: all at once.
	Piece int
	Pause time.Duration
	// Damage may change bytes before they arrive; nil leaves them alone. Each direction of each
	// link calls it from one goroutine.
	Damage func(b []byte)
}

// A Proxy listens and links every client with its server.
type Proxy struct {
	l   net.Listener
	all sync.WaitGroup

	mu       sync.Mutex // before Link.mu
	closed   bool
	refusing bool
	record   bool
	server   string
	weather  [2]Weather
	links    []*Link       // all links ever made, without the bytes they held
	linked   chan struct{} // closed by the next link
}

// New returns a proxy in front of server, HOST:PORT, on a port of loopback.
func New(server string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a proxy: %w", err)
	}
	p := &Proxy{l: l, server: server, linked: make(chan struct{})}
	p.all.Go(p.accept)
	return p, nil
}

// Addr returns the address at which clients connect.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Serve makes server, HOST:PORT, the one that later links connect to.
func (p *Proxy) Serve(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
}

// Refuse sets whether the proxy resets new clients at once.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// Set sets the weather in one direction, for existing and later links.
func (p *Proxy) Set(d Direction, w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather[d] = w
	for _, k := range p.links {
		k.Set(d, w)
	}
}

// Record makes later links keep a copy of all that they are sent.
func (p *Proxy) Record() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record = true
}

// Reset resets both ends of every link.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.links {
		k.Reset()
	}
}

// Links returns the number of links ever made.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Link returns the nth link ever made, counted from 0, and waits for it.
func (p *Proxy) Link(ctx context.Context, n int) (*Link, error) {
	for {
		p.mu.Lock()
		links, more := p.links, p.linked
		p.mu.Unlock()
		if n < len(links) {
			return links[n], nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for link %d of %d: %w", n, len(links), context.Cause(ctx))
		}
	}
}

// Close resets every link and returns when all goroutines have ended.
func (p *Proxy) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	var err error
	if !closed {
		err = p.l.Close()
		p.Reset()
	}
	p.all.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			// In the background: the next client need not wait for a server that does not
			// accept.
			p.all.Go(func() { p.link(c.(*net.TCPConn)) })
		}
	}
}

// link connects c with the server, or resets it.
func (p *Proxy) link(c *net.TCPConn) {
	p.mu.Lock()
	server, refuse := p.server, p.refusing
	p.mu.Unlock()
	if refuse {
		reset(c)
		return
	}
	s, err := net.DialTimeout("tcp", server, dialTimeout)
	if err != nil {
		reset(c)
		return
	}
	k := newLink(c, s.(*net.TCPConn))
	p.mu.Lock()
	for _, f := range k.flows {
		f.weather, f.record = p.weather[f.dir], p.record
	}
	if p.closed {
		k.Reset()
	}
	p.links = append(slices.Clip(p.links), k)
	close(p.linked)
	p.linked = make(chan struct{})
	p.mu.Unlock()
	k.run()
}

// reset closes c so that its peer gets a reset.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // it may be closed already
	_ = c.Close()
}
