package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"pmnbd/backend/remote"
	"pmnbd/nbd/wire"
)

// An Attachment is what the machine remembers of a device that we attached, from before
// CONNECT until the kernel has released it.
type Attachment struct {
	// Backend is the identifier that the kernel was given. The device is ours as long as
	// the kernel shows the same one.
	Backend string `json:"backend"`
	// Export, Region and Lineage say what is on the device. Region is the UUID of the region, or of the mirror.
	// pmnbd 0.1.0 saved that of a member's region for a mirror.
	Export  string    `json:"export"`
	Region  uuid.UUID `json:"region_uuid"`
	Lineage uuid.UUID `json:"lineage"`
	// Size and BlockSize, in bytes, and Flags are what the kernel was told. It takes no
	// other flags later, and users of the device do not expect another size.
	Size      uint64                 `json:"size_bytes"`
	BlockSize uint64                 `json:"block_size_bytes"`
	Flags     wire.TransmissionFlags `json:"flags"`

	Connections int `json:"connections"`
	// Detached means that a detach is under way: the device gets no new connections.
	Detached bool `json:"detached"`
}

// String describes the attachment in the words of pmnbd attach.
func (a *Attachment) String() string {
	return fmt.Sprintf("%s: %d bytes, connections: %d", a.Export, a.Size, a.Connections)
}

// errNotFollowing is the error of a server that must not have the device. The kernel sends
// unanswered requests again, so at such a server it would silently lose the writes that were
// answered but not flushed (design §6.4).
var errNotFollowing = errors.New("not the server that the device was attached to, nor one that goes on where it ended")

// follows checks that a server with session s goes on where the device's server ended.
func (a *Attachment) follows(s *remote.Snapshot) error {
	switch {
	case !a.isOn(s):
		return fmt.Errorf("%w: region or mirror %v became region or mirror %v", errNotFollowing, a.Region, s.DeviceUUID())
	case s.Lineage == uuid.Nil || s.Lineage != a.Lineage:
		return fmt.Errorf("%w: acknowledged writes may have been lost, or another initiator may have had the region (lineage %v became %v)", errNotFollowing, a.Lineage, s.Lineage)
	}
	return nil
}

// isOn reports whether the region or the mirror of session s is the one that the device was attached to.
func (a *Attachment) isOn(s *remote.Snapshot) bool {
	switch {
	case a.Region == s.DeviceUUID():
		return true
	case s.Mirror == nil:
		return false
	}
	// A pmnbd 0.1.0 that serves the mirror does not list Regions.
	return a.Region == s.RegionUUID || slices.Contains(s.Mirror.Regions, a.Region)
}

// fits checks that a server that offers e and sizes can take the device's requests, of up to
// largest bytes. That limit cannot be lowered now: the kernel does not split the requests
// that wait to be sent again.
func (a *Attachment) fits(e wire.Export, sizes wire.BlockSizes, largest uint64) error {
	readOnly := func(f wire.TransmissionFlags) bool { return f&wire.FlagReadOnly != 0 }
	switch {
	case e.Size != a.Size:
		return fmt.Errorf("the server has %d bytes, the device %d", e.Size, a.Size)
	case readOnly(e.Flags) != readOnly(a.Flags):
		return fmt.Errorf("the server was made read-only: %v, the device: %v", readOnly(e.Flags), readOnly(a.Flags))
	case a.Flags&^e.Flags != 0:
		return fmt.Errorf("the server does not offer all that the device was told: flags %#x are missing", uint16(a.Flags&^e.Flags))
	case uint64(sizes.Min) > a.BlockSize:
		return fmt.Errorf("the server takes blocks of %d bytes, the device has %d", sizes.Min, a.BlockSize)
	case uint64(sizes.MaxPayload) < largest:
		return fmt.Errorf("the server takes requests of %d bytes, the device sends up to %d: serve with a larger --window", sizes.MaxPayload, largest)
	}
	return nil
}
