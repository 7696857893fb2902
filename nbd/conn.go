package nbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pmnbd/backend"
	"pmnbd/internal/sockio"
	"pmnbd/nbd/wire"
)

// maxInFlight bounds the outstanding requests of a connection. A request is outstanding
// until its reply is in the socket. The kernel's client has at most 128 by default.
const maxInFlight = 128

// The causes for which a connection ends, besides errors of the socket.
var (
	errDisc        = errors.New("client disconnected")
	errHungUp      = errors.New("client hung up")
	errInterrupted = errors.New("ended by the server")
	errStalled     = errors.New("client was too slow while others waited for the memory that it held")
	errProtocol    = errors.New("breach of the protocol")
)

// A conn is a client's connection:
//
//	socket ─read─► chunk ─parse─► request table ─Submit─► Device
//	   ▲                                                   │ Complete, by the reader
//	   └─────sendmsg── queue (mu) ◄────────────────────────┘ or a completer
//
// The reader is the goroutine in run. It owns all fields that are not marked otherwise.
// It never blocks in a socket write. If the socket does not take a reply at once, a
// goroutine (spill) writes the rest. That goroutine exists only until nothing is left.
//
// mu guards the replies. A device may call Complete with any of its locks held, so mu
// comes after all of them. The locks of arenas and budgets come after mu. No goroutine
// waits while it holds mu.
type conn struct {
	srv    *Server
	host   netip.Addr // of the client
	log    *slog.Logger
	began  time.Time
	killed chan struct{} // closed by kill
	once   sync.Once     // of kill

	negotiating bool // guarded by Server.mu

	// nc is the accepted connection, and then the Socket that has taken it over. place guards
	// it against interrupt and kill.
	place sync.Mutex
	nc    net.Conn

	tls *sockio.Handshaken // set while the client negotiates, if it upgrades to TLS

	// stopping makes the reader end, because of Shutdown or a reply that the socket
	// refused.
	stopping atomic.Bool
	// disc is set when the reader has seen a DISC. The client may then hang up.
	disc atomic.Bool

	// The fields below are set when transmission begins.
	raw    *sockio.Socket // nc
	sock   sockio.Stream  // raw, or TLS over it
	exp    *export
	dev    backend.Device
	terms  terms
	rules  rules
	number uint64 // among the connections of the export
	turn   uint64 // among those of the device; see Gone
	alone  bool   // the device had no other when it entered

	// table has the requests. The index of a request is the Tag of its Op. free lists
	// the unused ones of the reader, freed (below) those that have been replied to.
	table [maxInFlight]request
	free  []uint32
	batch []*backend.Op // parsed and not submitted

	receiver
	sinks

	wake  chan struct{}  // gets a token when something is freed for a reader that waits
	spill func()         // writeBacklog, made once so that to start it allocates nothing
	wg    sync.WaitGroup // counts spill

	mu       sync.Mutex
	q        sockio.Queue
	unsent   replyRing
	freed    []uint32
	waiting  bool           // the reader waits for wake
	spilling bool           // spill runs, and nobody else writes
	broken   error          // the first error of writing; later replies are dropped
	counts   Commands       // for Snapshot
	took     Latencies      // likewise
	parked   *backend.Chunk // the sinks' current chunk, while the reader blocks
}

// A request is one request of the client, until the end of its reply is in the socket.
type request struct {
	op      backend.Op
	cookie  uint64
	command wire.Command
	// off and length are those of the request. If partial is set, op has those of a
	// part of it.
	off, length uint64
	// partial is set if more of the request follows when op is completed.
	partial atomic.Bool
	headed  bool          // an earlier part of the reply is queued
	whole   bool          // the client wants the data of a READ in one chunk (DF)
	came    time.Duration // when the header was read, by conn.now
}

// run serves the client until it leaves, breaks the protocol, or the server shuts down.
func (c *conn) run() {
	defer func() {
		switch {
		case c.sock != nil:
			_ = c.sock.Close()
		case c.tls != nil:
			_ = c.tls.Close()
		}
		_ = c.current().Close()
	}()
	agreed, err := c.handshake()
	if err != nil {
		if left(err) || errors.Is(err, errInterrupted) {
			c.log.Debug("client left while negotiating", slog.Any("error", err))
		} else {
			c.log.Warn("negotiation failed", slog.Any("error", err))
		}
		return
	}
	if err := c.setUp(agreed); err != nil {
		c.log.Error("client cannot be served", slog.Any("error", err))
		return
	}
	exp := c.exp
	c.log = c.log.With(slog.String("export", exp.name))
	c.log.Info("client entered")
	cause := c.receive()
	c.finish()
	if last := exp.leave(c); last || c.disc.Load() {
		exp.flush.start()
	}
	if c.broken != nil {
		cause = c.broken
	} else {
		c.sock.Linger(c.srv.cfg.linger)
	}
	level := slog.LevelInfo
	if errors.Is(cause, errProtocol) || errors.Is(cause, errStalled) {
		level = slog.LevelWarn
	}
	var why slog.Attr // empty for a client that said so, and then left out
	if cause != nil {
		why = slog.Any("cause", cause)
	}
	c.log.LogAttrs(context.Background(), level, "client left", why, slog.Duration("after", time.Since(c.began)))
}

// lingerTimeout bounds how long a connection that the server ends waits until the client has its replies. A
// client that sees the end of the stream closes at once.
const lingerTimeout = 2 * time.Second

// left reports whether a negotiation ended with err because the client left. The client
// said so, or it hung up: reads and writes report that with different errors.
func left(err error) bool {
	for _, gone := range []error{errAborted, io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// handshake negotiates. It gives up after HandshakeTimeout. The deadlines stay, in case the connection cannot be
// taken over: the close_notify of TLS waits for the client, too.
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
	return agreed, err
}

// takeOver makes a Stream of the connection, without deadlines. Before that no thread waits for a
// client, who may be a stranger.
func (c *conn) takeOver() error {
	c.place.Lock()
	raw, sock, err := c.streamLocked()
	if err == nil {
		c.raw, c.nc, c.sock = raw, raw, sock
	}
	c.place.Unlock()
	if err == nil {
		c.setReadDeadline(time.Time{}) // unless it is interrupted
	}
	return err
}

func (c *conn) streamLocked() (*sockio.Socket, sockio.Stream, error) {
	if c.tls != nil {
		sock, raw, err := c.tls.Take()
		return raw, sock, err
	}
	raw, err := sockio.New(c.nc)
	return raw, raw, err
}

// current returns the connection, for other goroutines than the reader.
func (c *conn) current() net.Conn {
	c.place.Lock()
	defer c.place.Unlock()
	return c.nc
}

// startTLS upgrades the connection to TLS.
func (c *conn) startTLS() (_ io.ReadWriter, err error) {
	if c.tls, err = c.srv.handshakes.serve(c, c.srv.cfg.TLS); err != nil {
		return nil, err
	}
	return c.tls, nil
}

// setUp prepares c for transmission.
func (c *conn) setUp(agreed terms) error {
	if err := c.takeOver(); err != nil {
		return err
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
	return exp.enter(c)
}

// finish gives back the memory that the reader holds, and waits until all requests have
// been replied to.
func (c *conn) finish() {
	c.dropReceived()
	c.dropSinks()
	_ = c.awaitFreed(func() bool { return len(c.free)+len(c.freed) == maxInFlight }) // run looks at c.broken
	c.wg.Wait()
}

// submit hands the batch to the device, replies to what the device completed at once, and
// then lets the device post. So the client works on its next request meanwhile (design
// §4.3).
func (c *conn) submit() {
	if len(c.batch) == 0 {
		c.Kick() // the batch may have had only requests that were refused
		return
	}
	c.dev.Submit(c.batch)
	c.Kick()
	c.dev.Post()
	c.batch = c.batch[:0]
	c.room.Unpin()
}

// request takes an unused request. Before it waits for one it submits the batch.
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

// fetchFreed moves the freed requests to c.free, which is empty. It reports whether there
// are any.
func (c *conn) fetchFreed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free, c.freed = c.freed, c.free
	return len(c.free) > 0
}

// awaitFreed waits until enough reports true, and returns the error of writing, if there
// is one. It calls enough with mu locked. It does not watch for a hang-up and need not:
// the device completes all ops, and to write to a client that has hung up fails.
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

// setReadDeadline sets the deadline of reads; the zero time means none. It does not undo
// an interrupt.
func (c *conn) setReadDeadline(t time.Time) {
	_ = c.nc.SetReadDeadline(t) // fails only on a closed socket, where reads fail as well
	if c.stopping.Load() {
		_ = c.nc.SetReadDeadline(past)
	}
}

// past is a deadline that has passed: it interrupts at once.
var past = time.Unix(1, 0)

// interrupt makes the reader stop. The requests that it has read are still served.
func (c *conn) interrupt() {
	c.stopping.Store(true)
	_ = c.current().SetReadDeadline(past)
}

// kill cuts the connection.
func (c *conn) kill() {
	c.once.Do(func() {
		c.interrupt()
		close(c.killed)
		_ = c.current().Close()
	})
}

// await runs take, which waits until it succeeds or stop is closed. await closes stop
// when the client hangs up or the connection is killed, because a request that waits is
// dropped then (design §6.5). This costs a goroutine, on the rare path.
func (c *conn) await(take func(stop <-chan struct{}) error) error {
	c.readUntil(time.Time{}) // the deadline of a payload must not end the watch
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

// watch waits until the client hangs up or the connection is killed, and reports true. It
// reports false if taken is closed first. Nobody reads at the same time.
func (c *conn) watch(taken <-chan struct{}) bool {
	err := c.raw.WaitHangUp()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	// take has succeeded, or Shutdown interrupts. Shutdown lets the request finish.
	select {
	case <-taken:
		return false
	case <-c.killed:
		return true
	}
}

// breach returns a cause that is the client's fault.
func breach(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errProtocol}, args...)...)
}
