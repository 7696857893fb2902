package sockio

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// How a goroutine waits for a socket:
//
//	read or write ── nothing there ──► poll(2) of the socket and of an eventfd ──► again
//	                                        ▲                  ▲
//	                                   the kernel         SetDeadline
//
// The goroutine blocks its thread. The kernel then wakes the thread that has the work. With
// Go's poller it would wake one that asks epoll what there is, which wakes a second one to
// look for more work, and the runtime's monitor; at depth 1 that costs more than the work.
//
// On TCP a reader whose last waits were short blocks in recv(2) itself, at most for brief, and then
// in poll(2): where messages come one after another each takes one system call, not two.
// SetDeadline does not wake a recv(2), and is heard when brief is over. So after each the
// reader waits in poll(2) again, the next settled times (see mayBlock). On a unix socket it
// stays in poll(2): the kernel wakes a recv(2) there whenever the peer takes what was written,
// which costs more than the second system call.
//
// While the thread blocks it keeps its P, Go's right to run a goroutine, as long as another
// P is idle, for up to 10 ms. So a program that waits here needs more Ps than CPUs
// (GOMAXPROCS): with too few, the monitor takes them away and gives them back all the time.

// turn is how long a reader may go without runtime.Gosched. It looks at the clock once in look
// waits. Go's scheduler never sees a goroutine that only reads, works and waits. When such a
// goroutine has had its P for 10 ms, the runtime's monitor begins to take the P at each wait,
// however short, and the end of each wait wakes the monitor. Gosched starts another 10 ms, and
// costs a wake-up.
const (
	turn = 4 * time.Millisecond
	look = 16
)

// brief is how long a reader blocks in recv(2). The kernel rounds it up to its ticks, of 1 to
// 10 ms.
const brief = 5 * time.Millisecond

// settled is after how many waits, none of which a deadline cut short, a reader may block in
// recv(2).
const settled = 16

// A side is one direction of a Socket: until when a goroutine may wait, and the descriptor
// that wakes it when that changes.
type side struct {
	until atomic.Int64  // in ns since epoch; 0: for ever
	sets  atomic.Uint64 // how often that was set
	wake  int           // an eventfd, which can be read once set was called; -1: none
}

// epoch makes deadlines those of the monotonic clock: the wall clock may be set.
var epoch = time.Now()

func newSide() side { return side{wake: -1} }

func (d *side) open() (err error) {
	d.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return os.NewSyscallError("eventfd", err)
}

// set sets the time until which a goroutine may wait, and has one that waits look at it.
func (d *side) set(t time.Time) error {
	until := int64(0)
	if !t.IsZero() {
		until = max(1, int64(t.Sub(epoch)))
	}
	d.until.Store(until)
	d.sets.Add(1)
	one := [8]byte{1} // any number but 0, in any byte order
	_, err := unix.Write(d.wake, one[:])
	if err != nil && err != unix.EAGAIN { // the count is full, and wakes the reader anyway
		return os.NewSyscallError("write", err)
	}
	return nil
}

// over reports whether the deadline has passed.
func (d *side) over() bool {
	until := d.until.Load()
	return until != 0 && int64(time.Since(epoch)) >= until
}

// timeout returns how long a goroutine may wait, or nil: for ever. left has room for it.
func (d *side) timeout(left *unix.Timespec) *unix.Timespec {
	until := d.until.Load()
	if until == 0 {
		return nil
	}
	*left = unix.NsecToTimespec(max(0, until-int64(time.Since(epoch))))
	return left
}

// await blocks until one of events holds, or the peer has hung up, or the socket has failed.
// It returns os.ErrDeadlineExceeded at the deadline of d, and after Close net.ErrClosed.
func (s *Socket) await(d *side, events int16) error {
	var left unix.Timespec
	for {
		if d.over() {
			return os.ErrDeadlineExceeded
		}
		p := [2]unix.PollFd{{Fd: int32(s.fd), Events: events}, {Fd: int32(d.wake), Events: unix.POLLIN}}
		_, err := unix.Ppoll(p[:], d.timeout(&left), nil)
		switch {
		case s.closed():
			return net.ErrClosed
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("ppoll", err)
		case p[0].Revents != 0:
			return nil
		case p[1].Revents != 0:
			var count [8]byte
			_, _ = unix.Read(d.wake, count[:]) // so that it can wake again
		}
	}
}
