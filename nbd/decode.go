package nbd

import (
	"encoding/binary"

	"pmnbd/nbd/wire"
)

// decode decodes the request at the beginning of b. The request has n bytes there, or 0 if
// it is not complete. A payload of payload bytes follows it.
func (c *conn) decode(b []byte) (req wire.Request, payload uint64, n int, err error) {
	if c.terms.replies == extended {
		return c.decodeExtended(b)
	}
	if len(b) < wire.RequestSize {
		return req, 0, 0, begins(b, wire.MagicRequest)
	}
	if req, err = wire.DecodeRequest(b); err != nil {
		return req, 0, 0, breach("%w", err)
	}
	if req.Command == wire.CmdWrite {
		payload = req.Len
	}
	return req, payload, wire.RequestSize, nil
}

// begins checks the magic number of a header that is not complete. A client that speaks
// another protocol may send less than a header, and wait for a reply.
func begins(b []byte, magic uint32) error {
	if len(b) >= 4 && binary.BigEndian.Uint32(b) != magic {
		return breach("request: %w", wire.ErrMagic)
	}
	return nil
}

// decodeExtended is decode for extended headers. A BLOCK_STATUS may have a payload that asks
// for the one context of this server; decodeExtended takes it as a part of the header and
// clears the flag. It leaves the flag of other requests with a payload, but for WRITE, so
// that they are invalid.
func (c *conn) decodeExtended(b []byte) (req wire.Request, payload uint64, n int, err error) {
	if len(b) < wire.ExtendedRequestSize {
		return req, 0, 0, begins(b, wire.MagicExtendedRequest)
	}
	if req, err = wire.DecodeExtendedRequest(b); err != nil {
		return req, 0, 0, breach("%w", err)
	}
	n = wire.ExtendedRequestSize
	if req.Command == wire.CmdWrite {
		return req, req.Len, n, nil // with or without the flag, because QEMU's client forgets it
	}
	if req.Flags&wire.CmdFlagPayloadLen == 0 {
		return req, 0, n, nil
	}
	if req.Command == wire.CmdBlockStatus && req.Len == wire.StatusPayloadSize {
		if len(b) < n+wire.StatusPayloadSize {
			return req, 0, 0, nil
		}
		if length, id, err := wire.DecodeStatusPayload(b[n:][:wire.StatusPayloadSize]); err == nil && id == contextID {
			req.Len = length
			req.Flags &^= wire.CmdFlagPayloadLen
			return req, 0, n + wire.StatusPayloadSize, nil
		}
	}
	return req, req.Len, n, nil
}
