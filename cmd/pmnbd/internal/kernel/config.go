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

// Each socket is an item of attrSockets. An item has one attribute.
const (
	attrSocketItem = 1
	attrSocketFD   = 1
)

// A Config has all settings that the kernel has for a device. Connect sends every one of
// them, because the kernel would otherwise keep the setting of the last device with the same
// index.
type Config struct {
	Index uint32
	Size  uint64 // bytes
	// BlockSize is the logical and the physical block size in bytes: a power of two, at
	// least 512.
	BlockSize uint64
	Flags     wire.TransmissionFlags
	// Timeout is how long a request may take before the kernel gives up its connection,
	// in whole seconds. With 0 the kernel never gives up an only connection, and gives up
	// one of several after 30 s. It sends the requests of a dead connection again when
	// their Timeout has passed, or 30 s if that is 0.
	Timeout time.Duration
	// DeadConnTimeout is how long requests wait for a Reconfigure if no connection is
	// left, in whole seconds. Then they fail, and the device with them.
	DeadConnTimeout time.Duration
	// Backend identifies whoever attaches the device. sysfs shows it.
	Backend string
	// Sockets are connections in transmission. The kernel takes its own references.
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
	// No flags: the index outlives the device, and the last close does not detach it.
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
