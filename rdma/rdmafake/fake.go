// Package rdmafake is a transport without a wire, only for tests of this module; it promises
// nothing to other programs.
//
// Both ends of a connection are in one process, and the goroutine that posts a request
// carries it out. So it is deterministic, its queues are as small as a
// test wants, its wire can be paused and cut, and a completion wakes nobody where the
// contract does not promise it. Like an adapter it checks keys, bounds, receives and send
// slots. It leaves out the rest of what package rdmatest asks for: limits of private data,
// and a Deregister that waits for what is on the wire.
package rdmafake

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"pmnbd/rdma"
)

// A Config says what the transport is like. The zero Config works.
type Config struct {
	// MaxSendWR and MaxReads are for connections that leave them open. 0 means 128 and 16.
	MaxSendWR, MaxReads int
	// AnswersFirst delays each Post with a Send on the dialing end, and the Send's
	// completion, until a message of the peer has come. That happens when a goroutine
	// loses its CPU right after the system call.
	AnswersFirst bool
	// PersistentFlush gives devices native FLUSH. Flushed, if not nil, is called for each,
	// with locks held: n bytes at off of the memory region.
	PersistentFlush bool
	Flushed         func(off uint64, n uint32)
	// PlacesByDMA makes the data of a Write stay in the peer's adapter, in no order, until
	// a Read, FLUSH or Send of the same queue pair follows. If the connection ends before
	// that, Strays decides for each Write, by a number, whether it is placed. Without
	// Strays none is.
	PlacesByDMA bool
	Strays      func(write int) bool
	// Pushed, if not nil, is called like Flushed for each Write that a Read pushes out of
	// adapter and bus into memory, right before the Read completes.
	Pushed func(off uint64, n uint32)
	// Woken, if not nil, is called before a Wait returns, with no lock held. conn is the
	// number of that end, in the order in which ends were made. wake counts the calls for
	// that end.
	Woken func(conn, wake int)
}

// A Provider is a network of its own. One mutex guards all of it.
type Provider struct {
	cfg Config

	mu        sync.Mutex
	listeners map[string]*listener
	conns     []*conn // in the order in which they were made
	made      int     // ends of connections
	port      int
	key       uint32
	paused    bool
	down      bool
	strays    int // how often Config.Strays was called
}

// New makes a provider.
func New(cfg Config) *Provider {
	if cfg.MaxSendWR == 0 {
		cfg.MaxSendWR = 128
	}
	if cfg.MaxReads == 0 {
		cfg.MaxReads = 16
	}
	return &Provider{cfg: cfg, listeners: make(map[string]*listener)}
}

// Pause stops the wire. Requests posted from now on wait for Resume.
func (p *Provider) Pause() {
	p.mu.Lock()
	p.paused = true
	p.mu.Unlock()
}

// Resume carries out what was posted since Pause.
func (p *Provider) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	for _, c := range slices.Clone(p.conns) {
		if !c.frozen {
			c.runLocked()
		}
	}
}

// Step carries out the oldest request that Pause holds back at each end. It returns the
// length of the largest of them, from which a test works out how long a slow wire takes.
func (p *Provider) Step() (bytes uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range slices.Clone(p.conns) {
		if len(c.posted) > 0 && c.err == nil {
			bytes = max(bytes, c.posted[0].Local.Len, uint32(len(c.posted[0].Inline)))
			c.stepLocked()
		}
	}
	return bytes
}

// Cut fails every connection, as a broken network does.
func (p *Provider) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range slices.Clone(p.conns) {
		c.failLocked(fmt.Errorf("cut by the test: %w", rdma.ErrLost))
	}
}

// Down is Cut, and lets nobody connect until Up. When it returns, nothing that one end
// does reaches another.
func (p *Provider) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.Cut()
}

// Up ends Down.
func (p *Provider) Up() {
	p.mu.Lock()
	p.down = false
	p.mu.Unlock()
}

// Freeze holds back what the present connections post until Thaw. It does not touch later
// connections. What a connection had posted is lost if it ends before Thaw.
func (p *Provider) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.frozen = true
	}
}

// Thaw carries out what was posted since Freeze.
func (p *Provider) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range slices.Clone(p.conns) {
		if c.frozen = false; !p.paused {
			c.runLocked()
		}
	}
}

// SetAnswersFirst sets Config.AnswersFirst.
func (p *Provider) SetAnswersFirst(on bool) {
	p.mu.Lock()
	p.cfg.AnswersFirst = on
	p.mu.Unlock()
}

// Listen implements rdma.Provider. An empty addr chooses a free one.
func (p *Provider) Listen(_ context.Context, addr string) (rdma.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr == "" {
		p.port++
		addr = "fake:" + strconv.Itoa(p.port)
	}
	l := &listener{p: p, addr: addr, closed: make(chan struct{}), requests: make(chan *request)}
	p.listeners[l.addr] = l
	return l, nil
}

// OpenDomain implements rdma.Provider.
func (p *Provider) OpenDomain(context.Context, string) (rdma.Domain, error) { return p.domain(), nil }

func (p *Provider) domain() *domain {
	return &domain{p: p, regions: make(map[uint32]*rdma.MemoryRegion)}
}

type listener struct {
	p        *Provider
	addr     string
	once     sync.Once
	closed   chan struct{}
	requests chan *request
}

func (l *listener) Addr() string { return l.addr }

func (l *listener) Accept() (rdma.Request, error) {
	select {
	case r := <-l.requests:
		return r, nil
	case <-l.closed:
		return nil, rdma.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.p.mu.Lock()
		delete(l.p.listeners, l.addr)
		l.p.mu.Unlock()
		close(l.closed)
	})
	return nil
}

// A request is a Dial that waits. Its answer goes to a channel.
type request struct {
	p      *Provider
	cfg    rdma.ConnConfig
	answer chan answer
	gone   chan struct{} // closed when the dialer gave up
}

type answer struct {
	c      *conn
	reject *rdma.RejectError
}

func (r *request) Channel() *rdma.Channel           { return nil }
func (r *request) PrivateData() []byte              { return r.cfg.PrivateData }
func (r *request) RemoteAddr() string               { return "fake" }
func (r *request) OpenDomain() (rdma.Domain, error) { return r.p.domain(), nil }
func (r *request) Abandon()                         {} // Accept does not wait for the peer
func (r *request) Reject(privateData []byte) error {
	r.answer <- answer{reject: &rdma.RejectError{PrivateData: privateData}}
	return nil
}

func (r *request) Accept(d rdma.Domain, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	c := newConn(d.(*domain), cfg, recvs)
	c.connected = make(chan struct{})
	r.answer <- answer{c: c}
	select {
	case <-c.connected:
		return c, nil
	case <-r.gone:
		return nil, fmt.Errorf("the peer gave up: %w", rdma.ErrLost)
	}
}

type domain struct {
	p       *Provider
	regions map[uint32]*rdma.MemoryRegion // guarded by p.mu
}

func (d *domain) Register(mem []byte, a rdma.Access) (*rdma.MemoryRegion, error) {
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	d.p.key += 256
	r := &rdma.MemoryRegion{Mem: mem, Key: d.p.key, Access: a}
	d.regions[r.Key] = r
	return r, nil
}

func (d *domain) Deregister(r *rdma.MemoryRegion) error {
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	delete(d.regions, r.Key)
	return nil
}

func (d *domain) Close() error {
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	clear(d.regions)
	return nil
}

func (d *domain) Dial(ctx context.Context, addr string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	d.p.mu.Lock()
	l, down := d.p.listeners[addr], d.p.down
	d.p.mu.Unlock()
	if l == nil || down {
		return nil, fmt.Errorf("nobody listens at %s: %w", addr, rdma.ErrLost)
	}
	r := &request{p: d.p, cfg: cfg, answer: make(chan answer, 1), gone: make(chan struct{})}
	select {
	case l.requests <- r:
	case <-l.closed:
		return nil, rdma.ErrLost
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", rdma.ErrTimeout, ctx.Err())
	}
	select {
	case a := <-r.answer:
		if a.reject != nil {
			return nil, a.reject
		}
		c := newConn(d, cfg, recvs)
		d.p.mu.Lock()
		if d.p.down {
			d.p.mu.Unlock()
			close(r.gone)
			return nil, fmt.Errorf("the network went down: %w", rdma.ErrLost)
		}
		c.peer, a.c.peer = a.c, c
		c.dialed = true
		d.p.conns = append(d.p.conns, c, a.c)
		c.number, a.c.number = d.p.made, d.p.made+1
		d.p.made += 2
		d.p.mu.Unlock()
		close(a.c.connected)
		return c, nil
	case <-ctx.Done():
		close(r.gone)
		return nil, fmt.Errorf("%w: %w", rdma.ErrTimeout, ctx.Err())
	}
}
