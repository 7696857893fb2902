package rdma

import (
	"bytes"
	"errors"
	"fmt"
)

// Errors of connections. Providers wrap them and say what they were doing; callers
// decide with errors.Is.
var (
	// ErrLost: the connection broke or was never made, or the peer broke the protocol.
	ErrLost = errors.New("connection lost")
	// ErrDevice: the RDMA device failed or was removed. Such an error is ErrLost, too. Of two
	// ends on one device the second may hear first that the other has left: that is ErrLost alone.
	ErrDevice = errors.New("RDMA device gone")
	// ErrRemoteAccess: the peer refused a key, a bound or an access right.
	ErrRemoteAccess = errors.New("remote access error")
	// ErrRemoteOp: the peer could not carry out an operation. A Send that met no receive,
	// or one too short for it, is an example.
	ErrRemoteOp = errors.New("remote operation error")
	// ErrLocalAccess: a request named local memory wrongly. It is a bug of the caller.
	ErrLocalAccess = errors.New("local access error")
	// ErrTimeout: the deadline for connecting passed.
	ErrTimeout = errors.New("timed out")
	// ErrClosed: this end closed the object.
	ErrClosed = errors.New("closed")
	// ErrNotSupported: the provider or the device cannot do what was asked.
	ErrNotSupported = errors.New("not supported")
)

// A FaultError means that the CPU could not touch registered memory (SIGBUS), because the
// mapped file became shorter or the medium lost what it held. It fails only the
// connection whose request needed the memory. The peer sees ErrRemoteOp, or ErrLost if it
// hears no more. Only providers that place with CPU stores return it.
type FaultError struct {
	Region *MemoryRegion
	// Addr is the address that could not be touched.
	Addr uintptr
	// Reading: the memory was being read for the peer. Otherwise it was being written.
	Reading bool
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("fault (SIGBUS) on memory at %#x: its file became shorter, or the medium lost what it held", e.Addr)
}

// A RejectError means that the peer refused the connection.
type RejectError struct {
	// PrivateData is the peer's reason in its own words, as it came: the peer may be
	// hostile.
	PrivateData []byte
}

func (e *RejectError) Error() string {
	// Adapters pad the data with zeroes.
	why := bytes.TrimRight(e.PrivateData[:min(len(e.PrivateData), MaxPrivateData)], "\x00")
	if len(why) == 0 {
		return "connection refused by the peer"
	}
	return fmt.Sprintf("connection refused by the peer: %q", why)
}
