package ublk

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
)

// parsed is what parse makes of a descriptor.
type parsed struct {
	Cmd      backend.Command
	Off, Len uint64
	FUA      bool
	Err      error
}

func TestParse(t *testing.T) {
	r := rules{size: 1 << 20, maxIO: 64 << 10, maxZero: 128 << 10}
	readOnly, noZero := r, r
	readOnly.readOnly, noZero.maxZero = true, 0
	for name, tt := range map[string]struct {
		rules rules
		desc  descriptor
		want  parsed
	}{
		"read":                    {r, descriptor{opRead, 1, 2}, parsed{Cmd: backend.Read, Off: 1024, Len: 512}},
		"read, FUA means nothing": {r, descriptor{opRead | flagFUA, 1, 2}, parsed{Cmd: backend.Read, Off: 1024, Len: 512}},
		"write":                   {r, descriptor{opWrite, 8, 0}, parsed{Cmd: backend.Write, Len: 4096}},
		"write, FUA":              {r, descriptor{opWrite | flagFUA, 8, 0}, parsed{Cmd: backend.Write, Len: 4096, FUA: true}},
		"hints":                   {r, descriptor{opWrite | 1<<8 | 1<<11 | 1<<15 | 1<<16, 8, 0}, parsed{Cmd: backend.Write, Len: 4096}},
		"largest":                 {r, descriptor{opWrite, 128, 1920}, parsed{Cmd: backend.Write, Off: 960 << 10, Len: 64 << 10}},
		"too large":               {r, descriptor{opWrite, 129, 0}, parsed{Cmd: backend.Write, Err: backend.ErrTooLarge}},
		"as large as can be":      {r, descriptor{opRead, math.MaxUint32, math.MaxUint64}, parsed{Cmd: backend.Read, Err: backend.ErrTooLarge}},
		"nothing":                 {r, descriptor{opRead, 0, 0}, parsed{Cmd: backend.Read, Err: backend.ErrInvalid}},
		"across the end":          {r, descriptor{opRead, 2, 2047}, parsed{Cmd: backend.Read, Err: backend.ErrNoSpace}},
		"at the end":              {r, descriptor{opRead, 1, 2048}, parsed{Cmd: backend.Read, Err: backend.ErrNoSpace}},
		"an offset that wraps":    {r, descriptor{opRead, 1, 1 << 55}, parsed{Cmd: backend.Read, Err: backend.ErrNoSpace}},
		"zeroes":                  {r, descriptor{opWriteZeroes | flagFUA, 256, 0}, parsed{Cmd: backend.WriteZeroes, Len: 128 << 10, FUA: true}},
		"too many zeroes":         {r, descriptor{opWriteZeroes, 257, 0}, parsed{Cmd: backend.WriteZeroes, Err: backend.ErrTooLarge}},
		"no zeroes":               {noZero, descriptor{opWriteZeroes, 1, 0}, parsed{Cmd: backend.WriteZeroes, Err: backend.ErrNotSupported}},
		"discard":                 {r, descriptor{opDiscard, 2048, 0}, parsed{Cmd: backend.Trim, Len: 1 << 20}},
		"discard across the end":  {r, descriptor{opDiscard, 2048, 1}, parsed{Cmd: backend.Trim, Err: backend.ErrNoSpace}},
		"flush":                   {r, descriptor{opFlush, 0, math.MaxUint64}, parsed{Cmd: backend.Flush}},
		"flush with a range":      {r, descriptor{opFlush, 77, 5}, parsed{Cmd: backend.Flush}},
		"zone append":             {r, descriptor{13, 8, 0}, parsed{Cmd: backend.Flush, Err: backend.ErrNotSupported}},
		"read-only: read":         {readOnly, descriptor{opRead, 8, 0}, parsed{Cmd: backend.Read, Len: 4096}},
		"read-only: write":        {readOnly, descriptor{opWrite, 8, 0}, parsed{Cmd: backend.Write, Err: backend.ErrReadOnly}},
		"read-only: zeroes":       {readOnly, descriptor{opWriteZeroes, 8, 0}, parsed{Cmd: backend.WriteZeroes, Err: backend.ErrReadOnly}},
		"read-only: discard":      {readOnly, descriptor{opDiscard, 8, 0}, parsed{Cmd: backend.Trim, Err: backend.ErrReadOnly}},
	} {
		t.Run(name, func(t *testing.T) {
			op := backend.Op{Err: backend.ErrFailed, FUA: true, Off: 1, Len: 1} // of the request before
			tt.rules.parse(tt.desc, &op)
			got := parsed{op.Cmd, op.Off, op.Len, op.FUA, op.Err}
			if op.Err != nil {
				got = parsed{Cmd: op.Cmd, Err: op.Err}
			}
			require.Equal(t, tt.want, got)
		})
	}
}

// FuzzParse: whatever a descriptor says, what the device gets lies within it, and memory for it is bounded.
func FuzzParse(f *testing.F) {
	f.Add(uint32(opWrite|flagFUA), uint32(8), uint64(0), uint64(1<<20), false)
	f.Add(uint32(opDiscard), uint32(math.MaxUint32), uint64(math.MaxUint64), uint64(512), true)
	f.Fuzz(func(t *testing.T, flags, sectors uint32, start, size uint64, readOnly bool) {
		r := rules{size: size &^ 511, maxIO: maxRequest, maxZero: 1 << 30, readOnly: readOnly}
		var op backend.Op
		r.parse(descriptor{flags, sectors, start}, &op)
		if op.Err != nil {
			if got := result(&op); got >= 0 || got < -4095 {
				t.Fatalf("result %d", got)
			}
			return
		}
		end := op.Off + op.Len
		if end < op.Off || end > r.size || (op.Len == 0) != (op.Cmd == backend.Flush) {
			t.Fatalf("%v: %d bytes at %d of %d", op.Cmd, op.Len, op.Off, r.size)
		}
		if (op.Cmd == backend.Read || op.Cmd == backend.Write) && op.Len > maxRequest {
			t.Fatalf("%v of %d bytes", op.Cmd, op.Len)
		}
		if readOnly && op.Cmd != backend.Read && op.Cmd != backend.Flush {
			t.Fatalf("%v on a read-only device", op.Cmd)
		}
	})
}
