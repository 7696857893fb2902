package iwarp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/internal/sockio"
	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// A conn is a connected queue pair.
type conn struct {
	d      *domain
	sock   *sockio.Socket
	stream sockio.Stream // sock, or TLS on it
	caps   rdma.Caps
	// crc means that at least one end asked for CRCs, so both compute and check them.
	crc bool
	// mulpdu bounds the ULPDUs that this end sends, in bytes. The peer's may have any
	// length that the wire permits.
	mulpdu int

	// waiting is held by the goroutine in Wait. Close takes it to see that goroutine
	// leave.
	waiting sync.Mutex
	rx      receiver // guarded by waiting

	mu     sync.Mutex
	tx     sender // guarded by mu
	writer sync.WaitGroup

	// What sender and receiver share.
	reads   readQueue
	owed    atomic.Int64  // Reads of the peer that are not answered yet
	arrived atomic.Uint64 // a copy of rx.tagged

	qmu sync.Mutex
	cq  completions // guarded by qmu, but for Err
}

var _ rdma.Conn = (*conn)(nil)

// A setup is the outcome of a handshake, the initiator's or the responder's.
type setup struct {
	sock      *sockio.Socket
	stream    sockio.Stream // sock, or TLS on it
	channel   *rdma.Channel
	responder bool
	// emptyRTR says that the first FPDU may be empty (RFC 6581 §9).
	emptyRTR bool
	crc      bool
	ord      int
	mss      int // the socket's maximum segment size, in bytes
}

// newConn makes a connection from s in domain d and posts recvs. If it fails, the
// caller still owns s.sock.
func newConn(d *domain, s *setup, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (*conn, error) {
	c := &conn{
		d:      d,
		sock:   s.sock,
		stream: s.stream,
		crc:    s.crc,
		mulpdu: mulpduFor(s.mss),
		caps: rdma.Caps{
			OrderedPlacement: true, // one stream, placed in its order
			MaxSendWR:        cfg.MaxSendWR,
			MaxRecvWR:        cfg.MaxRecvWR,
			MaxReads:         s.ord,
			MaxInline:        maxInline,
			Channel:          s.channel,
		},
	}
	c.rx.init(cfg.MaxReadsIn, s)
	c.tx.init(cfg, s, &c.mu)
	c.reads.Ring = queue.NewRing[outRead](s.ord)
	c.cq.init(cfg)
	if err := c.PostRecv(recvs); err != nil {
		return nil, err
	}
	return c, nil
}

// maxUnsent bounds, roughly, the bytes in a socket that TCP has not sent. A heartbeat
// behind them waits until they are gone, which takes 4 s at 1 Mbit/s. Without the bound
// TCP would take some MiB.
const maxUnsent = 512 << 10

// takeOver makes a socket of nc, with the options that a connection needs. mss is its maximum
// segment size in bytes, or Ethernet's for a socket without one. If takeOver fails, nc is
// still the caller's.
func takeOver(nc net.Conn) (sock *sockio.Socket, mss int, err error) {
	mss = setOptions(nc)
	sock, err = sockio.New(nc)
	return sock, mss, err
}

// setOptions sets nc's options, and returns its maximum segment size in bytes, or Ethernet's.
func setOptions(nc net.Conn) (mss int) {
	mss = 1460
	if tcp, ok := nc.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // if it is closed, the next call says so
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent) // if it fails, heartbeats wait longer
				if n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG); err == nil && n > 0 {
					mss = n
				}
			})
		}
	}
	return mss
}

// Caps implements rdma.Conn.
func (c *conn) Caps() rdma.Caps { return c.caps }

// RemoteAddr implements rdma.Conn.
func (c *conn) RemoteAddr() string { return c.sock.RemoteAddr().String() }

// Arrived implements rdma.Conn.
func (c *conn) Arrived() uint64 { return c.arrived.Load() }

// Wait implements rdma.Conn. It reads the socket, and places and answers whatever
// arrives.
func (c *conn) Wait() error {
	c.waiting.Lock()
	defer c.waiting.Unlock()
	if c.rx.buf == nil {
		c.rx.buf = make([]byte, receiveBuffer)
	}
	for {
		some, err := c.ready()
		if err != nil {
			return err
		}
		// A caller that posts as fast as it polls must not keep Wait from ever reading.
		if some && c.rx.skipped < maxSkipped {
			c.rx.skipped++
			return nil
		}
		c.rx.skipped = 0
		var n int
		if some {
			if n, err = c.stream.TryRead(c.rx.buf[c.rx.end:]); n == 0 && err == nil {
				return nil
			}
		} else {
			n, err = c.stream.Read(c.rx.buf[c.rx.end:])
		}
		switch {
		case err == nil:
			c.rx.end += n
			c.receive()
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.awake()
		default:
			c.lost(err)
		}
	}
}

// fail makes err the connection's failure if it is the first.
func (c *conn) fail(err error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	c.cq.Fail(err)
}

// lost fails the connection because reading ended with err.
func (c *conn) lost(err error) {
	c.mu.Lock()
	if c.tx.err != nil {
		err = c.tx.err // the cause, and it says more
	}
	c.mu.Unlock()
	c.fail(fmt.Errorf("%s: %w: %w", c.RemoteAddr(), err, rdma.ErrLost))
	c.abort(nil, nil)
}

// violated fails the connection because of v at ulpdu, and sends the peer a
// Terminate. Then it waits up to lingerTime for the peer to close: closing a socket
// with bytes unread resets the connection, and the reset would overtake the
// Terminate.
func (c *conn) violated(v *violation, ulpdu []byte) {
	if v == &badMemory {
		c.fail(fmt.Errorf("%s: %w", c.RemoteAddr(), c.rx.fault)) // this end's fault, not the peer's
	} else {
		c.fail(fmt.Errorf("%s broke the protocol: %w: %w", c.RemoteAddr(), v, rdma.ErrLost))
	}
	c.abort(v, ulpdu)
	_ = c.sock.SetReadDeadline(time.Now().Add(lingerTime))
	for {
		if _, err := c.stream.Read(c.rx.buf); err != nil {
			return
		}
	}
}

// Close implements rdma.Conn. It drops what the socket has not taken.
func (c *conn) Close() error {
	c.fail(fmt.Errorf("%s: %w", c.RemoteAddr(), rdma.ErrClosed))
	c.mu.Lock()
	c.tx.dead, c.tx.closed = true, true
	c.tx.work.Broadcast()
	c.mu.Unlock()
	err := c.stream.Close()
	c.writer.Wait()
	c.waiting.Lock() // until Wait has left
	defer c.waiting.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tx.out.Reset()
	return err
}
