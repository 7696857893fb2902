package iwarp

import (
	"runtime"
	"runtime/debug"

	"pmnbd/rdma"
)

// move copies src to dst, one of which is memory of r: a mapping, perhaps of a file
// that has become shorter or of memory that lost what it held. Touching that is
// SIGBUS, which here is an error of the region and not the end of the process.
// Go's runtime knows the choice per goroutine; whoever moves makes it.
func (r *region) move(dst, src []byte) (fault *rdma.FaultError) {
	defer r.caught(debug.SetPanicOnFault(true), &fault)
	copy(dst, src)
	return nil
}

// caught is deferred by who touches r's memory.
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

// place puts what arrived into memory of r. A fault is kept for violated.
func (c *conn) place(r *region, off uint64, payload []byte) *violation {
	if c.rx.fault = r.move(r.mem[off:], payload); c.rx.fault != nil {
		return &badMemory
	}
	return nil
}
