package target

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist/wire"
)

// An initiator that Allow does not name gets nothing, and learns nothing of the region.
// One that it names can take over from an owner that is no longer named, as from any
// other.
func TestAllow(t *testing.T) {
	path := onDisk(t)
	s := serveRegion(t, path, nil, Config{})
	epoch := s.connect(t).open(bob).Epoch
	s.stop()

	s = serveRegion(t, path, nil, Config{Lease: 1, Allow: map[string][][16]byte{"log": {alice.ID}, "other": {bob.ID}}})
	p := s.connect(t)
	for _, at := range []uint64{0, epoch} {
		r := p.refused(bob, at)
		require.Equal(t, wire.CodeNotAllowed, r.Code)
		require.Equal(t, wire.Refused{Code: r.Code, Text: r.Text}, r)
		require.Contains(t, r.Text, "does not allow the region to initiator 02000000-0000-0000-0000-000000000000")
	}
	var r wire.Refused
	p.ask(&wire.Resume{Methods: everyMethod, Owner: bob, Epoch: epoch, Region: "log"}, &r)
	require.Equal(t, wire.CodeNotAllowed, r.Code, "the former owner is not allowed either")
	require.Equal(t, epoch, s.region.Superblock().Epoch)
	p.open(alice)
	require.Equal(t, wire.CodeNotAllowed, s.connect(t).refused(bob, epoch+1).Code)
}
