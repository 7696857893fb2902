package nbd

import (
	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// terms are what a client and the server agreed on before transmission.
type terms struct {
	export  *export
	replies replies
	// status is the export whose allocation the client wants to know by
	// BLOCK_STATUS; it counts if it is the one that was chosen.
	status *export
}

// replies is the form of requests and replies.
type replies uint8

const (
	simple     replies = iota
	structured         // STRUCTURED_REPLY
	extended           // EXTENDED_HEADERS
)

// contextID is base:allocation in BLOCK_STATUS and in the replies to it.
const contextID = 1

// hasStatus reports whether the client may ask for BLOCK_STATUS.
func (t *terms) hasStatus() bool { return t.status != nil && t.status == t.export }

// offer is what a client that has agreed on t must know of export x.
func (t *terms) offer(x *export) wire.Export {
	// One barrier covers the writes of all connections (design §3.7). CACHE is a
	// hint that has no effect.
	f := wire.FlagHasFlags | wire.FlagSendFlush | wire.FlagSendFUA | wire.FlagCanMultiConn | wire.FlagSendCache
	if x.readOnly {
		f |= wire.FlagReadOnly
	} else {
		f |= wire.FlagSendTrim
		if x.info.CanZero {
			// A range travels instead of its bytes: always faster than a WRITE.
			f |= wire.FlagSendWriteZeroes | wire.FlagSendFastZero
		}
	}
	if t.replies != simple {
		f |= wire.FlagSendDF
	}
	if t.replies == extended && t.status == x {
		f |= wire.FlagBlockStatusPayload
	}
	return wire.Export{Size: x.info.Size, Flags: f}
}

// maxPayload is the longest payload of a request, in bytes, that is received and
// dropped where the request is refused; beyond it the client is disconnected. Up to
// 32 MiB a server should bear (proto.md, "Size constraints"); twice that is patience.
const maxPayload = 64 << 20

// rules say which requests are served on a connection: what its terms offer.
type rules struct {
	info     *backend.Info
	readOnly bool
	replies  replies
	known    [wire.CmdBlockStatus + 1]bool
	flags    [wire.CmdBlockStatus + 1]wire.CommandFlags // allowed, beside FUA
}

func (t *terms) rules() rules {
	r := rules{info: &t.export.info, readOnly: t.export.readOnly, replies: t.replies}
	for _, cmd := range []wire.Command{wire.CmdRead, wire.CmdWrite, wire.CmdFlush, wire.CmdTrim, wire.CmdCache} {
		r.known[cmd] = true
	}
	r.known[wire.CmdWriteZeroes] = t.export.info.CanZero
	r.flags[wire.CmdWriteZeroes] = wire.CmdFlagNoHole | wire.CmdFlagFastZero
	r.known[wire.CmdBlockStatus] = t.hasStatus()
	r.flags[wire.CmdBlockStatus] = wire.CmdFlagReqOne
	if t.replies != simple {
		r.flags[wire.CmdRead] = wire.CmdFlagDF
	}
	if t.replies == extended {
		r.flags[wire.CmdWrite] = wire.CmdFlagPayloadLen
	}
	return r
}

// validate decides whether q is served, and is the only place that does: nothing
// below checks bounds again. Its errors are plain, for a client may provoke them as
// fast as it can send. Which error a breach gets is said in proto.md, "Error
// values"; a length of zero, which is left open there, is invalid here.
func (r *rules) validate(q wire.Request) error {
	writes := q.Command == wire.CmdWrite || q.Command == wire.CmdWriteZeroes || q.Command == wire.CmdTrim
	switch {
	case writes && r.readOnly:
		return backend.ErrReadOnly
	case int(q.Command) >= len(r.known) || !r.known[q.Command]:
		return backend.ErrInvalid
	case q.Flags&^(r.flags[q.Command]|wire.CmdFlagFUA) != 0: // FUA is accepted on every command ("Command flags")
		return backend.ErrInvalid
	case q.Command == wire.CmdFlush:
		if q.Off != 0 || q.Len != 0 {
			return backend.ErrInvalid
		}
		return nil
	case q.Command == wire.CmdWrite && q.Len > uint64(r.info.MaxRequest):
		return backend.ErrTooLarge
	case q.Command == wire.CmdRead && q.Len > uint64(r.info.MaxRequest):
		if r.replies != simple {
			return backend.ErrOverflow // it could have come in pieces, but does not
		}
		return backend.ErrTooLarge
	case q.Len == 0:
		return backend.ErrInvalid
	case q.Off > r.info.Size || q.Len > r.info.Size-q.Off:
		if q.Command == wire.CmdWrite || q.Command == wire.CmdWriteZeroes {
			return backend.ErrNoSpace
		}
		return backend.ErrInvalid
	case (q.Off|q.Len)&uint64(r.info.BlockMin-1) != 0:
		return backend.ErrInvalid
	}
	return nil
}
