// Package persist defines the words that both ends of a session share. Other programs need
// its Method for remote.Config, which is stable; the rest is only for this module. A Class says what a region's memory is,
// a Method how a barrier makes writes durable, a Reason why a method is not sound, and an
// Owner who may write. docs/durability.md explains them.
//
// It imports nothing of this module, so every package can use it.
package persist

import "fmt"

// A Class says what a region's memory is.
type Class uint8

const (
	// ClassVolatile loses its contents with the power or the process: tmpfs, memfd, DRAM.
	// A FLUSH then only means that the target can see the writes.
	ClassVolatile Class = iota + 1
	// ClassFile is a file in the page cache, durable after fdatasync.
	ClassFile
	// ClassPMem is persistent memory: device-dax, or MAP_SYNC on a DAX filesystem.
	ClassPMem
	// ClassProtected is DRAM that the target's host saves to a disk before it loses its
	// power: an operator declares it, for a host with a UPS.
	ClassProtected
)

// Known reports whether c is one of the classes above.
func (c Class) Known() bool { return ClassVolatile <= c && c <= ClassProtected }

func (c Class) String() string {
	switch c {
	case ClassVolatile:
		return "volatile"
	case ClassFile:
		return "file"
	case ClassPMem:
		return "pmem"
	case ClassProtected:
		return "protected"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// A Method says how a barrier makes the writes ahead of it durable. The zero Method means
// none.
type Method uint8

const (
	// MethodGPSPM: a Send with the written ranges. The target's CPU makes them durable
	// and acknowledges.
	MethodGPSPM Method = iota + 1
	// MethodAPM: an RDMA Read behind the Writes.
	MethodAPM
	// MethodFlush: native RDMA FLUSHes behind the Writes.
	MethodFlush
)

// BestFirst lists every method. Those that need no CPU of the target come first.
var BestFirst = [...]Method{MethodFlush, MethodAPM, MethodGPSPM}

func (m Method) String() string {
	switch m {
	case 0:
		return ""
	case MethodGPSPM:
		return "gpspm"
	case MethodAPM:
		return "apm"
	case MethodFlush:
		return "flush"
	}
	return fmt.Sprintf("method %d", uint8(m))
}

// Set makes *m the method of that name. Set, String and Type make a *Method the value of
// a command-line flag.
func (m *Method) Set(name string) error {
	for _, x := range BestFirst {
		if x.String() == name {
			*m = x
			return nil
		}
	}
	return fmt.Errorf("unknown method %q: use gpspm, apm or flush", name)
}

// Type names the kind of value in a command's help.
func (*Method) Type() string { return "method" }

// Methods is a set of methods: bit 1<<m stands for method m.
type Methods uint8

// With returns the set with m added.
func (s Methods) With(m Method) Methods { return s | 1<<m }

// Has reports whether m is in the set.
func (s Methods) Has(m Method) bool { return m < 8 && s&(1<<m) != 0 }

// A Reason says why a method cannot make a session's writes durable.
type Reason uint8

const (
	// ReasonSound: it can.
	ReasonSound Reason = iota
	// ReasonClass: only classes pmem and protected keep data as soon as the adapter has
	// placed them. This region needs a CPU or a sync of the target.
	ReasonClass
	// ReasonDevice: the target's device has no native persistent FLUSH, or could not
	// register the region with it.
	ReasonDevice
	// ReasonCaches: what the adapter places may stay in CPU caches, which lose it in a
	// power failure, and the operator has not declared otherwise.
	ReasonCaches
	// ReasonStores: the adapter places with CPU stores, so a declared
	// direct-write-to-pmem does not count, and the caches are not persistent.
	ReasonStores
	// ReasonRelaxed: the platform forces relaxed ordering on PCIe, and a Read does not
	// push relaxed writes.
	ReasonRelaxed
)

func (r Reason) String() string {
	switch r {
	case ReasonSound:
		return "sound"
	case ReasonClass:
		return "only class pmem or protected is durable without the target's CPU"
	case ReasonDevice:
		return "the target's device lacks native persistent FLUSH"
	case ReasonCaches:
		return "the target's CPU caches are not persistent, and direct-write-to-pmem is not declared"
	case ReasonStores:
		return "the target's adapter places with CPU stores, and the CPU caches are not persistent"
	case ReasonRelaxed:
		return "the target's platform forces PCIe relaxed ordering"
	}
	return "unknown reason"
}

// A Range is a run of bytes of a region's data extent.
type Range struct{ Off, Len uint64 }

// End returns where the range ends. It must not overflow.
func (g Range) End() uint64 { return g.Off + g.Len }

// An Owner names one run of an initiator, which alone may write. It is the initiator's id
// and a nonce that each run draws at its start. The zero Owner is nobody.
type Owner struct{ ID, Nonce [16]byte }
