package remote

import (
	"fmt"

	"github.com/google/uuid"

	"pmnbd/persist/wire"
)

// A RefusedError means that the target answered, and does not give this initiator the region.
type RefusedError struct {
	// Region is the region's name.
	Region string
	said   wire.Refused
}

// A Reason is why a target refuses a region.
type Reason uint16

// The reasons, numbered as in the protocol. A target of a later release may know more.
const (
	// ReasonUnknownRegion: the target serves no region of that name.
	ReasonUnknownRegion Reason = iota + 1
	// ReasonBusy: another initiator holds the region, or the target is granting it. The region may
	// be free later.
	ReasonBusy
	// ReasonEpoch: another start was faster each time that this one asked. The region may be free
	// later.
	ReasonEpoch
	// ReasonFailed: the region failed. Only an operator of the target can clear that.
	ReasonFailed
	// ReasonSuspect: the target lost power without saving its memory. Only an operator of the target
	// can clear that.
	ReasonSuspect
	// ReasonVolatile: the region is of class volatile, and Config.AllowVolatile is not set.
	ReasonVolatile
	// ReasonNotSupported: the target does not implement the request.
	ReasonNotSupported
	// ReasonVersion: the releases at both ends are too far apart.
	ReasonVersion
	// ReasonInvalid: the target found that the request breaks the protocol.
	ReasonInvalid
	// ReasonNotOwner: this session is no longer the owner of the region.
	ReasonNotOwner
	// ReasonMethod: the method of Config.Method is not sound there.
	ReasonMethod
	// ReasonNotAllowed: the operator of the target allows the region to other initiators only.
	ReasonNotAllowed
	// ReasonAuth: the target does not know this initiator's key.
	ReasonAuth
	// ReasonRestored: the region was restored from a copy while this session was interrupted.
	ReasonRestored
	// ReasonLife: a later start of the mirror has opened the region.
	ReasonLife
	// ReasonMember: the region is a member of a mirror, and was opened as a single region.
	ReasonMember
	// ReasonNoMember: the region is no member of a mirror, and was opened as one.
	ReasonNoMember
	// ReasonClear: the operator of the target demands an encrypted connection for the region.
	ReasonClear
)

func (r Reason) String() string { return wire.Code(r).String() }

// Reason returns why the target refused.
func (e *RefusedError) Reason() Reason { return Reason(e.said.Code) }

// Held reports whether another initiator has the region. The region is free once that initiator
// ends. Config.Takeover takes the region away from it before.
func (e *RefusedError) Held() bool {
	return e.said.Code == wire.CodeBusy && e.said.Holder != [16]byte{} // else a grant is under way
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("the target refuses region %s: %v", e.Region, e.Reason())
	if e.Held() {
		s += fmt.Sprintf(", held by %s for %d more seconds, and longer while that lives", uuid.UUID(e.said.Holder), e.said.Seconds)
	}
	if e.said.Text != "" {
		s += ": " + e.said.Text
	}
	if e.said.Code == wire.CodeClear {
		s += "; use iwarps:// (Config.Provider)"
	}
	if e.said.Code == wire.CodeMember {
		s += "; name the targets of all its members, or open it alone with --degraded-single"
	}
	return s
}

// A BarrierError means that the target could not make writes durable. Nobody knows any more which
// writes are, so the device fails.
type BarrierError struct{ said wire.BarrierFail }

func (e *BarrierError) Error() string {
	return fmt.Sprintf("the target could not make barrier %d durable: %v: %s", e.said.Seq, e.said.Code, e.said.Text)
}
