package nbd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/mem"
	"pmnbd/nbd/wire"
)

// A failed device fails every op.
type failed struct{ *mem.Device }

func (failed) Submit(ops []*backend.Op) {
	for _, op := range ops {
		op.Err = backend.ErrFailed
		op.Sink.Complete(op)
	}
}

// TestFailedDevice: clients of a failed device see what docs/nbd.md says.
func TestFailedDevice(t *testing.T) {
	f := serve(t, failed{newMem(t, 1<<20)})
	c := f.enter(entry{form: structured})
	for _, tt := range []struct {
		name   string
		cmd    wire.Command
		off, n uint64
		errno  backend.Errno
	}{
		{"READ", wire.CmdRead, 0, 512, backend.EIO},
		{"WRITE", wire.CmdWrite, 0, 512, backend.EIO},
		{"FLUSH", wire.CmdFlush, 0, 0, backend.EIO},
		{"TRIM", wire.CmdTrim, 0, 512, backend.EIO},
		{"WRITE_ZEROES", wire.CmdWriteZeroes, 0, 512, backend.EIO},
		{"CACHE", wire.CmdCache, 0, 512, 0},
		{"BLOCK_STATUS", wire.CmdBlockStatus, 0, 512, 0},
		{"WRITE past the end", wire.CmdWrite, 1 << 20, 512, backend.ENOSPC}, // the mistake of the request comes first
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := wire.Request{Command: tt.cmd, Off: tt.off, Len: tt.n}
			b := c.put(nil, r)
			if tt.cmd == wire.CmdWrite {
				b = append(b, make([]byte, tt.n)...)
			}
			_, err := c.Write(b)
			require.NoError(t, err)
			_, a := c.recv(t, known(t, r))
			require.Equal(t, tt.errno, a.errno)
		})
	}
}
