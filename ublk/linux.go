package ublk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const controlPath = "/dev/ublk-control"

// A linuxHost is the kernel of this machine.
type linuxHost struct{ file *os.File }

func openHost() (host, error) {
	f, err := os.OpenFile(controlPath, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: run modprobe ublk_drv", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w: ublk devices need root (CAP_SYS_ADMIN)", err)
	case err != nil:
		return nil, err
	}
	return &linuxHost{file: f}, nil
}

func (h *linuxHost) close() error { return h.file.Close() }

// command runs a command of /dev/ublk-control. Each has a ring of its own: they are rare, and some take
// long.
func (h *linuxHost) command(op uint32, id uint32, data uint64, buf []byte) (err error) {
	runtime.LockOSThread() // the end of a thread ends its commands
	defer runtime.UnlockOSThread()
	// The kernel gets an address for longer than a call, so the buffer is mapped memory.
	shared, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(shared)) }()
	r, err := newRing(1, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	n := copy(shared, buf)
	addr := uint64(0)
	if n > 0 {
		addr = address(shared)
	}
	putControl(r.command(int(h.file.Fd()), op, 0), id, data, addr, uint16(n))
	if err := r.result(); err != nil {
		return err
	}
	copy(buf, shared)
	return nil
}

func (h *linuxHost) open(id uint32) (charDevice, error) {
	// The file is not for Go's poller, which the driver does not know.
	fd, err := unix.Open(fmt.Sprintf("/dev/ublkc%d", id), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: fmt.Sprintf("/dev/ublkc%d", id), Err: err}
	}
	return charFile(fd), nil
}

// A charFile is an open /dev/ublkcN.
type charFile int

func (f charFile) close() error { return unix.Close(int(f)) }

func (f charFile) connect(p port, number uint16) (err error) {
	q := p.(*linuxPort)
	page := os.Getpagesize()
	round := func(n int) int { return (n + page - 1) &^ (page - 1) }
	off := int64(number) * int64(round(maxDepth*descriptorSize))
	q.file, q.number = int(f), number
	q.descriptors, err = unix.Mmap(q.file, off, round(depth*descriptorSize), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if errors.Is(err, unix.EINVAL) {
		err = errors.Join(err, ErrHalf) // another process has mapped them since the device was reset
	}
	if err != nil {
		return fmt.Errorf("map the requests of queue %d: %w", number, err)
	}
	return nil
}

// owned sends a command that the driver refuses in any case: as a stranger's, if the queue has a
// server, and as an unknown one, if it has none.
func (f charFile) owned(number uint16) (is bool, err error) {
	runtime.LockOSThread() // the end of a thread ends its commands
	defer runtime.UnlockOSThread()
	r, err := newRing(1, false)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	putIO(r.command(int(f), ioNone, 0), number, 0, 0)
	switch err := r.result(); {
	case errors.Is(err, unix.EINVAL):
		return true, nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	default:
		return false, fmt.Errorf("ask whose queue %d is: the driver's answer is unknown: %w", number, errors.Join(err, ErrHalf))
	}
}

// settle waits, as the kernel reports nothing of it. What is left has waited for the lock that START_USER_RECOVERY took,
// and needs only a CPU. Linux 6.12 that takes fetches back between the first of them and END_USER_RECOVERY uses them all
// the same, and can run out of memory in that.
func (*linuxHost) settle() { time.Sleep(time.Second) }

func (*linuxHost) ended(tid int) bool { return unix.Tgkill(unix.Getpid(), tid, 0) != nil }

// port makes the port of a queue for the calling thread.
func (*linuxHost) port() (_ port, err error) {
	q := &linuxPort{file: -1, event: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.close())
		}
	}()
	if q.ring, err = newRing(2*depth, true); err != nil { // a command for each slot, and one read
		return nil, err
	}
	if q.woken, err = wakeMemory(); err != nil {
		return nil, err
	}
	if q.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	q.listen()
	return q, nil
}

// A linuxPort is the kernel's side of a queue.
type linuxPort struct {
	file        int
	number      uint16
	ring        *ring
	descriptors []byte // the kernel writes, we read
	event       int    // an eventfd that wake writes; the ring always has a read of it
	woken       []byte // where that read goes
}

// wakeMemory returns the memory for what is read from eventfds, which nobody looks at. It is never
// unmapped: the kernel ends the read of a ring only some time after the ring was closed.
var wakeMemory = sync.OnceValues(func() ([]byte, error) {
	m, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map memory: %w", err)
	}
	return m[:8], nil
})

// wakeUser is the user data of the read of the eventfd. Those of commands are tags.
const wakeUser = 1 << 63

func (q *linuxPort) listen() { q.ring.read(q.event, q.woken, wakeUser) }

func (q *linuxPort) descriptor(tag uint16) descriptor {
	return loadDescriptor(q.descriptors, int(tag)*descriptorSize)
}

func (q *linuxPort) fetch(tag uint16) {
	putIO(q.ring.command(q.file, ioFetch, uint64(tag)), q.number, tag, 0)
}

func (q *linuxPort) commit(tag uint16, result int32) {
	putIO(q.ring.command(q.file, ioCommit, uint64(tag)), q.number, tag, result)
}

func (q *linuxPort) enter(wait bool) error { return q.ring.enter(wait) }

func (q *linuxPort) next() (completion, bool) {
	for {
		user, result, ok := q.ring.next()
		switch {
		case !ok:
			return completion{}, false
		case user == wakeUser:
			q.listen()
		default:
			return completion{tag: uint32(min(user, 1<<32-1)), result: result}, true
		}
	}
}

func (q *linuxPort) receive(tag uint16, off int, p []byte) error {
	return whole(p, payloadOffset(q.number, tag)+int64(off), func(b []byte, at int64) (int, error) { return unix.Pread(q.file, b, at) })
}

func (q *linuxPort) send(tag uint16, off int, p []byte) error {
	return whole(p, payloadOffset(q.number, tag)+int64(off), func(b []byte, at int64) (int, error) { return unix.Pwrite(q.file, b, at) })
}

// whole calls do until it has done all of p.
func whole(p []byte, at int64, do func([]byte, int64) (int, error)) error {
	for len(p) > 0 {
		n, err := do(p, at)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n <= 0:
			return io.ErrUnexpectedEOF
		default:
			p, at = p[n:], at+int64(n)
		}
	}
	return nil
}

func (q *linuxPort) wake() {
	_, _ = unix.Write(q.event, one[:]) // it fails only if the count is full, and then it wakes anyway
}

// one is what wake writes: any number but 0, in any byte order.
var one = [8]byte{1}

// close ends the ring first: the kernel then has no command that uses the memory.
func (q *linuxPort) close() (err error) {
	if q.ring != nil {
		err = q.ring.close()
	}
	if q.event >= 0 {
		err = errors.Join(err, unix.Close(q.event))
	}
	if q.descriptors != nil {
		err = errors.Join(err, unix.Munmap(q.descriptors))
	}
	return err
}
