package target

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A Read of memory that the medium has lost ends the connection and adds a bad place. The next session is told
// of it. A Write there fails the region: nobody could promise that it is durable.
func TestReadFindsABadPlace(t *testing.T) {
	dir := testhost.Disk(t)
	s := newFaultSite(t, filepath.Join(dir, "region"), filepath.Join(dir, "other"))
	p := s.connect(t)
	o := p.openNamed(alice, "log")
	require.Zero(t, o.Flags&wire.OpenedBad)
	require.NoError(t, p.write(o, 1, 8192, []byte("flushed, and then lost")))
	require.NoError(t, unix.Mprotect(s.region.Data()[8192:12288], unix.PROT_NONE))
	p.post(rdma.WorkRequest{Op: rdma.OpRead, Local: rdma.SGE{Region: p.mr, Off: (peerBuffers - 1) * wire.MaxMessage, Len: 4096}, Remote: rdma.Remote{Key: o.Key, Addr: o.Base + 8192}})
	_, err := p.receive()
	require.ErrorIs(t, err, rdma.ErrRemoteOp)

	next := s.connect(t)
	o = next.openNamed(alice, "log")
	require.NotZero(t, o.Flags&wire.OpenedBad)
	var places wire.BadPlaces
	next.ask(&wire.Bad{Seq: 7}, &places)
	require.Equal(t, wire.BadPlaces{Seq: 7, Clears: true, Places: persist.BadPlaces{{Off: 8192, Len: 4096}}}, places)
	next.ask(&wire.Bad{Seq: 8, From: 12288}, &places)
	require.Equal(t, wire.BadPlaces{Seq: 8, Clears: true}, places)
	require.Equal(t, []PlaceSnapshot{{8192, 4096}}, s.server.Snapshot()[0].Bad)
	require.NoError(t, next.write(o, 1, 4096, []byte("beside it")))
	require.NoError(t, s.region.Failed())

	next.post(rdma.WorkRequest{Op: rdma.OpWrite, Local: rdma.SGE{Region: next.mr, Len: 4096}, Remote: rdma.Remote{Key: o.Key, Addr: o.Base + 8192}})
	_, err = next.receive()
	require.Error(t, err)
	var r wire.Refused
	s.connect(t).ask(&wire.Open{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log", Flags: wire.OpenAllowVolatile}, &r)
	require.Equal(t, wire.CodeFailed, r.Code)
}

// BAD is for lane 0, one at a time.
func TestBadOutOfTurn(t *testing.T) {
	c := &conn{lane: 1}
	require.ErrorIs(t, c.bad(wire.Bad{}), errStranger)
	c = &conn{asked: asked{bads: 1}}
	require.ErrorIs(t, c.bad(wire.Bad{}), errStranger)
}
