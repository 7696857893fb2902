// Package sockio is how bytes move over one connected stream socket.
//
// It exists so that the choice between Go's poller and blocking system calls on
// threads of their own stays behind one small type, where it can be measured and
// changed (design §4.10): nbd uses it for its clients, rdma/iwarp for its queue
// pairs. Now it is the poller. It owns the socket and the gather list (Queue) of
// what is to be written, and how listening sockets come to be; it knows nothing of what
// the bytes mean. It imports nothing of ours.
package sockio

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Socket is a connected stream socket. One goroutine at a time may be in Read,
// TryRead or WaitReadable, one in WaitWritable; the owner of a Queue serialises
// its Flushes. HungUp and Close may be called at any time. A Flush never waits,
// not even for a goroutine in WaitWritable.
type Socket struct {
	conn net.Conn
	raw  syscall.RawConn

	// The closures below are made once, so that no call allocates. Each has its
	// arguments and results beside it.

	// ctl guards what HungUp and TryRead share.
	ctl     sync.Mutex
	hungUp  func(fd uintptr)
	hung    bool
	tryRead func(fd uintptr)
	tryBuf  []byte
	tryN    int
	tryErr  error

	readable func(fd uintptr) bool
	polledR  bool // only the reader

	writable func(fd uintptr) bool
	polledW  bool // only who waits to write
}

// New takes over c, a *net.TCPConn or *net.UnixConn. On TCP it turns Nagle's
// algorithm off: whoever writes here has gathered already.
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
		return nil, fmt.Errorf("sockio: a %T is no socket", c)
	}
	if err != nil {
		return nil, fmt.Errorf("reach the file descriptor: %w", err)
	}
	s := &Socket{conn: c, raw: raw}
	s.hungUp = func(fd uintptr) {
		// An error of poll(2) says that nobody can be shown to be there.
		ev, err := poll(fd, unix.POLLRDHUP)
		s.hung = err != nil || ev != 0
	}
	s.tryRead = func(fd uintptr) { s.tryN, s.tryErr = read(fd, s.tryBuf) }
	s.readable = func(fd uintptr) bool {
		if s.polledR {
			return true // the poller woke us: there was an edge since the poll
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

// Conn is the connection beneath, for addresses, options and deadlines.
func (s *Socket) Conn() net.Conn { return s.conn }

// Read reads what is there, at most len(p) bytes, and waits for the first byte.
// It returns io.EOF at the end of the stream, and an error that is net.ErrClosed
// after Close.
func (s *Socket) Read(p []byte) (int, error) { return s.conn.Read(p) }

// TryRead is a Read that does not wait: 0, nil says that nothing is there.
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

// WaitReadable blocks until something can be read, the end of the stream and a
// hang-up included; net.ErrClosed says that the socket was closed.
func (s *Socket) WaitReadable() error {
	s.polledR = false
	return s.raw.Read(s.readable)
}

// WaitWritable blocks until something can be written or the peer hung up, which
// the next Flush then says; net.ErrClosed says that the socket was closed.
func (s *Socket) WaitWritable() error {
	s.polledW = false
	return s.raw.Write(s.writable)
}

// HungUp reports, by one poll(2) that does not wait, whether the peer closed its
// end, or only its half of the stream, or the connection failed. A closed Socket
// counts as hung up.
func (s *Socket) HungUp() bool {
	s.ctl.Lock()
	defer s.ctl.Unlock()
	return s.raw.Control(s.hungUp) != nil || s.hung
}

// Flush writes what q holds, as far as the socket takes it: one writev(2), more
// only beyond IOV_MAX runs. It does not wait: a full socket is no error, and
// q.Empty says what remains. After an error the stream is broken.
func (s *Socket) Flush(q *Queue) error {
	if q.Empty() {
		return nil
	}
	if q.flush == nil {
		q.flush = func(fd uintptr) { q.err = q.writeAll(fd) }
	}
	// Control, not Write: RawConn.Write would wait for a goroutine in
	// WaitWritable, and the descriptor is non-blocking anyway.
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
