package ublk

import (
	"errors"

	"pmnbd/backend"
)

// rules are the bounds of requests to a device, in bytes.
type rules struct {
	size     uint64
	maxIO    uint64
	maxZero  uint64 // 0: the device serves no WRITE_ZEROES
	readOnly bool
}

// parse makes op of what the kernel asks for. It is the only place that looks at a descriptor.
// What it refuses has op.Err set and must not reach the device.
func (r *rules) parse(d descriptor, op *backend.Op) {
	op.FUA, op.Off, op.Len, op.Err = false, 0, uint64(d.sectors)<<sectorShift, nil
	most, changes := r.maxIO, true
	switch d.opFlags & opMask {
	case opRead:
		op.Cmd, changes = backend.Read, false
	case opWrite:
		op.Cmd, op.FUA = backend.Write, d.opFlags&flagFUA != 0
	case opWriteZeroes:
		op.Cmd, op.FUA, most = backend.WriteZeroes, d.opFlags&flagFUA != 0, r.maxZero
		if most == 0 {
			op.Err = backend.ErrNotSupported
		}
	case opDiscard:
		op.Cmd, most = backend.Trim, maxDiscard<<sectorShift
	case opFlush:
		op.Cmd, op.Len = backend.Flush, 0 // the kernel sends no range, and none would count
		return
	default:
		op.Cmd, op.Err = backend.Flush, backend.ErrNotSupported // a command without a payload
		return
	}
	switch {
	case op.Err != nil:
	case changes && r.readOnly:
		op.Err = backend.ErrReadOnly
	case op.Len == 0:
		op.Err = backend.ErrInvalid
	case op.Len > most:
		op.Err = backend.ErrTooLarge
	case op.Len > r.size || d.start > (r.size-op.Len)>>sectorShift:
		op.Err = backend.ErrNoSpace
	default:
		op.Off = d.start << sectorShift
	}
}

// errLeft is the error of a request that this process did not execute and leaves to the next
// one.
var errLeft = errors.New("left to the next server")

// left reports whether the kernel must not hear of the end of op: it gives such a request to the
// next server of the device.
func left(op *backend.Op) bool {
	return errors.Is(op.Err, errLeft) || errors.Is(op.Err, backend.ErrClosed)
}

// result returns what the kernel hears of op: the bytes of a READ or WRITE, or a negative error
// number.
func result(op *backend.Op) int32 {
	switch {
	case op.Err != nil:
		return -int32(backend.ErrnoOf(op.Err)) // NBD's numbers are those of Linux
	case op.Cmd == backend.Read || op.Cmd == backend.Write:
		return int32(op.Len) // at most maxRequest
	}
	return 0
}

// release drops the references to the spans of op.
func release(op *backend.Op) {
	for _, s := range op.Data {
		s.Chunk.Release()
	}
	op.Data = op.Data[:0]
}
