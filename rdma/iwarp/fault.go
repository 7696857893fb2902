package iwarp

import (
	"runtime"
	"runtime/debug"

	"pmnbd/rdma"
)

// move copies src to dst, one of which is memory of r. That memory is a mapping, and
// touching it raises SIGBUS if its file has become shorter or the medium lost what it
// held. The signal would end the process. Here it is an error of the region instead: Go's
// runtime offers that choice to each goroutine.
func (r *region) move(dst, src []byte) (fault *rdma.FaultError) {
	defer r.caught(debug.SetPanicOnFault(true), &fault)
	copy(dst, src)
	return nil
}

// caught, deferred around a use of r's memory, puts the goroutine's choice back to was and
// turns a fault into a FaultError.
func (r *region) caught(was bool, fault **rdma.FaultError) {
	debug.SetPanicOnFault(was)
	switch p := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		*fault = &rdma.FaultError{Region: r.public, Addr: p.Addr()}
	default:
		panic(p)
	}
}

// placeLocked copies payload into memory of r. If that faults, it keeps the fault in rx.fault.
func (c *conn) placeLocked(r *region, off uint64, payload []byte) *violation {
	if c.rx.fault = r.move(r.mem[off:], payload); c.rx.fault != nil {
		return &badMemory
	}
	return nil
}
