package sockio

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// maxRecord is the most plaintext, in bytes, of one TLS record (RFC 8446 §5.1).
	maxRecord = 16 << 10
	// maxUnsent bounds the ciphertext that the socket has not taken, in bytes: a
	// record, and as much again for what crypto/tls sends unasked. A peer may ask for
	// hundreds of KeyUpdates without reading one, not for more.
	maxUnsent = 2 * maxRecord
)

// errUnsent: the peer reads nothing and makes crypto/tls answer ever more.
var errUnsent = errors.New("the peer asks for too many TLS messages that it does not read")

// TLS is a Stream encrypted by TLS, without a goroutine of its own. The rules of
// Socket hold, and Write may be used in place of Flush, never beside it.
//
// The reader may make crypto/tls write: alerts, and answers to KeyUpdates. Those lie
// in the carrier until the next Flush or Close, as RFC 8446 §4.6.3 allows, so that
// reading never waits for a peer that does not read. Locks, outermost first: those of
// crypto/tls, carrier.mu. Nobody waits for the socket under one that a Flush takes.
type TLS struct {
	sock    *Socket
	conn    *tls.Conn
	carrier carrier

	// Of the reader. peek[:peeked] was decrypted by WaitReadable.
	peek   [1]byte
	peeked int
	rerr   error // the first error of reading; deadlines do not count

	// Of who flushes. What precedes sealed in the Queue's stream is encrypted.
	plain  []byte
	sealed uint64
}

// A carrier is the connection that crypto/tls is given. During the handshake it is
// nc itself.
type carrier struct {
	net.Conn
	sock *Socket

	// Of the reader. wait makes Read wait; drained: the last read took all that the
	// socket held.
	wait, drained bool

	mu  sync.Mutex
	buf []byte // holds out's bytes; nil during the handshake
	out Queue  // ciphertext
	err error  // errUnsent
}

// ServeTLS is the server's handshake on nc, which it takes over if it succeeds. It is
// bounded by nc's deadlines.
func ServeTLS(nc net.Conn, cfg *tls.Config) (*TLS, error) { return newTLS(nc, cfg, tls.Server) }

func newTLS(nc net.Conn, cfg *tls.Config, side func(net.Conn, *tls.Config) *tls.Conn) (*TLS, error) {
	sock, err := New(nc)
	if err != nil {
		return nil, err
	}
	t := &TLS{sock: sock, carrier: carrier{Conn: nc, sock: sock, wait: true}}
	t.conn = side(&t.carrier, cfg)
	if err := t.conn.Handshake(); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	t.carrier.buf, t.plain = make([]byte, 0, maxUnsent), make([]byte, maxRecord)
	return t, nil
}

// Read is Stream's. The end of the stream without a close_notify is io.EOF too, for
// NBD knows by itself what is complete; within a record it is io.ErrUnexpectedEOF.
func (t *TLS) Read(p []byte) (int, error) { return t.read(p, true) }

// TryRead is Stream's.
func (t *TLS) TryRead(p []byte) (int, error) {
	if t.peeked == 0 {
		t.carrier.drained = false
	}
	return t.read(p, false)
}

// read fills p with what can be decrypted now.
func (t *TLS) read(p []byte, wait bool) (int, error) {
	n := copy(p, t.peek[:t.peeked])
	t.peeked -= n
	for n < len(p) && t.rerr == nil {
		t.carrier.wait = wait && n == 0
		m, err := t.conn.Read(p[n:])
		n += m
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			t.rerr = cmp.Or(t.carrier.failed(), err)
		case wait && n == 0:
			return 0, err
		default:
			return n, nil
		}
	}
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, t.rerr
}

// WaitReadable is Stream's. It wakes for what can be read, not for parts of records.
func (t *TLS) WaitReadable() error {
	for {
		if t.peeked == 0 {
			t.peeked, _ = t.read(t.peek[:], false)
		}
		if t.peeked > 0 || t.rerr != nil {
			return nil
		}
		if err := t.sock.WaitReadable(); err != nil {
			return err
		}
		t.carrier.drained = false
	}
}

// Write writes p and waits for the socket to take it, until nc's deadline.
func (t *TLS) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := t.conn.Write(p[n:min(len(p), n+maxRecord)])
		n += m
		for sent := false; err == nil && !sent; {
			if sent, err = t.carrier.push(); err == nil && !sent {
				err = t.sock.WaitWritable()
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Flush is Stream's. At most one record is encrypted and not in the socket.
func (t *TLS) Flush(q *Queue) error {
	for !q.Empty() {
		if t.sealed <= q.written {
			n := q.peek(t.plain)
			if _, err := t.conn.Write(t.plain[:n]); err != nil {
				return err
			}
			t.sealed = q.written + uint64(n)
		}
		if sent, err := t.carrier.push(); err != nil || !sent {
			return err
		}
		q.advance(int(t.sealed - q.written))
	}
	return nil
}

// peek copies the first bytes of q into p.
func (q *Queue) peek(p []byte) int {
	n := 0
	for i := q.head; i < len(q.segs) && n < len(p); i++ {
		n += copy(p[n:], q.segs[i].p)
	}
	return n
}

// WaitWritable is Stream's.
func (t *TLS) WaitWritable() error { return t.sock.WaitWritable() }

// HungUp is Stream's. It asks the socket: a close_notify alone is no hang-up.
func (t *TLS) HungUp() bool { return t.sock.HungUp() }

// Close is Stream's. It says close_notify if that needs no waiting.
func (t *TLS) Close() error {
	_ = t.conn.CloseWrite()
	_, _ = t.carrier.push()
	return t.sock.Close()
}

// Read reads ciphertext. That nothing is there looks to crypto/tls like a deadline,
// after which it goes on where it was.
func (c *carrier) Read(p []byte) (n int, err error) {
	switch {
	case c.wait:
		n, err = c.Conn.Read(p)
	case c.drained:
		return 0, os.ErrDeadlineExceeded
	default:
		if n, err = c.sock.TryRead(p); n == 0 && err == nil {
			err = os.ErrDeadlineExceeded
		}
	}
	c.drained = n < len(p)
	return n, err
}

// Write takes ciphertext, for push.
func (c *carrier) Write(p []byte) (int, error) {
	if c.buf == nil {
		return c.Conn.Write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.Empty() {
		c.buf = c.buf[:0]
	}
	at := len(c.buf)
	if at+len(p) > cap(c.buf) && c.err == nil {
		c.err = errUnsent
	}
	if c.err != nil {
		return 0, c.err
	}
	c.buf = append(c.buf, p...)
	c.out.Data(c.buf[at:])
	return len(p), nil
}

// failed is the error of Write, to which crypto/tls's reading may owe its own.
func (c *carrier) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// push gives the socket what it takes of the ciphertext, and reports whether that
// was all.
func (c *carrier) push() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.sock.Flush(&c.out)
	return c.out.Empty(), err
}

// SetWriteDeadline is for crypto/tls, which would use it on closing. Deadlines are
// the owner's of nc.
func (c *carrier) SetWriteDeadline(time.Time) error { return nil }
