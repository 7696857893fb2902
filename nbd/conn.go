package nbd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"pmnbd/backend"
	"pmnbd/nbd/wire"
	"pmnbd/sockio"
)

// maxInFlight bounds the requests of a connection that are not answered, where
// answered means that the reply is in the socket. The kernel's client keeps at most
// 128 by default.
const maxInFlight = 128

// Why a connection ends, beside errors of the socket.
var (
	errDisc        = errors.New("client disconnected")
	errHungUp      = errors.New("client hung up")
	errInterrupted = errors.New("ended by the server")
	errStalled     = errors.New("client held too long what others wait for")
	errProtocol    = errors.New("breach of the protocol")
)

// A conn is a client's connection:
//
//	socket ─read─► chunk ─parse─► request table ─Submit─► Device
//	   ▲                                                   │ Complete, by the reader
//	   └──────writev── queue (mu) ◄────────────────────────┘ or a completer
//
// The reader is the goroutine in run. It owns what is not marked otherwise. It
// never blocks in a socket write; what a socket does not take at once is written by
// a goroutine that exists only as long as there is something left (spill).
//
// mu is the reply lock, inside every lock of the Device. Below it are only those of
// arenas and budgets. Nobody waits holding it.
type conn struct {
	srv    *Server
	nc     net.Conn
	host   netip.Addr // of the client
	log    *zap.Logger
	began  time.Time
	killed chan struct{} // closed by kill
	once   sync.Once     // of kill

	negotiating bool // Server.mu guards it

	// stopping ends reading: Shutdown, or a reply that could not be written.
	stopping atomic.Bool
	// disc: a DISC was read; the client may hang up behind it.
	disc atomic.Bool

	// Set on entering transmission.
	sock   sockio.Stream // once TLS has begun, too
	exp    *export
	dev    backend.Device
	terms  terms
	rules  rules
	number uint64 // among the export's connections; see Gone
	alone  bool   // the only one when it entered

	// table holds the requests; a request's index is its Op's Tag. free are the
	// reader's unused ones, freed (below) those that come back.
	table [maxInFlight]request
	free  []uint32
	batch []*backend.Op // parsed, to be submitted

	receiver
	sinks

	wake  chan struct{}  // something was freed for a waiting reader
	spill func()         // writeBacklog, made once so that starting it allocates nothing
	wg    sync.WaitGroup // of spill

	mu       sync.Mutex
	q        sockio.Queue
	unsent   replyRing
	freed    []uint32
	waiting  bool           // the reader waits for wake
	spilling bool           // spill runs, and it alone writes
	broken   error          // the first error of writing; then replies are dropped
	counts   Commands       // by command, for Snapshot
	parked   *backend.Chunk // the sinks' current chunk, while the reader blocks
}

// A request is what is between a client's request and the end of its reply.
type request struct {
	op      backend.Op
	cookie  uint64
	command wire.Command
	// off and length are the request's. Those of op are of a part of it, if partial.
	off, length uint64
	// partial: op's completion does not end the request yet.
	partial atomic.Bool
	headed  bool // the reply's header is queued, in front of the part before
}

// run serves the client until it leaves, or breaks the protocol, or the server
// shuts down.
func (c *conn) run() {
	defer func() { // what is left of it
		if c.sock != nil {
			_ = c.sock.Close()
		}
		_ = c.nc.Close()
	}()
	agreed, err := c.handshake()
	if err != nil {
		if left(err) || errors.Is(err, errInterrupted) {
			c.log.Debug("client left while negotiating", zap.Error(err))
		} else {
			c.log.Warn("negotiation failed", zap.Error(err))
		}
		return
	}
	if err := c.setUp(agreed); err != nil {
		c.log.Error("client cannot be served", zap.Error(err))
		return
	}
	exp := c.exp
	c.log = c.log.With(zap.String("export", exp.name))
	c.log.Info("client entered")
	cause := c.receive()
	c.finish()
	if last := exp.leave(c); last || c.disc.Load() {
		exp.flush.start()
	}
	if c.broken != nil {
		cause = c.broken
	}
	level := zap.InfoLevel
	if errors.Is(cause, errProtocol) || errors.Is(cause, errStalled) {
		level = zap.WarnLevel
	}
	c.log.Log(level, "client left", zap.NamedError("cause", cause), zap.Duration("after", time.Since(c.began)))
}

// left reports whether err of a negotiation is that the client left: it said so, or it
// hung up, which writing to it and reading from it show in different ways.
func left(err error) bool {
	for _, gone := range []error{errAborted, io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// handshake negotiates, for as long as the configuration allows.
func (c *conn) handshake() (terms, error) {
	until := c.began.Add(c.srv.cfg.HandshakeTimeout)
	c.setReadDeadline(until)
	if err := c.nc.SetWriteDeadline(until); err != nil {
		return terms{}, err
	}
	n := negotiation{srv: c.srv, log: c.log, rw: c.nc, startTLS: c.startTLS, keepPlace: c.keepPlace}
	agreed, err := n.run()
	if c.stopping.Load() && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)) {
		err = errInterrupted
	}
	if err != nil {
		return terms{}, err
	}
	c.setReadDeadline(time.Time{})
	return agreed, c.nc.SetWriteDeadline(time.Time{})
}

// startTLS goes on with TLS.
func (c *conn) startTLS() (io.ReadWriter, error) {
	s, err := sockio.ServeTLS(c.nc, c.srv.cfg.TLS)
	if err != nil {
		return nil, err
	}
	c.sock = s
	return s, nil
}

// setUp makes c ready for transmission.
func (c *conn) setUp(agreed terms) error {
	if c.sock == nil {
		sock, err := sockio.New(c.nc)
		if err != nil {
			return err
		}
		c.sock = sock
	}
	c.terms, c.rules = agreed, agreed.rules()
	exp := agreed.export
	c.exp, c.dev = exp, exp.dev
	c.room = backend.NewAdmission(exp.arenas)
	c.wake = make(chan struct{}, 1)
	c.spill = c.writeBacklog
	c.batch = make([]*backend.Op, 0, maxInFlight)
	c.free, c.freed = make([]uint32, 0, maxInFlight), make([]uint32, 0, maxInFlight)
	for i := range uint32(maxInFlight) {
		c.free = append(c.free, maxInFlight-1-i)
		c.table[i].op.Sink, c.table[i].op.Tag = c, i
	}
	c.number, c.alone = exp.enter(c)
	return nil
}

// finish waits until everything submitted is answered, and gives back all that the
// connection holds.
func (c *conn) finish() {
	c.dropReceived()
	c.dropSinks()
	_ = c.awaitFreed(func() bool { return len(c.free)+len(c.freed) == maxInFlight }) // run asks for it
	c.wg.Wait()
}

// submit hands the batch to the device, replies to what completed at once, then
// lets the device post: the client's turn-around overlaps with that (design §4.3).
func (c *conn) submit() {
	if len(c.batch) == 0 {
		c.Kick() // refused requests
		return
	}
	c.dev.Submit(c.batch)
	c.Kick()
	c.dev.Post()
	c.batch = c.batch[:0]
	c.room.Unpin()
}

// request takes an unused request. It submits the batch before it waits for one.
func (c *conn) request() (*request, error) {
	if len(c.free) == 0 && !c.fetchFreed() {
		c.submit()
		if err := c.awaitFreed(func() bool { return len(c.freed) > 0 || c.broken != nil }); err != nil {
			return nil, err
		}
		c.fetchFreed()
	}
	i := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	return &c.table[i], nil
}

// fetchFreed fetches the requests that came back, if there are any. c.free is empty.
func (c *conn) fetchFreed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free, c.freed = c.freed, c.free
	return len(c.free) > 0
}

// awaitFreed waits until enough was freed, and returns the error of writing, if any.
// It watches for no hang-up: what it waits for is in the device, or in the socket of
// a client that reads or breaks the writing. enough is called with mu held.
func (c *conn) awaitFreed(enough func() bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !enough() {
		c.waiting = true
		c.mu.Unlock()
		<-c.wake
		c.mu.Lock()
	}
	return c.broken
}

// setReadDeadline sets when reading ends; never, with the zero time. It does not
// undo an interrupt.
func (c *conn) setReadDeadline(t time.Time) {
	_ = c.nc.SetReadDeadline(t) // fails on a closed socket only, as reading then does
	if c.stopping.Load() {
		_ = c.nc.SetReadDeadline(past)
	}
}

// past is a deadline that interrupts at once.
var past = time.Unix(1, 0)

// interrupt makes the reader stop where it is, without harm to what it has read.
func (c *conn) interrupt() {
	c.stopping.Store(true)
	_ = c.nc.SetReadDeadline(past)
}

// kill cuts the connection.
func (c *conn) kill() {
	c.once.Do(func() {
		c.interrupt()
		close(c.killed)
		_ = c.nc.Close()
	})
}

// await runs take, which waits until it succeeds or stop is closed. That happens
// when the client hangs up or the connection is killed: a request that waits is
// dropped then (design §6.5). This is the rare path: it costs a goroutine.
func (c *conn) await(take func(stop <-chan struct{}) error) error {
	c.readUntil(time.Time{}) // a stall is no hang-up, and must not end the watch
	stop, taken, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if c.watch(taken) {
			close(stop)
		}
	}()
	err := take(stop)
	close(taken)
	_ = c.nc.SetReadDeadline(past) // ends the watch
	<-ended
	c.setReadDeadline(time.Time{})
	if errors.Is(err, backend.ErrStopped) {
		return errHungUp
	}
	return err
}

// watch reports true when the client hung up or the connection was killed, false
// when taken was closed first. Nobody reads meanwhile.
func (c *conn) watch(taken <-chan struct{}) bool {
	raw, err := c.nc.(syscall.Conn).SyscallConn()
	if err == nil {
		// The poller wakes it on every arrival too; those are bounded by the
		// socket's buffer.
		err = raw.Read(func(uintptr) bool { return c.sock.HungUp() })
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	// The wait is over, or Shutdown interrupts: it lets the request finish.
	select {
	case <-taken:
		return false
	case <-c.killed:
		return true
	}
}

// breach is a cause that is the client's fault.
func breach(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errProtocol}, args...)...)
}
