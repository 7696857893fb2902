package region

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// A worn disk cannot read some sectors of an image.
type worn struct {
	saver
	bad *int64 // where the sector is; -1: nowhere
}

var errWorn = errors.New("medium error")

func (w worn) Storage(f image.File) image.File { return wornFile{w.saver.Storage(f), w.bad} }

type wornFile struct {
	image.File
	bad *int64
}

func (f wornFile) ReadAt(b []byte, off int64) (int, error) {
	if off <= *f.bad && *f.bad < off+int64(len(b)) {
		return 0, errWorn
	}
	return f.File.ReadAt(b, off)
}

func (f wornFile) WriteAt(b []byte, off int64) (int, error) {
	if off <= *f.bad && *f.bad < off+int64(len(b)) {
		*f.bad = -1 // the disk has spare sectors
	}
	return f.File.WriteAt(b, off)
}

// TestUnreadableImage: a sector of the image that cannot be read keeps nobody from memory that is there.
func TestUnreadableImage(t *testing.T) {
	for name, at := range map[string]int64{"copy 0 of the header": 0, "copy 1 of the header": 8192, "table": 16384} {
		for how, saving := range map[string]bool{"to save": true, "to serve": false} {
			t.Run(name+", "+how, func(t *testing.T) {
				p := protectedAt(t)
				r := p.open(t, saverIn(bootA))
				grant(t, r)
				store(t, r, persist.Range{Len: protectedSize}, 1)
				_, err := r.Save(context.Background())
				require.NoError(t, err)
				data := bytes.Clone(r.Data())
				require.NoError(t, r.Close())
				r, err = open(p.memory, OpenOptions{Name: "r", Save: p.save, Saving: saving}, worn{saverIn(bootA), &at})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, r.Close()) })
				require.Equal(t, data, r.Data())
				_, err = r.Save(context.Background())
				require.NoError(t, err)
				p.powerOff(t, r)
				require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
			})
		}
	}
}

// TestUnreadableHeaderWithoutMemory: the copy that cannot be read may be the one that says whole, and the disk may read
// it the next time. A loss would be for good.
func TestUnreadableHeaderWithoutMemory(t *testing.T) {
	p := protectedAt(t)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: protectedSize}, 1)
	_, err := r.Save(context.Background())
	require.NoError(t, err)
	data := bytes.Clone(r.Data())
	p.powerOff(t, r)
	refused := 0
	for _, at := range []int64{0, 8192} {
		r, err := open(p.memory, OpenOptions{Name: "r", Save: p.save}, worn{saverIn(bootB), &at})
		if err == nil { // the other copy says whole
			require.Equal(t, data, r.Data())
			p.powerOff(t, r)
			continue
		}
		refused++
		require.ErrorIs(t, err, ErrSave)
		require.ErrorIs(t, err, errWorn)
		require.ErrorContains(t, err, "region create --force")
		require.NoFileExists(t, p.memory)
	}
	require.Equal(t, 1, refused)
	require.Equal(t, data, p.open(t, saverIn(bootB)).Data())
}
