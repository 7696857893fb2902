package ublk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Parts of io_uring(7) that this package uses, from Linux's include/uapi/linux/io_uring.h.
const (
	setupSubmitAll    = 1 << 7  // IORING_SETUP_SUBMIT_ALL
	setupCoop         = 1 << 8  // IORING_SETUP_COOP_TASKRUN
	setupSQE128       = 1 << 10 // IORING_SETUP_SQE128
	setupSingleIssuer = 1 << 12 // IORING_SETUP_SINGLE_ISSUER
	setupDefer        = 1 << 13 // IORING_SETUP_DEFER_TASKRUN

	featureSingleMap = 1 << 0 // IORING_FEAT_SINGLE_MMAP

	enterGetEvents = 1 << 0 // IORING_ENTER_GETEVENTS

	opcodeRead    = 22 // IORING_OP_READ
	opcodeCommand = 46 // IORING_OP_URING_CMD

	mapRing = 0          // IORING_OFF_SQ_RING
	mapSQEs = 0x10000000 // IORING_OFF_SQES

	paramsLen = 120 // io_uring_params
	sqeSize   = 128
	cqeSize   = 16
	// commandOff is where a ublk command begins in an SQE.
	commandOff = 48
)

// refusedRing says what to do about err of uringSetup.
func refusedRing(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("make an io_uring: this process may not: look at sysctl kernel.io_uring_disabled, and in a container at its seccomp profile: %w", err)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("make an io_uring: the kernel has none, or a container's seccomp profile hides it: %w", err)
	}
	return fmt.Errorf("make an io_uring: %w", err)
}

// A ring is an io_uring with SQEs of 128 bytes. It is for one thread.
//
//	prepare … prepare ─► enter ─► kernel ─► next … next
type ring struct {
	fd   int
	maps [2][]byte // rings and SQEs

	sqHead, sqTail, cqHead, cqTail place32
	sqMask, cqMask                 uint32
	array                          uint32 // where in maps[0] the indexes of SQEs begin
	cqes                           uint32 // and the CQEs
	entries, completions           uint32

	tail   uint32 // of the SQEs that are prepared
	sent   uint32 // of those that the kernel has
	failed error
}

// newRing makes a ring with room for n SQEs that are not sent. With private it is for the calling
// thread alone, and the kernel does all its work for the ring inside enter.
func newRing(n uint32, private bool) (_ *ring, err error) {
	flags := uint32(setupSQE128 | setupSubmitAll)
	if private {
		flags |= setupSingleIssuer | setupDefer | setupCoop
	}
	var p [paramsLen]byte
	native.PutUint32(p[8:], flags)
	fd, err := uringSetup(n, &p)
	if err != nil {
		return nil, refusedRing(err)
	}
	r := &ring{fd: fd, entries: native.Uint32(p[0:]), completions: native.Uint32(p[4:])}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if native.Uint32(p[20:])&featureSingleMap == 0 {
		return nil, fmt.Errorf("make an io_uring: the kernel is too old: %w", unix.EOPNOTSUPP)
	}
	// The offsets of head, tail, mask and of the array: sq_off is at byte 40, cq_off at 80.
	r.array, r.cqes = native.Uint32(p[64:]), native.Uint32(p[100:])
	size := max(uint64(r.array)+4*uint64(r.entries), uint64(r.cqes)+cqeSize*uint64(r.completions))
	if r.maps[0], err = unix.Mmap(fd, mapRing, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err == nil {
		r.maps[1], err = unix.Mmap(fd, mapSQEs, int(r.entries)*sqeSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err != nil {
		return nil, fmt.Errorf("map an io_uring: %w", err)
	}
	m := r.maps[0]
	r.sqHead, r.sqTail = at(m, native.Uint32(p[40:])), at(m, native.Uint32(p[44:]))
	r.cqHead, r.cqTail = at(m, native.Uint32(p[80:])), at(m, native.Uint32(p[84:]))
	r.sqMask, r.cqMask = at(m, native.Uint32(p[48:])).load(), at(m, native.Uint32(p[88:])).load()
	if r.sqMask != r.entries-1 || r.cqMask != r.completions-1 {
		return nil, errors.New("make an io_uring: the kernel's masks and sizes differ")
	}
	for i := range r.entries { // SQE i is always in place i
		native.PutUint32(m[r.array+4*i:], i)
	}
	return r, nil
}

// prepare returns a cleared SQE for the next enter. The caller prepares no more than the ring has room
// for.
func (r *ring) prepare() []byte {
	if r.tail-r.sent == r.entries {
		panic("ublk: a ring has more requests than its owner has slots")
	}
	i := r.tail & r.sqMask
	r.tail++
	sqe := r.maps[1][i*sqeSize : (i+1)*sqeSize]
	clear(sqe)
	return sqe
}

// command prepares a command for the driver behind fd. It returns the command's 80 bytes.
func (r *ring) command(fd int, op uint32, user uint64) []byte {
	sqe := r.prepare()
	sqe[0] = opcodeCommand
	native.PutUint32(sqe[4:], uint32(fd))
	native.PutUint32(sqe[8:], op)
	native.PutUint64(sqe[32:], user)
	return sqe[commandOff:]
}

// read prepares a read of into, which is mapped memory, from fd.
func (r *ring) read(fd int, into []byte, user uint64) {
	sqe := r.prepare()
	sqe[0] = opcodeRead
	native.PutUint32(sqe[4:], uint32(fd))
	native.PutUint64(sqe[16:], address(into))
	native.PutUint32(sqe[24:], uint32(len(into)))
	native.PutUint64(sqe[32:], user)
}

// enter sends what is prepared. If wait is set it returns once there is a completion.
func (r *ring) enter(wait bool) error {
	if r.failed != nil {
		return r.failed
	}
	r.sqTail.store(r.tail)
	for {
		least := uint32(0)
		if wait && r.cqHead.load() == r.cqTail.load() {
			least = 1
		}
		n, err := uringEnter(r.fd, r.tail-r.sent, least, enterGetEvents)
		r.sent += n
		switch {
		case err == nil && r.sent == r.tail:
			return nil
		case err == nil, errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			// It was interrupted, or took a part.
			if r.sent == r.tail && least == 0 {
				return nil
			}
		default:
			r.failed = os.NewSyscallError("io_uring_enter", err)
			return r.failed
		}
	}
}

// next returns the next completion, if there is one.
func (r *ring) next() (user uint64, result int32, ok bool) {
	head := r.cqHead.load()
	if head == r.cqTail.load() {
		return 0, 0, false
	}
	at := r.cqes + cqeSize*(head&r.cqMask)
	cqe := r.maps[0][at : at+cqeSize]
	user, result = native.Uint64(cqe), int32(native.Uint32(cqe[8:]))
	r.cqHead.store(head + 1) // the kernel may write there now
	return user, result, true
}

// result sends the command that is prepared, waits for its end, and returns its error.
func (r *ring) result() error {
	for { // a signal may end a wait
		if err := r.enter(true); err != nil {
			return err
		}
		_, result, ok := r.next()
		switch {
		case !ok:
		case result < 0:
			return unix.Errno(-result)
		default:
			return nil
		}
	}
}

func (r *ring) close() error {
	var err error
	for i, m := range r.maps {
		if m != nil {
			err = errors.Join(err, unix.Munmap(m))
			r.maps[i] = nil
		}
	}
	return errors.Join(err, unix.Close(r.fd))
}
