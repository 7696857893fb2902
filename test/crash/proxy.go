// Package crash breaks connections from outside, for tests: a TCP proxy between an
// initiator and a target, or between any two, that does what networks do at their
// worst, on demand and at a known moment.
//
// It owns its sockets and goroutines; Close ends them all. It knows no protocol and
// imports nothing of ours.
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

// A Direction is the one in which bytes go.
type Direction int

// The two directions.
const (
	ToServer Direction = iota
	ToClient
)

// Weather is what the bytes of a direction meet. The zero Weather is fair.
type Weather struct {
	// Frozen: nothing arrives, and nobody is told that anything ended.
	Frozen bool
	// Delay is added to the way of every byte. Later bytes do not wait for it again.
	Delay time.Duration
	// Piece is how many bytes arrive at a time, with Pause in between; 0 is all that
	// there are.
	Piece int
	Pause time.Duration
	// Damage may change what is about to arrive; nil leaves it. It is called by one
	// goroutine of each direction of each link.
	Damage func(b []byte)
}

// A Proxy listens, and links whoever comes with its server.
type Proxy struct {
	l   net.Listener
	all sync.WaitGroup

	mu       sync.Mutex // before Link.mu
	closed   bool
	refusing bool
	record   bool
	server   string
	weather  [2]Weather
	links    []*Link       // all there ever were, without what they held
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

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Serve makes server, HOST:PORT, the one of the links to come.
func (p *Proxy) Serve(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
}

// Refuse says whether clients to come are reset at once.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refuse
}

// Set sets the weather in one direction, for all links and those to come.
func (p *Proxy) Set(d Direction, w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.weather[d] = w
	for _, k := range p.links {
		k.Set(d, w)
	}
}

// Record has the links to come keep what they are sent, all of it.
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

// Links is how many links there ever were.
func (p *Proxy) Links() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Link returns the nth link there ever was, from 0, and waits for it.
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

// Close resets every link and waits until all is gone.
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
			// Beside the next, which need not wait for a server that does not answer.
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
