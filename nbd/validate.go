package nbd

import (
	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// maxPayload is the longest payload of a WRITE, in bytes, that is received and
// dropped where the request is refused; beyond it the client is disconnected. Up to
// 32 MiB a server should bear (proto.md, "Size constraints"); twice that is patience.
const maxPayload = 64 << 20

// validate decides whether r is served, and is the only place that does: nothing
// below checks bounds again. Its errors are plain, for a client may provoke them as
// fast as it can send. Which error a breach gets is said in proto.md, "Error
// values"; a length of zero, which is left open there, is invalid here.
func validate(r wire.Request, in *backend.Info) error {
	// FUA is accepted on every command, NO_HOLE on WRITE_ZEROES ("Command flags");
	// FAST_ZERO and the others are not offered.
	allowed := wire.CmdFlagFUA
	if r.Command == wire.CmdWriteZeroes {
		allowed |= wire.CmdFlagNoHole
	}
	if r.Flags&^allowed != 0 {
		return backend.ErrInvalid
	}
	off, length := r.Off, uint64(r.Len)
	switch r.Command {
	case wire.CmdFlush:
		if off != 0 || length != 0 {
			return backend.ErrInvalid
		}
		return nil
	case wire.CmdRead, wire.CmdWrite:
		if length > uint64(in.MaxRequest) {
			return backend.ErrTooLarge
		}
	case wire.CmdWriteZeroes:
		if !in.CanZero {
			return backend.ErrInvalid
		}
	case wire.CmdTrim:
	default:
		return backend.ErrInvalid
	}
	switch {
	case length == 0:
		return backend.ErrInvalid
	case off > in.Size || length > in.Size-off:
		if r.Command == wire.CmdWrite || r.Command == wire.CmdWriteZeroes {
			return backend.ErrNoSpace
		}
		return backend.ErrInvalid
	case (off|length)&uint64(in.BlockMin-1) != 0:
		return backend.ErrInvalid
	}
	return nil
}
