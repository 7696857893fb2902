// Package persist holds the vocabulary of durability: what a region's memory is
// (Class), how its writes are made durable (Method), and which methods are sound
// on which class, with the reason (design §3).
//
// It exists so that both ends of a session decide by one table. It also owns the
// initiator's half of a barrier. Its children are mechanisms: wire (control
// messages), flush (cache lines), region (memory and superblock), target (the
// other half of a session). It imports rdma and persist/wire.
package persist

import (
	"fmt"

	"pmnbd/persist/wire"
)

// A Class says what a region's memory is.
type Class uint8

const (
	// ClassVolatile loses its contents with the power or the process: tmpfs,
	// memfd, DRAM. FLUSH on it means "visible at the target".
	ClassVolatile Class = iota + 1
	// ClassFile is a file in the page cache, durable after fdatasync.
	ClassFile
	// ClassPMem is persistent memory: device-dax, or MAP_SYNC on a DAX filesystem.
	ClassPMem
)

func (c Class) String() string {
	switch c {
	case ClassVolatile:
		return "volatile"
	case ClassFile:
		return "file"
	case ClassPMem:
		return "pmem"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// A Method says how a barrier makes the writes before it durable.
type Method uint8

const (
	// MethodGPSPM: a Send with the written ranges; the target's CPU flushes them
	// and replies.
	MethodGPSPM Method = iota + 1
	// MethodAPM: an RDMA Read behind the Writes.
	MethodAPM
	// MethodFlush: the native RDMA FLUSH.
	MethodFlush
)

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

// Set makes *m the method of that name. With String and Type it is a
// flag's value.
func (m *Method) Set(name string) error {
	for _, x := range Methods {
		if x.String() == name {
			*m = x
			return nil
		}
	}
	return fmt.Errorf("unknown method %q: use gpspm, apm or flush", name)
}

// Type is what a flag calls its values.
func (*Method) Type() string { return "method" }

// A Range is a run of bytes of a region's data extent.
type Range = wire.Range
