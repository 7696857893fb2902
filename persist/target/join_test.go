package target

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// A grant waits for everything that a lane of the old session has under way in the
// region, before it persists anything (design §5).
func TestGrantJoinsWhatTouchesTheRegion(t *testing.T) {
	var busy, overlapped atomic.Bool
	began, release := make(chan struct{}), make(chan struct{})
	s := serveWith(t, region.PathMemfd, regiontest.Medium{
		Data: func(_, n uint64) {
			if n != 1 {
				return // the flush of the whole extent
			}
			busy.Store(true)
			close(began)
			<-release
			for range 10000 { // enough that a grant that does not wait would be faster
				runtime.Gosched()
			}
			busy.Store(false)
		},
		Header: func(_, _ uint64) {
			if busy.Load() {
				overlapped.Store(true)
			}
		},
	}, Config{})
	old := s.connect(t)
	old.open(alice)
	old.send((&wire.Barrier{Seq: 1, Last: true, Ranges: []persist.Range{{Len: 1}}}).Append(nil))
	<-began
	go func() {
		defer close(release)
		_, _ = old.receive() // the grant has destroyed its queue pair
	}()
	s.connect(t).open(alice)
	require.False(t, overlapped.Load())
}
