package sockio

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Linger implements Stream. The reader calls it. Close of a TCP socket whose peer has sent more than was
// read, or does so later, resets the connection, and what the peer's system has not received is lost. So
// Linger ends this half of the stream, and reads until the peer ends the other, if there is something to lose.
func (s *Socket) Linger(d time.Duration) {
	if !s.tcp || s.enter() != nil {
		return
	}
	defer s.leave()
	unsent, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQ) // and what is not acknowledged
	if err != nil || unsent == 0 || s.CloseWrite() != nil {
		return
	}
	p, end := make([]byte, 16<<10), time.Now().Add(d)
	for time.Now().Before(end) && s.SetReadDeadline(end) == nil {
		if _, err := s.Read(p); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // somebody else may interrupt
			return
		}
	}
}

// Linger implements Stream.
func (t *TLS) Linger(d time.Duration) {
	_ = t.conn.CloseWrite()
	_, _ = t.carrier.push()
	t.sock.Linger(d)
}
