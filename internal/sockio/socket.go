// Package sockio moves bytes over stream sockets, only for packages of this module; it
// promises nothing to other programs.
//
// A [Stream] is a connection: a [Socket], or [TLS] over one. A [Queue] gathers what is to be
// written, and Flush writes as much of it as the socket takes, without waiting. Neither
// reading nor writing allocates.
package sockio

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Socket is a connected stream socket. It is a net.Conn, too. Only one goroutine at a time
// may be in Read, ReadSoon, TryRead, WaitReadable or WaitHangUp, and one in Write or WaitWritable. The
// owner of a Queue serialises its Flushes. The other methods may be called at any time.
// Flush never waits, not even for a goroutine in WaitWritable.
//
// A goroutine that waits does so in poll(2) or recv(2), and its thread with it (wait.go). So a
// process has at most two such threads for each Socket. The descriptor is a blocking one, with
// brief as SO_RCVTIMEO: all calls but that recv(2) say MSG_DONTWAIT.
type Socket struct {
	fd            int // set once; valid for calls that have entered
	tcp           bool
	local, remote net.Addr
	in, out       side

	// users counts the calls that use fd, and one for Close. Close adds closing. Whoever
	// leaves last closes fd: before that, another file could get its number.
	users atomic.Int64

	// drained means that the last read took everything that the socket held. Another one
	// would hear EAGAIN, so Read waits first. For the reader alone, like what follows.
	drained bool
	calm    int           // waits since the last one that was long, or since heard changed
	heard   uint64        // of in.sets
	turned  time.Duration // when it called Gosched, since epoch
	// The counters of system calls: of recv(2), of poll(2), and of those of both that may block.
	reads, polls, waits uint64
}

// closing is more than users can ever count.
const closing = 1 << 32

var _ net.Conn = (*Socket)(nil)

// unixBuffer is how many bytes a unix socket holds that the peer has not read. The kernel may
// permit less (net.core.wmem_max). Linux's default of 208 KiB takes one READ of 128 KiB: what
// follows would wait for a thread that writes it.
const unixBuffer = 1 << 20

// New takes over c, a *net.TCPConn or *net.UnixConn, which is closed then. On TCP it turns
// off Nagle's algorithm, because a Queue gathers already. A unix socket gets a larger buffer.
// A Socket is returned as it is. If New fails, c is still the caller's.
func New(c net.Conn) (*Socket, error) {
	if s, ok := c.(*Socket); ok {
		return s, nil
	}
	var raw syscall.RawConn
	var err error
	tcp := false
	switch c := c.(type) {
	case *net.TCPConn:
		if err = c.SetNoDelay(true); err != nil {
			return nil, fmt.Errorf("set TCP_NODELAY: %w", err)
		}
		tcp = true
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		if err = c.SetWriteBuffer(unixBuffer); err != nil {
			return nil, fmt.Errorf("set SO_SNDBUF: %w", err)
		}
		raw, err = c.SyscallConn()
	default:
		return nil, fmt.Errorf("sockio: a %T is not a socket", c)
	}
	if err != nil {
		return nil, fmt.Errorf("reach the file descriptor: %w", err)
	}
	// The duplicate is not in Go's poller. That one would be woken by every arrival, beside
	// the goroutine that waits here.
	s := &Socket{fd: -1, tcp: tcp, local: c.LocalAddr(), remote: c.RemoteAddr(), in: newSide(), out: newSide()}
	s.users.Store(1)
	var dupErr error
	err = raw.Control(func(fd uintptr) {
		s.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, dupErr, s.in.open(), s.out.open()); err != nil {
		s.release()
		return nil, fmt.Errorf("take a socket over: %w", err)
	}
	_ = c.Close() // the duplicate is what counts
	// Not before: both have one set of flags.
	if err = block(s.fd, brief); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("take a socket over: %w", err)
	}
	return s, nil
}

// block makes fd a blocking descriptor, where reads wait so long, or with 0 one that does not
// block, as Go's are.
func block(fd int, read time.Duration) error {
	tv := unix.NsecToTimeval(int64(read))
	err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	return errors.Join(os.NewSyscallError("setsockopt", err), os.NewSyscallError("fcntl", unix.SetNonblock(fd, read == 0)))
}

// enter makes fd valid until leave.
func (s *Socket) enter() error {
	for {
		n := s.users.Load()
		if n&closing != 0 {
			return net.ErrClosed
		}
		if s.users.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// leave ends what enter began.
func (s *Socket) leave() {
	if s.users.Add(-1) == closing {
		s.release()
	}
}

// release closes the descriptors. Nobody uses them.
func (s *Socket) release() {
	for _, fd := range []int{s.fd, s.in.wake, s.out.wake} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// closed reports whether Close has been called.
func (s *Socket) closed() bool { return s.users.Load()&closing != 0 }

// Close closes the socket and wakes every call that waits. It is idempotent.
func (s *Socket) Close() error {
	if s.enter() != nil {
		return nil
	}
	defer s.leave()
	if s.users.Or(closing)&closing != 0 {
		return nil
	}
	// close(2) would not wake a thread that waits; shutdown(2) does. It fails if the peer has
	// reset the connection, and then nobody waits.
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
	s.users.Add(-1) // the one for Close
	return nil
}

// Detach closes the Socket and leaves the connection, as it is, to the caller. Nobody may be waiting.
func (s *Socket) Detach() (*os.File, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if err := block(s.fd, 0); err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if s.users.Or(closing)&closing == 0 {
		s.users.Add(-1) // the one for Close
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

// Read waits for the first byte and reads what is there, at most len(p) bytes. At the end
// of the stream it returns io.EOF, and after Close net.ErrClosed.
func (s *Socket) Read(p []byte) (int, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	if s.in.over() {
		return 0, os.ErrDeadlineExceeded
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if n, err := s.readSoon(p); n > 0 || err != nil {
			return n, err
		}
		if err := s.awaitReader(unix.POLLIN | unix.POLLRDHUP); err != nil {
			return 0, err
		}
	}
}

// ReadSoon is a Read that gives up after some milliseconds, or at once where waiting would take
// more than the read itself. Then it returns 0, nil.
func (s *Socket) ReadSoon(p []byte) (int, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	if s.in.over() {
		return 0, os.ErrDeadlineExceeded
	}
	return s.readSoon(p)
}

func (s *Socket) readSoon(p []byte) (int, error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case s.mayBlock():
		s.countWait()
		n, err := s.read(p, 0)
		if n == 0 {
			s.calm = 0 // a long wait, whose deadline may change
		}
		return n, err
	case s.drained:
		return 0, nil
	}
	return s.read(p, unix.MSG_DONTWAIT)
}

// mayBlock reports whether the reader may block in recv(2): on TCP, if nobody has set a deadline
// for a while, and waits are short.
func (s *Socket) mayBlock() bool {
	if sets := s.in.sets.Load(); sets != s.heard {
		s.heard, s.calm = sets, 0
	}
	return s.tcp && s.calm >= settled && s.in.until.Load() == 0
}

// TryRead is a Read that does not wait. If nothing is there it returns 0, nil.
func (s *Socket) TryRead(p []byte) (int, error) {
	if err := s.enter(); err != nil || len(p) == 0 {
		return 0, err
	}
	defer s.leave()
	return s.read(p, unix.MSG_DONTWAIT)
}

func (s *Socket) read(p []byte, flags int) (int, error) {
	s.reads++
	n, err := recv(s.fd, p, flags)
	s.drained = err == nil && n < len(p)
	if errors.Is(err, io.EOF) && s.closed() {
		err = net.ErrClosed // the end is that of our own shutdown(2)
	}
	return n, err
}

// WaitReadable blocks until something can be read. The end of the stream and a hang-up
// count. After Close it returns net.ErrClosed.
func (s *Socket) WaitReadable() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.awaitReader(unix.POLLIN | unix.POLLRDHUP)
}

// WaitHangUp blocks until HungUp would report true. What can be read does not wake it.
// After Close it returns net.ErrClosed.
func (s *Socket) WaitHangUp() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.awaitReader(unix.POLLRDHUP)
}

func (s *Socket) awaitReader(events int16) error {
	s.polls++
	s.drained = false
	s.countWait()
	return s.await(&s.in, events)
}

func (s *Socket) countWait() {
	s.calm++
	if s.waits++; s.waits%look == 0 {
		if now := time.Since(epoch); now-s.turned >= turn {
			s.turned = now
			runtime.Gosched()
		}
	}
}

// WaitWritable blocks until something can be written or the peer has hung up, which the
// next Flush then reports. After Close it returns net.ErrClosed.
func (s *Socket) WaitWritable() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.await(&s.out, unix.POLLOUT)
}

// HungUp reports whether the peer has closed the connection or its half of the stream, or
// the connection has failed. It takes one poll(2), which does not wait. A closed Socket
// counts as hung up.
func (s *Socket) HungUp() bool {
	if s.enter() != nil {
		return true
	}
	defer s.leave()
	// If poll(2) fails, nothing shows that the peer is still there.
	ev, err := poll(s.fd, unix.POLLRDHUP)
	return err != nil || ev != 0
}

// Flush writes as much of q as the socket takes. That is one sendmsg(2), or more if q has
// more than IOV_MAX runs of bytes. It does not wait: a full socket is no error, and q.Empty
// tells whether something remains. After an error the stream is broken.
func (s *Socket) Flush(q *Queue) error {
	if q.Empty() {
		return nil
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return q.writeAll(s.fd)
}

// Write writes all of p, and waits for room until the deadline.
func (s *Socket) Write(p []byte) (done int, err error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	for {
		if s.out.over() {
			return done, os.ErrDeadlineExceeded
		}
		n, err := send(s.fd, p[done:])
		if done += n; err != nil || done == len(p) {
			return done, err
		}
		if err := s.await(&s.out, unix.POLLOUT); err != nil {
			return done, err
		}
	}
}

// CloseRead makes reads return the end of the stream, once what has arrived is read.
func (s *Socket) CloseRead() error { return s.shutdown(unix.SHUT_RD) }

// CloseWrite tells the peer that nothing more will come.
func (s *Socket) CloseWrite() error { return s.shutdown(unix.SHUT_WR) }

func (s *Socket) shutdown(how int) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return os.NewSyscallError("shutdown", unix.Shutdown(s.fd, how))
}

// LocalAddr implements net.Conn.
func (s *Socket) LocalAddr() net.Addr { return s.local }

// RemoteAddr implements net.Conn.
func (s *Socket) RemoteAddr() net.Addr { return s.remote }

// SetDeadline implements net.Conn.
func (s *Socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. It bounds WaitReadable and WaitHangUp, too.
func (s *Socket) SetReadDeadline(t time.Time) error { return s.setDeadline(&s.in, t) }

// SetWriteDeadline implements net.Conn. It bounds WaitWritable, too.
func (s *Socket) SetWriteDeadline(t time.Time) error { return s.setDeadline(&s.out, t) }

func (s *Socket) setDeadline(d *side, t time.Time) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return d.set(t)
}
