package target

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// A barrier that was sent before a record without the member whose bits it clears, and comes behind it,
// clears nothing and does not fail: not even if another member has the slot meanwhile.
func TestClearOvertakenByARemoval(t *testing.T) {
	s := newSite(t)
	p, _ := s.become(t, memberA|memberB)
	p.record(memberOf(s.region, 1, 2, memberA), memberB) // B out, in a fill
	r := memberOf(s.region, 1, 3, memberA)
	r.Members[1] = persist.Membership{}
	p.record(r, 0)
	stale := wire.Barrier{Clear: []persist.Range{{Len: s.region.ChunkSize()}}, ClearSlot: 1, Fills: 1}
	p.parts(stale)
	r.Count, r.Members[1] = 4, persist.Membership{UUID: [16]byte{9}}
	p.record(r, 0)
	p.parts(stale)
	require.Equal(t, byte(0xff), bitsOf(s.region)[1][0])
}
