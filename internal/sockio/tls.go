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
	// MaxRecord bounds the plaintext of one TLS record, in bytes (RFC 8446 §5.1).
	MaxRecord = 16 << 10
	// maxSealed is how many records Flush encrypts before one sendmsg(2) takes them. A few make
	// the system call cheap, and stay in a core's cache until it copies them.
	maxSealed = 4
	// maxOverhead bounds what encryption adds to a record, in bytes. It is 29 at most, but crypto/tls
	// makes a dozen small records of one at the beginning, unless Config.DynamicRecordSizingDisabled.
	maxOverhead = 512
	// maxUnsent bounds the ciphertext that the socket has not taken, in bytes. It is what
	// Flush encrypts, and a record more for what crypto/tls sends by itself: a peer may ask for
	// hundreds of KeyUpdates without reading an answer, but not for more.
	maxUnsent = maxSealed*(MaxRecord+maxOverhead) + MaxRecord
	// firstUnsent is the room for ciphertext of a connection that has never sent more than a record
	// at a time, in bytes.
	firstUnsent = 2 * MaxRecord
)

// errUnsent means that the peer makes crypto/tls answer ever more, and reads nothing.
var errUnsent = errors.New("the peer asks for too many TLS messages that it does not read")

// TLS is a Stream that TLS encrypts. It has no goroutine of its own. The rules of Socket
// hold. A caller may use Write instead of Flush, but not at the same time.
type TLS struct {
	// Reading may make crypto/tls write alerts and answers to KeyUpdates. Those stay in
	// the carrier until the next Flush or Close, as RFC 8446 §4.6.3 allows, so that
	// reading never waits for a peer that does not read. Locks, outermost first: those
	// of crypto/tls, carrier.mu. No goroutine waits for the socket while it holds one
	// that Flush takes.
	sock    *Socket
	conn    *tls.Conn
	carrier carrier

	// For the reader alone. WaitReadable has decrypted peek[:peeked].
	peek   [1]byte
	peeked int
	rerr   error // the first error of reading other than a deadline

	// For Flush alone. In the Queue's stream everything before sealed is encrypted; ends has where
	// each record ends that is not all in the socket.
	plain  []byte
	sealed uint64
	ends   []recordEnd

	// For Flush and Write: see Limit. spent is what was encrypted, in bytes.
	limit, spent uint64
}

// A recordEnd is the end of a record, in the Queue's stream and in that of the ciphertext.
type recordEnd struct{ plain, cipher uint64 }

// A carrier is the connection that crypto/tls writes to and reads from. During the
// handshake it passes everything through; after that it never waits on writing.
type carrier struct {
	net.Conn
	sock *Socket

	// For the reader alone. wait makes Read wait. drained means that the last read took
	// everything that the socket held.
	wait, drained bool

	mu  sync.Mutex
	buf []byte // the bytes that out refers to; nil during the handshake
	out Queue  // ciphertext
	err error  // errUnsent, or nil
}

// ServeTLS does the server's handshake on nc, within the deadlines of nc, and takes nc over
// if it succeeds.
func ServeTLS(nc net.Conn, cfg *tls.Config) (*TLS, error) { return newTLS(nc, cfg, tls.Server) }

// DialTLS is ServeTLS for the client.
func DialTLS(nc net.Conn, cfg *tls.Config) (*TLS, error) { return newTLS(nc, cfg, tls.Client) }

func newTLS(nc net.Conn, cfg *tls.Config, side func(net.Conn, *tls.Config) *tls.Conn) (*TLS, error) {
	sock, err := New(nc)
	if err != nil {
		return nil, err
	}
	h, err := handshake(sock, cfg, side)
	if err != nil {
		return nil, err
	}
	t, _, err := h.Take()
	return t, err
}

// A Handshaken is a connection that TLS encrypts, and whose bytes still come and go by Go's
// poller. So no thread waits for a peer that may be a stranger.
type Handshaken struct{ t *TLS }

// HandshakeTLS does the server's handshake on nc, within the deadlines of nc, and does not take nc
// over.
func HandshakeTLS(nc net.Conn, cfg *tls.Config) (*Handshaken, error) {
	return handshake(nc, cfg, tls.Server)
}

func handshake(nc net.Conn, cfg *tls.Config, side func(net.Conn, *tls.Config) *tls.Conn) (*Handshaken, error) {
	t := &TLS{carrier: carrier{Conn: nc, wait: true}}
	t.conn = side(&t.carrier, cfg)
	if err := t.conn.Handshake(); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return &Handshaken{t}, nil
}

// Read reads as that of the connection.
func (h *Handshaken) Read(p []byte) (int, error) { return h.t.conn.Read(p) }

// Write writes as that of the connection.
func (h *Handshaken) Write(p []byte) (int, error) { return h.t.conn.Write(p) }

// State returns what the handshake agreed on.
func (h *Handshaken) State() tls.ConnectionState { return h.t.conn.ConnectionState() }

// Close closes the connection, and sends a close_notify within its deadlines.
func (h *Handshaken) Close() error { return h.t.conn.Close() }

// Take makes a Stream of h, whose connection it takes over, and also returns the Socket beneath. If
// it fails, the connection is still the caller's. h is of no use afterwards.
func (h *Handshaken) Take() (*TLS, *Socket, error) {
	sock, err := New(h.t.carrier.Conn)
	if err != nil {
		return nil, nil, err
	}
	t := h.t
	t.sock, t.carrier.Conn, t.carrier.sock = sock, sock, sock
	t.carrier.buf, t.plain = make([]byte, 0, firstUnsent), make([]byte, MaxRecord)
	return t, sock, nil
}

// State returns what the handshake agreed on.
func (t *TLS) State() tls.ConnectionState { return t.conn.ConnectionState() }

// Read implements Stream. The end of the stream is io.EOF even without a close_notify,
// because NBD knows by itself what is complete. Inside a record it is io.ErrUnexpectedEOF.
func (t *TLS) Read(p []byte) (int, error) { return t.read(p, true) }

// TryRead implements Stream.
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

// ReadSoon implements Stream. It does not wait: a record may come in parts.
func (t *TLS) ReadSoon([]byte) (int, error) { return 0, nil }

// WaitReadable implements Stream. Part of a record does not wake it.
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

// Write writes p and waits for the socket to take it, until the connection's deadline.
func (t *TLS) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := t.encrypt(p[n:min(len(p), n+MaxRecord)])
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

// Flush implements Stream. At most maxSealed records are encrypted and not in the socket yet.
func (t *TLS) Flush(q *Queue) error {
	for !q.Empty() {
		if t.sealed <= q.written {
			if err := t.seal(q); err != nil {
				return err
			}
		}
		sent, err := t.carrier.push()
		t.settle(q)
		if err != nil || !sent {
			return err
		}
	}
	return nil
}

// seal encrypts the first bytes of q, one record or more of them.
func (t *TLS) seal(q *Queue) error {
	t.sealed, t.ends = q.written, t.ends[:0] // those of a Queue that was Reset count no more
	for len(t.ends) < maxSealed && t.sealed < q.queued {
		p := q.peek(t.plain, int(t.sealed-q.written))
		if !t.carrier.room(len(p)) || t.usedUp() && len(t.ends) > 0 {
			return nil // something else has to leave first
		}
		if _, err := t.encrypt(p); err != nil {
			return err
		}
		t.sealed += uint64(len(p))
		t.ends = append(t.ends, recordEnd{t.sealed, t.carrier.taken()})
	}
	return nil
}

// settle counts as written, in q, the records that are in the socket.
func (t *TLS) settle(q *Queue) {
	sent := t.carrier.written()
	for len(t.ends) > 0 && t.ends[0].cipher <= sent {
		if end := t.ends[0].plain; end > q.written {
			q.advance(int(end - q.written))
		}
		n := copy(t.ends, t.ends[1:])
		t.ends = t.ends[:n]
	}
}

// peek returns the bytes of q behind the first skip, at most len(p) of them: where they are, if they
// are all in one place, or else copied into p.
func (q *Queue) peek(p []byte, skip int) []byte {
	n := 0
	for i := q.head; i < len(q.segs) && n < len(p); i++ {
		s := q.segs[i].p
		if skip >= len(s) {
			skip -= len(s)
			continue
		}
		s, skip = s[skip:], 0
		if n == 0 && len(s) >= len(p) {
			return s[:len(p)]
		}
		n += copy(p[n:], s)
	}
	return p[:n]
}

// WaitWritable implements Stream.
func (t *TLS) WaitWritable() error { return t.sock.WaitWritable() }

// HungUp implements Stream. Only the socket counts: a close_notify alone is no hang-up.
func (t *TLS) HungUp() bool { return t.sock.HungUp() }

// Close implements Stream. It sends a close_notify if it need not wait for that.
func (t *TLS) Close() error {
	_ = t.conn.CloseWrite()
	_, _ = t.carrier.push()
	return t.sock.Close()
}

// Read reads ciphertext for crypto/tls. When nothing is there it returns the error of a
// deadline, after which crypto/tls can go on where it was.
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

// Write takes ciphertext from crypto/tls and keeps it for push.
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
	if at+len(p) > maxUnsent && c.err == nil {
		c.err = errUnsent
	}
	if c.err != nil {
		return 0, c.err
	}
	if at+len(p) > cap(c.buf) { // what out refers to stays where it is
		c.buf = append(make([]byte, 0, maxUnsent), c.buf...)
	}
	c.buf = append(c.buf, p...)
	c.out.Data(c.buf[at:])
	return len(p), nil
}

// room reports whether a record of n bytes fits, and what crypto/tls may send beside it.
func (c *carrier) room(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Empty() || len(c.buf)+n+maxOverhead <= maxUnsent-MaxRecord
}

// taken returns how many bytes of ciphertext there were ever, and written how many of them are in the
// socket.
func (c *carrier) taken() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Queued()
}

func (c *carrier) written() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Written()
}

// failed returns the error of Write, which may have caused an error of reading.
func (c *carrier) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// push writes as much ciphertext as the socket takes, and reports whether that was all.
func (c *carrier) push() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.sock.Flush(&c.out)
	return c.out.Empty(), err
}

// SetWriteDeadline does nothing. crypto/tls calls it on closing, but the connection's
// deadlines belong to its owner.
func (c *carrier) SetWriteDeadline(time.Time) error { return nil }
