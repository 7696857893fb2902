package region

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// TestMemoryThatIsNotRight: what is said of memory that cannot be used tells whether its image has the region. Who
// removes the memory on bad advice loses the region.
func TestMemoryThatIsNotRight(t *testing.T) {
	const fromImage, lost, found = "and the region comes from its image", "without its right memory the region is lost", "copy it elsewhere before you remove it"
	write := func(b []byte) func(*testing.T, place) {
		return func(t *testing.T, p place) { require.NoError(t, os.WriteFile(p.memory, b, 0o600)) }
	}
	elsewhere := func(t *testing.T, p place) {
		r, err := open(p.memory+".other", OpenOptions{Name: "r", Save: p.save}, saverIn(bootB))
		require.NoError(t, err)
		require.NoError(t, r.Close())
	}
	for name, tt := range map[string]struct {
		whole bool
		spoil func(*testing.T, place)
		boot  [16]byte
		says  string
		never string
	}{
		"of another boot, saved":                 {true, nil, bootB, fromImage, lost},
		"of another boot, not saved":             {false, nil, bootB, lost, fromImage},
		"zeroes, saved":                          {true, write(make([]byte, DataOffset+protectedSize)), bootA, fromImage, lost},
		"zeroes, not saved":                      {false, write(make([]byte, DataOffset+protectedSize)), bootA, lost, fromImage},
		"nothing, saved":                         {true, write(nil), bootA, fromImage, lost},
		"not found by a start with another path": {false, elsewhere, bootA, found, fromImage},
	} {
		t.Run(name, func(t *testing.T) {
			p := protectedAt(t)
			r := p.open(t, saverIn(bootA))
			grant(t, r)
			store(t, r, persist.Range{Len: protectedSize}, 1)
			if tt.whole {
				_, err := r.Save(context.Background())
				require.NoError(t, err)
			}
			require.NoError(t, r.Close())
			if tt.spoil != nil {
				tt.spoil(t, p)
			}
			_, err := open(p.memory, OpenOptions{Name: "r", Save: p.save}, saverIn(tt.boot))
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), tt.never)
		})
	}
}

// TestInspectImageOf: an image has all that the memory has only if it is of the same moment. Who believes that it has
// takes the power away.
func TestInspectImageOf(t *testing.T) {
	p := protectedAt(t)
	path, old := p.image(t)
	whole := func(whole, other bool) {
		t.Helper()
		info, err := inspectPath(p.memory, saverIn(bootA))
		require.NoError(t, err)
		of, isOther, err := InspectImageOf(path, &info.Superblock)
		require.NoError(t, err)
		require.Equal(t, whole, of.Whole)
		require.Equal(t, other, isOther)
	}
	whole(true, false)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	whole(false, false)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	whole(true, false)
	require.Error(t, r.Fail(errors.New("after the save")))
	whole(true, false)
	overwrite(t, path, 0, old)
	whole(false, true)
	sb := r.Superblock()
	sb.UUID[0]++
	_, _, err = InspectImageOf(path, &sb)
	require.ErrorIs(t, err, ErrSave)
}
