// Package sockio moves bytes over stream sockets, only for packages of this module; it
// promises nothing to other programs.
//
// A [Stream] is a connection: a [Socket], or [TLS] over one. A [Queue] gathers what is to be
// written, and Flush writes as much of it as the socket takes, without waiting. Neither
// reading nor writing allocates.
//
// Sockets wait in Go's poller. Blocking system calls on threads of their own would be the
// other choice, and could be tried here without a change elsewhere (design §4.10).
package sockio

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Socket is a connected stream socket. Only one goroutine at a time may be in Read,
// TryRead or WaitReadable, and one in WaitWritable. The owner of a Queue serialises its
// Flushes. HungUp and Close may be called at any time. Flush never waits, not even for a
// goroutine in WaitWritable.
type Socket struct {
	conn net.Conn
	raw  syscall.RawConn

	// The closures below are made once, so that no call allocates. The arguments and
	// results of each are beside it.

	// ctl guards the fields of HungUp and TryRead.
	ctl     sync.Mutex
	hungUp  func(fd uintptr)
	hung    bool
	tryRead func(fd uintptr)
	tryBuf  []byte
	tryN    int
	tryErr  error

	readable func(fd uintptr) bool
	polledR  bool // for the reader alone

	writable func(fd uintptr) bool
	polledW  bool // for the goroutine in WaitWritable alone
}

// New takes over c, a *net.TCPConn or *net.UnixConn. On TCP it turns off Nagle's algorithm,
// because a Queue gathers already. If it fails, c is still the caller's.
func New(c net.Conn) (*Socket, error) {
	var raw syscall.RawConn
	var err error
	switch c := c.(type) {
	case *net.TCPConn:
		if err = c.SetNoDelay(true); err != nil {
			return nil, fmt.Errorf("set TCP_NODELAY: %w", err)
		}
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return nil, fmt.Errorf("sockio: a %T is not a socket", c)
	}
	if err != nil {
		return nil, fmt.Errorf("reach the file descriptor: %w", err)
	}
	s := &Socket{conn: c, raw: raw}
	s.hungUp = func(fd uintptr) {
		// If poll(2) fails, nothing shows that the peer is still there.
		ev, err := poll(fd, unix.POLLRDHUP)
		s.hung = err != nil || ev != 0
	}
	s.tryRead = func(fd uintptr) { s.tryN, s.tryErr = read(fd, s.tryBuf) }
	s.readable = func(fd uintptr) bool {
		if s.polledR {
			return true // Go's poller saw an event since the poll
		}
		s.polledR = true
		ev, err := poll(fd, unix.POLLIN|unix.POLLRDHUP)
		return err != nil || ev != 0
	}
	s.writable = func(fd uintptr) bool {
		if s.polledW {
			return true
		}
		s.polledW = true
		ev, err := poll(fd, unix.POLLOUT)
		return err != nil || ev != 0
	}
	return s, nil
}

// Conn returns the connection beneath, for its addresses, options and deadlines.
func (s *Socket) Conn() net.Conn { return s.conn }

// Read waits for the first byte and reads what is there, at most len(p) bytes. At the end
// of the stream it returns io.EOF, and after Close net.ErrClosed.
func (s *Socket) Read(p []byte) (int, error) { return s.conn.Read(p) }

// TryRead is a Read that does not wait. If nothing is there it returns 0, nil.
func (s *Socket) TryRead(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.ctl.Lock()
	defer s.ctl.Unlock()
	s.tryBuf = p
	err := s.raw.Control(s.tryRead)
	s.tryBuf = nil
	if err != nil {
		return 0, err
	}
	return s.tryN, s.tryErr
}

// WaitReadable blocks until something can be read. The end of the stream and a hang-up
// count. After Close it returns net.ErrClosed.
func (s *Socket) WaitReadable() error {
	s.polledR = false
	return s.raw.Read(s.readable)
}

// WaitWritable blocks until something can be written or the peer has hung up, which the
// next Flush then reports. After Close it returns net.ErrClosed.
func (s *Socket) WaitWritable() error {
	s.polledW = false
	return s.raw.Write(s.writable)
}

// HungUp reports whether the peer has closed the connection or its half of the stream, or
// the connection has failed. It takes one poll(2), which does not wait. A closed Socket
// counts as hung up.
func (s *Socket) HungUp() bool {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	return s.raw.Control(s.hungUp) != nil || s.hung
}

// Flush writes as much of q as the socket takes. That is one writev(2), or more if q has
// more than IOV_MAX runs of bytes. It does not wait: a full socket is no error, and q.Empty
// tells whether something remains. After an error the stream is broken.
func (s *Socket) Flush(q *Queue) error {
	if q.Empty() {
		return nil
	}
	if q.flush == nil {
		q.flush = func(fd uintptr) { q.err = q.writeAll(fd) }
	}
	// RawConn.Write would wait for a goroutine in WaitWritable. Control does not, and
	// the descriptor is non-blocking anyway.
	if err := s.raw.Control(q.flush); err != nil {
		return err
	}
	return q.err
}

// Close closes the socket and wakes every call that waits. It is idempotent.
func (s *Socket) Close() error {
	err := s.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
