// Package backend defines the contract between protocol servers and block devices.
//
// A Device executes batches of Ops. A client of a device, such as the NBD server in
// package nbd, receives a request, makes an Op of it, and calls Submit. When the op is
// done the device hands it back to the op's Sink. All offsets and lengths are in bytes.
//
// Data is never copied between the two. It lies in the device's Arenas: mapped memory
// in chunks of ChunkSize, each with a reference count. A server receives a WRITE's
// payload into chunks of the write arena, and the device sends it from there; the data
// of a READ goes into chunks of the read arena, and from there to the client.
//
// A device that keeps acknowledged writes until they are durable has a window, and the
// window is bounded. So a client takes room for a write before it submits it:
//
//	room := backend.NewAdmission(dev.Arenas())
//	...
//	if err := room.Admit(op, stop); err != nil { // waits for room
//		return err
//	}
//	dev.Submit([]*backend.Op{op})
//	room.Unpin()
//	// reply to the requests that Submit has completed, then
//	dev.Post()
//
// Package gonbd wraps all of this in io.ReaderAt and io.WriterAt. Use it if you have
// the data elsewhere and one copy does not matter.
//
// Op.Err wraps one of the errors of this package if the device refused or failed the
// op. ErrnoOf maps errors to NBD error numbers.
//
// Package backend/backendtest has the conformance tests for devices.
//
// This package is stable: later releases keep what a program can use of it.
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
	// Trim says that nobody needs the contents of a range. It changes nothing. It fails
	// if the device has failed.
	Trim
	// Flush makes every write durable that was completed before the Flush was submitted.
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

// An Op is one request. It belongs to the device from Submit until Sink.Complete, and
// to its Sink at all other times.
type Op struct {
	Cmd Command
	// FUA makes a Write or WriteZeroes complete only when it is durable.
	FUA bool
	// Off and Len are in bytes. The caller of Submit checks that Off+Len lies within
	// Info.Size; devices do not check it again. Len is 0 for a Flush and only there.
	Off, Len uint64
	// Data is the payload of a Write, or where a Read puts what it reads. The spans
	// are Len bytes in total. The Sink holds a reference to each; a device that needs
	// a span after Complete retains it. A client admits a Write or WriteZeroes before
	// it submits it, and leaves it unchanged until Submit returns (Admission).
	Data []Span
	// Err is the result. The device sets it before it calls Complete.
	Err error
	// Sink takes the op back when it is done.
	Sink Sink
	// Tag is for the Sink, which finds its request by it.
	Tag uint32
	// Parts is for the device: it counts the parts of the op that are not done.
	Parts atomic.Int32
}

// A Sink takes completed ops back. The NBD server's is the reply queue of a connection.
type Sink interface {
	// Complete takes op back and queues the reply to it. It does not block. A device
	// calls it inside Submit, or later from goroutines of its own, or from both at the
	// same time.
	Complete(op *Op)
	// Kick writes the queued replies out, without blocking. A device that has called
	// Complete outside Submit calls Kick afterwards, once for any number of ops.
	Kick()
	// Gone reports whether the client has hung up. A device asks while it holds the
	// lock that orders the ops of all connections, and drops the ops of a client that
	// is gone with ErrGone. Such a client may have sent them again on another
	// connection, and the old write must not land after a newer one (design §6.5).
	Gone() bool
}

// A Device executes batches of ops. All methods but Close may be called from
// several goroutines at the same time.
type Device interface {
	// Info describes the device. It always returns the same.
	Info() Info
	// Arenas returns the memory in which the spans of every Op lie.
	Arenas() *Arenas
	// Submit enqueues ops in order. All of them have the same Sink. It completes those
	// that it can complete at once, such as acknowledged writes. It does not block and
	// does not keep the slice. The caller then replies to the completed requests (Kick)
	// and calls Post.
	Submit(ops []*Op)
	// Post hands the enqueued ops to the transport. The caller replies before it calls
	// Post, so that the client already works on its next request meanwhile.
	Post()
	// Close makes everything durable that was written, and ends the device. It
	// completes outstanding ops, with an error if it must, before it returns. It
	// returns an error if data may be lost. Later ops fail with ErrClosed.
	Close() error
}

// Info describes a device.
type Info struct {
	// Size is in bytes.
	Size uint64
	// BlockMin and BlockPreferred are in bytes, powers of two.
	BlockMin, BlockPreferred uint32
	// MaxRequest is the largest payload of one request, in bytes.
	MaxRequest uint32
	// Description is one line for people. It says what FLUSH means on this device.
	Description string
	// CanZero is set if the device serves WriteZeroes.
	CanZero bool
}
