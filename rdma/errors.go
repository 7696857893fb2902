package rdma

import (
	"bytes"
	"errors"
	"fmt"
)

// Errors of connections. Providers wrap them with what was being done; callers
// decide with errors.Is.
var (
	// ErrLost: the connection broke, was never made, or the peer violated the protocol.
	ErrLost = errors.New("connection lost")
	// ErrDevice: the RDMA device failed or was removed. ErrLost goes with it.
	ErrDevice = errors.New("RDMA device gone")
	// ErrRemoteAccess: the peer refused a key, a bound or an access right.
	ErrRemoteAccess = errors.New("remote access error")
	// ErrRemoteOp: the peer could not carry out an operation, a Send that met no
	// receive or a receive that is too short among them.
	ErrRemoteOp = errors.New("remote operation error")
	// ErrLocalAccess: a request named local memory wrongly. It is our bug.
	ErrLocalAccess = errors.New("local access error")
	// ErrTimeout: a deadline passed while connecting.
	ErrTimeout = errors.New("timed out")
	// ErrClosed: the object was closed by its owner.
	ErrClosed = errors.New("closed")
	// ErrNotSupported: the provider or the device lacks what was asked for.
	ErrNotSupported = errors.New("not supported")
)

// A FaultError tells that the CPU could not touch registered memory (SIGBUS): a file
// that became shorter, or memory that lost what it held. It fails the connection
// whose request needed the memory, and that one only; the peer sees ErrRemoteOp, or
// ErrLost if it hears no more. Providers that place with CPU stores have it.
type FaultError struct {
	Region *MemoryRegion
	// Addr is the address that could not be touched.
	Addr uintptr
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("fault (SIGBUS) on memory at %#x: its file became shorter, or the medium lost what it held", e.Addr)
}

// A RejectError is the answer of a peer that refused to connect.
type RejectError struct {
	// PrivateData is the peer's reason, in its own words. It is hostile.
	PrivateData []byte
}

func (e *RejectError) Error() string {
	// Adapters pad it with zeroes.
	why := bytes.TrimRight(e.PrivateData[:min(len(e.PrivateData), MaxPrivateData)], "\x00")
	if len(why) == 0 {
		return "connection refused by the peer"
	}
	return fmt.Sprintf("connection refused by the peer: %q", why)
}
