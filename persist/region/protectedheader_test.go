package region

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// TestHeaderOfAFailedSync: a header has arrived in the file, and its sync has failed. That is nobody else's, so a
// session goes on.
func TestHeaderOfAFailedSync(t *testing.T) {
	p := protectedAt(t)
	on := saverIn(bootA)
	r := p.open(t, on)
	grant(t, r)
	sb := r.Superblock()
	rec := persist.Record{Set: [16]byte{1}, MinCopies: 1, Ancestor: persist.Ancestor{Generation: persist.Generation{Count: 1, Nonce: [16]byte{2}}, F: 1}}
	rec.Members[0] = persist.Membership{UUID: sb.UUID, Contents: sb.Contents, Epoch: sb.Epoch}
	*on.fail = func(op string) error {
		if op == "sync" {
			return unix.EIO
		}
		return nil
	}
	require.ErrorIs(t, r.SetRecord(rec, 0), ErrSave)
	require.ErrorIs(t, r.SaveTrouble(), unix.EIO)
	require.NotErrorIs(t, r.SaveTrouble(), errOverwritten)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	data := bytes.Clone(r.Data())
	*on.fail = nil
	require.NoError(t, r.SaveTrouble())
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	p.powerOff(t, r)
	require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
}
