// Package backend is the contract between protocol servers and block devices:
// what a request is, who owns its memory, and how batches of requests go in and
// out.
//
// It exists so that nbd knows nothing of RDMA and the remote device nothing of
// NBD. It owns Device, Op and Sink; the arenas whose spans carry all data, so
// that a payload is received once and never copied in user space (design §4);
// the window's index; and the one mapping of errors to NBD error numbers. It
// imports nothing of ours. Devices are its children, and backend/backendtest is
// the suite that each of them passes.
package backend

import "sync/atomic"

// Command is what an Op asks for.
type Command uint8

const (
	// Read fills Op.Data.
	Read Command = iota
	// Write stores Op.Data.
	Write
	// WriteZeroes stores zeroes. Nothing is deallocated.
	WriteZeroes
	// Trim says that nobody needs the contents of a range. It changes nothing, and
	// fails where a write would because the device has failed.
	Trim
	// Flush makes durable every write that was completed before it was submitted.
	Flush
)

func (c Command) String() string {
	switch c {
	case Read:
		return "READ"
	case Write:
		return "WRITE"
	case WriteZeroes:
		return "WRITE_ZEROES"
	case Trim:
		return "TRIM"
	case Flush:
		return "FLUSH"
	}
	return "unknown command"
}

// An Op is one request. Its Sink's owner holds it until Submit, the device from
// then until Sink.Complete.
type Op struct {
	Cmd Command
	// FUA: complete only when this write is durable.
	FUA bool
	// Off and Len are in bytes; Off+Len lies within Info.Size: who makes the Op
	// has checked that, and nobody checks again. All but Flush: Len > 0.
	Off, Len uint64
	// Data is the payload of a Write, and where a Read puts its. Its spans are
	// Len bytes together. The Sink's owner holds a reference to each; a device
	// that needs them beyond Complete retains them. A Write or WriteZeroes is admitted
	// before it is submitted, and stays as it is until Submit returns (Admission).
	Data []Span
	// Err is set before Complete.
	Err error
	// Sink takes the op when it is done.
	Sink Sink
	// Tag is the Sink's own, to find its request again.
	Tag uint32
	// Parts is the device's own: parts outstanding.
	Parts atomic.Int32
}

// A Sink takes completed ops: the reply queue of a connection.
type Sink interface {
	// Complete queues the reply to op and takes the op back. It does not block.
	// It may be called inside Submit, and by other goroutines at the same time.
	Complete(op *Op)
	// Kick writes out, without blocking, what Complete queued. Whoever called
	// Complete outside Submit calls it, once for a run of ops.
	Kick()
	// Gone reports whether the client has hung up. A device asks it while it holds
	// the lock that fixes an op's place among those of other connections, and
	// drops the ops of a client that is gone: what such a client left unanswered
	// it may have sent again elsewhere, and an old write must not land behind a
	// newer one (design §6).
	Gone() bool
}

// A Device executes batches of ops. All methods but Close may be called from
// several goroutines.
type Device interface {
	Info() Info
	// Arenas is where the spans of every Op lie.
	Arenas() *Arenas
	// Submit enqueues ops, which are of one Sink, in order, and completes those
	// that can be completed at once (acknowledged writes). It does not block and
	// does not keep the slice. The caller then replies (Kick) and calls Post.
	Submit(ops []*Op)
	// Post hands what was enqueued to the transport. The caller replies between
	// Submit and Post, so that the client's turn-around overlaps with it.
	Post()
	// Close makes durable what was written, and ends the device. Ops still
	// outstanding are completed, with an error if need be, before it returns.
	// It returns an error if data may be lost.
	Close() error
}

// Info describes a device. It does not change.
type Info struct {
	// Size is in bytes.
	Size uint64
	// BlockMin and BlockPreferred are in bytes, powers of two.
	BlockMin, BlockPreferred uint32
	// MaxRequest is the largest payload of one request, in bytes.
	MaxRequest uint32
	// Description is one line for people; it says what FLUSH means here.
	Description string
	// CanZero: WriteZeroes is served.
	CanZero bool
}
