package target

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A device that promised native FLUSH and does not register the region with it: who
// insists on FLUSH gets nothing, no key either; who does not gets the next method.
func TestFlushIsNotRegistered(t *testing.T) {
	s := newTracedSite(t, Config{})
	s.trace.lacks = rdma.RemoteFlush
	p := s.connect(t) // connection 0
	epoch := p.refused(alice, 0).Epoch
	var r wire.Refused
	p.ask(&wire.Open{Methods: 1 << persist.MethodFlush, Owner: alice, Epoch: epoch, Region: "log"}, &r)
	require.Equal(t, wire.CodeMethod, r.Code)
	require.Contains(t, r.Text, persist.ReasonDevice.String())
	require.NotContains(t, s.trace.reset(), "register for 0", "the connection is in no session")

	var o wire.Opened
	p.ask(&wire.Open{Methods: everyMethod, Owner: alice, Epoch: epoch + 1, Region: "log"}, &o)
	require.EqualValues(t, persist.MethodGPSPM, o.Method)
	require.False(t, o.Methods.Has(uint8(persist.MethodFlush)))
	require.NoError(t, p.write(o, 1, 0, []byte("by gpspm")))
}
