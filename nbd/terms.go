package nbd

import (
	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// terms are what a client and the server have agreed on before transmission.
type terms struct {
	export  *export
	replies replies
	// status is the export for which the client has set base:allocation. The client may
	// ask for BLOCK_STATUS if that is also the export that it has chosen.
	status *export
}

// replies is the form of replies, and with extended also of requests.
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

// offer returns what the server tells a client about export x.
func (t *terms) offer(x *export) wire.Export {
	// CanMultiConn: one barrier covers the writes of all connections (design §3.7).
	// SendCache: CACHE is a hint, which the server accepts and ignores.
	f := wire.FlagHasFlags | wire.FlagSendFlush | wire.FlagSendFUA | wire.FlagCanMultiConn | wire.FlagSendCache
	if x.readOnly {
		f |= wire.FlagReadOnly
	} else {
		f |= wire.FlagSendTrim
		if x.info.CanZero {
			// A zero travels as a range, so it is always faster than a WRITE.
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

// maxPayload is the longest payload in bytes that the server receives, if only to drop it
// because it refuses the request. The server disconnects a client that announces a longer
// one. A server should take 32 MiB (proto.md, "Size constraints"); this is twice that.
const maxPayload = 64 << 20

// rules say which requests the server accepts on a connection.
type rules struct {
	info     *backend.Info
	readOnly bool
	replies  replies
	known    [wire.CmdBlockStatus + 1]bool
	flags    [wire.CmdBlockStatus + 1]wire.CommandFlags // allowed besides FUA
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

// validate decides whether the server executes q. It is the only function that does: the
// code below checks no bounds again. It allocates nothing, because a client can provoke
// its errors as fast as it can send. proto.md, "Error values", says which error is for
// which mistake. It leaves a length of zero open, which is invalid here.
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
			return backend.ErrOverflow // structured replies could come in pieces; this server sends one
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
