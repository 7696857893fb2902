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

	"pmnbd/rdma"
	"pmnbd/sockio"
)

// A Conn is a connected queue pair. It implements rdma.Conn; receive.go,
// send.go and completion.go hold its three parts.
type Conn struct {
	d       *domain
	sock    *sockio.Socket
	caps    rdma.Caps
	private []byte
	// crc: one end at least asked for CRCs, so both compute and check them.
	crc bool
	// mulpdu bounds the ULPDUs that are sent, in bytes. What is received may have
	// any length that the wire permits.
	mulpdu int

	// err is the first failure. It is set under qmu, so that no completion
	// follows it.
	err atomic.Pointer[error]

	// waiting is held by the goroutine in Wait, and by Close to see it leave.
	waiting sync.Mutex
	rx      receiver // guarded by waiting

	// mu guards what is sent.
	mu     sync.Mutex
	tx     sender
	writer sync.WaitGroup

	reads   readQueue // between the two
	owed    atomic.Int64
	arrived atomic.Uint64 // rx.tagged, for others

	// qmu guards receives and completions.
	qmu sync.Mutex
	cq  completions
}

var _ rdma.Conn = (*Conn)(nil)

// A setup is what two handshakes, of initiator and responder, have found out.
type setup struct {
	conn      net.Conn
	responder bool
	// emptyRTR says that the first FPDU may be empty (RFC 6581 §9).
	emptyRTR bool
	crc      bool
	ord      int
	private  []byte
}

// newConn makes a connection of s in domain d, with recvs posted. The caller
// keeps s.conn if it fails.
func newConn(d *domain, s *setup, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (*Conn, error) {
	sock, err := sockio.New(s.conn)
	if err != nil {
		return nil, err
	}
	c := &Conn{
		d:       d,
		sock:    sock,
		private: s.private,
		crc:     s.crc,
		mulpdu:  mulpduFor(prepare(s.conn)),
		caps: rdma.Caps{
			OrderedPlacement: true, // one stream, placed as it comes
			MaxSendWR:        cfg.MaxSendWR,
			MaxRecvWR:        cfg.MaxRecvWR,
			MaxReads:         s.ord,
			MaxInline:        maxInline,
		},
	}
	c.rx.init(cfg.MaxReadsIn, s)
	c.tx.init(cfg, s, &c.mu)
	c.reads.slots = make([]outRead, s.ord)
	c.cq.init(cfg)
	if err := c.PostRecv(recvs); err != nil {
		return nil, err
	}
	return c, nil
}

// maxUnsent is how many bytes a socket takes that TCP has not sent, about. What is behind
// them, a heartbeat perhaps, waits for them: on 1 Mbit/s for 4 s. TCP would take some MiB.
const maxUnsent = 512 << 10

// prepare bounds what the socket of conn takes, and returns its EMSS in bytes, Ethernet's
// where it has none.
func prepare(conn net.Conn) int {
	mss := 1460
	if tcp, ok := conn.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // closed: the next call says so
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent) // without, heartbeats wait longer
				if n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG); err == nil && n > 0 {
					mss = n
				}
			})
		}
	}
	return mss
}

// Caps implements rdma.Conn.
func (c *Conn) Caps() rdma.Caps { return c.caps }

// PrivateData implements rdma.Conn.
func (c *Conn) PrivateData() []byte { return c.private }

// RemoteAddr implements rdma.Conn.
func (c *Conn) RemoteAddr() string { return c.sock.Conn().RemoteAddr().String() }

// Arrived implements rdma.Conn.
func (c *Conn) Arrived() uint64 { return c.arrived.Load() }

// Wait implements rdma.Conn. It is here that everything arrives.
func (c *Conn) Wait() error {
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
		// Who posts as fast as it polls must not keep us from ever reading.
		if some && c.rx.skipped < maxSkipped {
			c.rx.skipped++
			return nil
		}
		c.rx.skipped = 0
		var n int
		if some {
			if n, err = c.sock.TryRead(c.rx.buf[c.rx.end:]); n == 0 && err == nil {
				return nil
			}
		} else {
			n, err = c.sock.Read(c.rx.buf[c.rx.end:])
		}
		c.rx.stats.Calls++
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

// fail keeps err as the connection's failure if it is the first.
func (c *Conn) fail(err error) {
	c.qmu.Lock()
	defer c.qmu.Unlock()
	if c.err.Load() == nil {
		c.err.Store(&err)
	}
}

// failure is the error of fail.
func (c *Conn) failure() error {
	if err := c.err.Load(); err != nil {
		return *err
	}
	return nil
}

// lost fails the connection because reading ended with err.
func (c *Conn) lost(err error) {
	c.mu.Lock()
	if c.tx.err != nil {
		err = c.tx.err // it is the cause, and says more
	}
	c.mu.Unlock()
	c.fail(fmt.Errorf("%s: %w: %w", c.RemoteAddr(), err, rdma.ErrLost))
	c.abort(nil, nil)
}

// violated fails the connection because the peer broke the protocol at ulpdu,
// and tells it so. Then it waits for the peer to close, for a while: a socket
// closed with bytes unread resets the connection, and the reset would overtake
// the Terminate.
func (c *Conn) violated(v *violation, ulpdu []byte) {
	if v == &badMemory {
		c.fail(fmt.Errorf("%s: %w", c.RemoteAddr(), c.rx.fault)) // it is our fault, not the peer's
	} else {
		c.fail(fmt.Errorf("%s broke the protocol: %w: %w", c.RemoteAddr(), v, rdma.ErrLost))
	}
	c.abort(v, ulpdu)
	_ = c.sock.Conn().SetReadDeadline(time.Now().Add(lingerTime))
	for {
		if _, err := c.sock.Read(c.rx.buf); err != nil {
			return
		}
	}
}

// Close implements rdma.Conn. What the socket has not taken is dropped.
func (c *Conn) Close() error {
	c.fail(fmt.Errorf("%s: %w", c.RemoteAddr(), rdma.ErrClosed))
	c.mu.Lock()
	c.tx.dead, c.tx.closed = true, true
	c.tx.work.Broadcast()
	c.mu.Unlock()
	err := c.sock.Close()
	c.writer.Wait()
	c.waiting.Lock() // until Wait has left
	defer c.waiting.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tx.out.Reset()
	return err
}
