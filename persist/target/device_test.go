package target

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A device has promised native FLUSH but does not register the region with it. An
// initiator that accepts only FLUSH gets nothing, not even a key. Another one gets the
// next method.
func TestFlushIsNotRegistered(t *testing.T) {
	s := newTracedSite(t, Config{})
	s.trace.lacks = rdma.RemoteFlush
	p := s.connect(t) // connection 0
	epoch := p.refused(alice, 0).Epoch
	var r wire.Refused
	p.ask(&wire.Open{Methods: 1 << persist.MethodFlush, Owner: alice, Epoch: epoch, Region: "log"}, &r)
	require.Equal(t, wire.CodeMethod, r.Code)
	require.Contains(t, r.Text, persist.ReasonDevice.String())
	require.NotContains(t, s.trace.reset(), "register for 0", "the connection has no session")

	var o wire.Opened
	p.ask(&wire.Open{Methods: everyMethod, Owner: alice, Epoch: epoch + 1, Region: "log"}, &o)
	require.EqualValues(t, persist.MethodGPSPM, o.Method)
	require.False(t, o.Methods.Has(persist.MethodFlush))
	require.NoError(t, p.write(o, 1, 0, []byte("by gpspm")))
}

// A target refuses sessions if its device may place an older Write over a newer one. The
// initiator's own device cannot know.
func TestDeviceThatPlacesInAnyOrder(t *testing.T) {
	const why = "does not place overlapping Writes in order"
	t.Run("OPEN and RESUME", func(t *testing.T) {
		s := newTracedSite(t, Config{})
		s.trace.disorderly = map[int]bool{1: true}
		p := s.connect(t) // connection 0
		o := p.open(alice)
		s.trace.reset()
		other := s.connect(t) // connection 1
		var r wire.Refused
		for name, m := range map[string]message{
			"OPEN":     &wire.Open{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log"},
			"takeover": &wire.Open{Methods: everyMethod, Owner: bob, Epoch: o.Epoch, Region: "log", Flags: wire.OpenTakeover},
			"RESUME":   &wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log"},
		} {
			other.ask(m, &r)
			require.Equal(t, wire.CodeNotSupported, r.Code, name)
			require.Contains(t, r.Text, why, name)
			require.Equal(t, []string{"REFUSED to 1"}, s.trace.reset(), "%s: nothing was destroyed", name)
		}
		require.NoError(t, p.write(o, 1, 0, []byte("alice's session continues")))
	})
	t.Run("JOIN", func(t *testing.T) {
		s := newTracedSite(t, Config{})
		s.trace.disorderly = map[int]bool{1: true}
		p := s.connect(t) // connection 0
		o := p.open(alice)
		lane, err := s.connectLane(t, o, 1, nil) // connection 1
		require.NoError(t, err)
		var r wire.Refused
		lane.send(signed(&o.Token, &wire.Join{Epoch: o.Epoch, Lane: 1}))
		require.NoError(t, lane.decode(&r))
		require.Equal(t, wire.CodeNotSupported, r.Code)
		require.Contains(t, r.Text, why)
		require.NoError(t, p.write(o, 1, 0, []byte("lane 0 continues")))
	})
}
