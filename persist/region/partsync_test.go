package region

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// All files that a flush touches are synced at the same time: no sync ends before all have begun. A flush that comes
// meanwhile is content with none of them. What fails in any of them fails the region.
func TestPartsAreSyncedTogether(t *testing.T) {
	for name, fails := range map[string]int{"all succeed": -1, "the caller's fails": 0, "another fails": 2} {
		t.Run(name, func(t *testing.T) {
			paths := createdParts(t, fileHost, 4)
			log := &syncLog{t: t, paths: paths, err: map[int]error{fails: unix.EIO}}
			var begun sync.WaitGroup
			begun.Add(3)
			var n atomic.Int32
			r := openedParts(t, paths, fileHost.syncing(func(fd int) error {
				err := log.sync(fd)
				if n.Add(1) <= 3 {
					begun.Done()
					begun.Wait()
				}
				return err
			}))
			before := r.Syncs()
			err := r.Flush([]persist.Range{at(0, 0, 1), at(1, 0, 1), at(2, 0, 1)})
			if fails >= 0 {
				require.ErrorIs(t, err, ErrFailed)
				require.ErrorContains(t, err, paths[fails])
				return
			}
			require.NoError(t, err)
			require.Equal(t, []int{0, 1, 2}, log.take())
			require.EqualValues(t, before+3, r.Syncs())
			require.NoError(t, r.flushParts(before, []persist.Range{{Len: r.Size()}}))
			require.Equal(t, []int{3}, log.take())
			require.NoError(t, r.flushParts(before+3, []persist.Range{at(1, 0, 2*testSize)}))
			require.Equal(t, []int{1, 2}, log.take())
		})
	}
}
