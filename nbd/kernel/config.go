package kernel

import (
	"os"
	"time"

	"github.com/mdlayher/netlink"

	"pmnbd/nbd/wire"
)

// The attributes of CONNECT, RECONFIGURE and DISCONNECT.
const (
	attrIndex           = 1
	attrSize            = 2
	attrBlockSize       = 3
	attrTimeout         = 4
	attrServerFlags     = 5
	attrClientFlags     = 6
	attrSockets         = 7
	attrDeadConnTimeout = 8
	attrBackend         = 10
)

// Each socket is an item of attrSockets with one attribute of its own.
const (
	attrSocketItem = 1
	attrSocketFD   = 1
)

// A Config is a device: all that the kernel can be told of it. Nothing is left to its
// defaults, which would be those of who had the index before.
type Config struct {
	Index uint32
	Size  uint64 // bytes
	// BlockSize is the logical and the physical one, a power of two from 512, in bytes.
	BlockSize uint64
	Flags     wire.TransmissionFlags
	// Timeout is how long a request may take before the kernel gives its connection
	// up, in whole seconds. With 0 a single connection is never given up, and several
	// after 30 s each. Requests of a connection that died are sent again when their
	// Timeout, or with 0 30 s, have passed.
	Timeout time.Duration
	// DeadConnTimeout is how long requests wait for a Reconfigure when no connection
	// is left, before they fail and the device with them, in whole seconds.
	DeadConnTimeout time.Duration
	// Backend says whose the device is; sysfs shows it.
	Backend string
	// Sockets are connections in transmission. The kernel takes references of its own.
	Sockets []*os.File
}

// encode makes the attributes.
func (c *Config) encode() ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	e.Uint32(attrIndex, c.Index)
	e.Uint64(attrSize, c.Size)
	e.Uint64(attrBlockSize, c.BlockSize)
	e.Uint64(attrServerFlags, uint64(c.Flags))
	e.Uint64(attrTimeout, uint64(c.Timeout/time.Second))
	e.Uint64(attrDeadConnTimeout, uint64(c.DeadConnTimeout/time.Second))
	// None: the index outlives the device, and the last close does not end it.
	e.Uint64(attrClientFlags, 0)
	e.String(attrBackend, c.Backend)
	e.Nested(attrSockets, func(e *netlink.AttributeEncoder) error {
		for _, f := range c.Sockets {
			e.Nested(attrSocketItem, func(e *netlink.AttributeEncoder) error {
				e.Uint32(attrSocketFD, uint32(f.Fd()))
				return nil
			})
		}
		return nil
	})
	return e.Encode()
}
