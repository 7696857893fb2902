package region

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// TestProtectedMember: a member of a mirror comes back from its image with its record, its generation and
// the bits of the others. One that is lost keeps the record, whose contents are not its own any more, so
// that nobody takes it for equal, and nobody counts as having what it has.
func TestProtectedMember(t *testing.T) {
	const other = 1
	away := persist.Range{Off: 1 << 20, Len: 4096}
	for _, saved := range []bool{true, false} {
		name := map[bool]string{true: "saved", false: "lost"}[saved]
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			rec := persist.Record{Set: [16]byte{1}, MinCopies: 1, Ancestor: persist.Ancestor{Generation: persist.Generation{Count: 1, Nonce: [16]byte{2}}, F: 1}}
			rec.Members[0] = persist.Membership{UUID: r.UUID(), Contents: r.Superblock().Contents, Epoch: r.Superblock().Epoch}
			rec.Members[other] = persist.Membership{UUID: [16]byte{9}, Contents: [16]byte{9}, Epoch: 1}
			require.NoError(t, r.SetRecord(rec, 0))
			require.NoError(t, r.ClearBits(other, []persist.Range{{Len: protectedSize}}))
			require.Zero(t, r.BitsSet(other))
			require.NoError(t, r.SetBits(r.Outside(), []persist.Range{away}))
			r.Known() // a session that told everything: bits are no ranges of the extent
			if saved {
				_, err := r.Save(context.Background())
				require.NoError(t, err)
			}
			was := r.Superblock()
			p.powerOff(t, r)

			r = p.open(t, saverIn(bootB))
			now := r.Superblock()
			require.Equal(t, was.Record, now.Record)
			if saved {
				require.Equal(t, was.Contents, now.Contents)
				require.EqualValues(t, 1, r.BitsSet(other))
				return
			}
			require.NotEqual(t, now.Record.Members[0].Contents, now.Contents)
			require.Equal(t, protectedSize/r.ChunkSize(), r.BitsSet(other))
		})
	}
}
