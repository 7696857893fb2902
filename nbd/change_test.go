package nbd

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/nbd/wire"
)

// chosen is the reply to GO of a new connection.
func (f *fixture) chosen(export string) wire.ReplyType {
	nc := f.raw()
	greet(f.t, nc, wire.ClientFixedNewstyle)
	_, err := nc.Write(wire.AppendOption(nil, wire.OptGo, wire.AppendInfoRequest(nil, export)))
	require.NoError(f.t, err)
	for {
		_, r := recvOption(f.t, nc)
		if r.typ == wire.RepAck || r.typ.IsError() {
			require.NoError(f.t, nc.Close())
			return r.typ
		}
	}
}

// works writes to the export of c.
func (c *rawConn) works(t *testing.T) {
	t.Helper()
	_, err := c.Write(c.putWrite(nil, 7, 0, bytes.Repeat([]byte{1}, 512)))
	require.NoError(t, err)
	var reply [16]byte
	_, err = c.Read(reply[:])
	require.NoError(t, err)
}

// Exports come and go beside a client, which notices nothing.
func TestChange(t *testing.T) {
	disk, other := newMem(t, 1<<20), newMem(t, 2<<20)
	f := serve(t, disk)
	first := f.srv.served()[0]
	c := f.enter(entry{})
	require.NoError(t, f.srv.Change(Export{Name: "other", Device: other}, Export{Name: "disk", Device: disk}))
	require.Same(t, first, f.srv.served()[1])
	c.works(t)
	require.Equal(t, wire.RepAck, f.chosen("other"))
	require.Equal(t, "other", f.srv.lookup("").name, "the first is the default")
	require.Len(t, f.srv.Snapshot(), 2)
	require.Equal(t, 1, f.srv.Snapshot()[1].Connections)

	require.Eventually(t, func() bool { return f.srv.Snapshot()[0].Connections == 0 }, patience, time.Millisecond)
	require.NoError(t, f.srv.Change(Export{Name: "disk", Device: disk}))
	require.Equal(t, wire.RepErrUnknown, f.chosen("other"))
	c.works(t)
	require.NoError(t, c.Close())
	require.NoError(t, other.Close())
}

// An export with clients is not withdrawn, and then nothing else changes either. A client that chose
// an export before it was withdrawn does not enter it.
func TestChangeOfABusyExport(t *testing.T) {
	disk, other := newMem(t, 1<<20), newMem(t, 1<<20)
	f := serve(t, disk)
	c := f.enter(entry{})
	c.works(t)
	err := f.srv.Change(Export{Name: "other", Device: other})
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, BusyError{"disk", 1}, *busy)
	require.Len(t, f.srv.Snapshot(), 1)
	require.Equal(t, wire.RepAck, f.chosen("disk"))
	c.works(t)
	require.ErrorAs(t, f.srv.Change(Export{Name: "disk", Device: disk, ReadOnly: true}), &busy, "what clients may do does not change under them")

	x := f.srv.served()[0]
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return f.srv.Change(Export{Name: "other", Device: other}) == nil }, patience, time.Millisecond)
	require.ErrorIs(t, x.enter(&conn{}), errWithdrawn)
	require.NoError(t, f.srv.Change(Export{Name: "disk", Device: disk}), "and back")
	require.Equal(t, wire.RepAck, f.chosen("disk"))
	require.NoError(t, other.Close())
}

func TestChangeMistakes(t *testing.T) {
	disk := newMem(t, 1<<20)
	f := serve(t, disk)
	for want, exports := range map[string][]Export{
		"needs at least one export": nil,
		"the name is taken":         {{Name: "a", Device: disk}, {Name: "a", Device: disk}},
		"at most 4096":              {{Name: strings.Repeat("x", 4097), Device: disk}},
	} {
		err := f.srv.Change(exports...)
		require.ErrorContains(t, err, want)
		require.False(t, errors.As(err, new(*BusyError)))
	}
	require.Len(t, f.srv.Snapshot(), 1)
}
