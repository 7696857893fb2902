package target

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// A hung is the region log, whose disk can hang, beside more, which is saved as if it were of class protected.
type hung struct {
	*site
	more           *region.Region
	hold           atomic.Bool   // log's disk hangs from now on
	began, proceed chan struct{} // it does, and it goes on
}

func newHung(t *testing.T, path string) *hung {
	h := &hung{began: make(chan struct{}, 64), proceed: make(chan struct{})}
	hangs := func() {
		if h.hold.Load() {
			h.began <- struct{}{}
			<-h.proceed
		}
	}
	m := regiontest.Medium{
		Data: func(uint64, uint64) { hangs() },
		Sync: func(fd int) error { hangs(); return unix.Fdatasync(fd) },
	}
	h.site = serveWith(t, path, m, Config{diskAnswers: time.Millisecond, image: func(r *region.Region) protected {
		if r.Name() == "log" {
			return nil
		}
		return (&fakeImage{}).of(r)
	}})
	h.more = made(t, "more")
	require.NoError(t, h.server.Change(Offer{Regions: []*region.Region{h.region, h.more}}))
	return h
}

// leave withdraws log.
func (h *hung) leave() error { return h.server.Change(Offer{Regions: []*region.Region{h.more}}) }

// forgotten ends the lease of log's owner.
func (h *hung) forgotten() {
	h.server.served()["log"].session.heard.Store(clock() - int64(Lease) - 1)
}

// saves requires that a save goes through now.
func (h *hung) saves(t *testing.T) {
	t.Helper()
	saved, err := h.server.Save(context.Background())
	require.NoError(t, err)
	require.Len(t, saved, 1)
	require.NoError(t, saved[0].Err)
	require.NoError(t, h.server.Resume())
}

// A region whose last session waits for a disk that hangs is not withdrawn, and no save of another waits for it: the
// power may be about to go.
func TestWithdrawFromAHungDisk(t *testing.T) {
	h := newHung(t, onDisk(t))
	p := h.connect(t)
	p.open(alice)
	h.hold.Store(true)
	p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
	<-h.began
	h.p.Cut()
	h.forgotten()
	require.ErrorIs(t, h.leave(), errHangs)
	require.Len(t, h.server.Snapshot(), 2, "nothing has changed")
	h.saves(t)
	h.hold.Store(false)
	close(h.proceed)
	require.Eventually(t, func() bool { return h.leave() == nil }, patience, tick)
	require.Len(t, h.server.Snapshot(), 1)
}

// A region is withdrawn while doubt is being settled, and that hangs. Change waits for it, and no save does.
func TestWithdrawWhileDoubtIsSettled(t *testing.T) {
	h := newHung(t, region.PathMemfd)
	h.connect(t).open(alice)
	h.hold.Store(true)
	h.connect(t).open(alice)
	<-h.began
	h.forgotten()
	left := make(chan error, 1)
	go func() { left <- h.leave() }()
	require.Eventually(t, func() bool { return len(h.server.Snapshot()) == 1 }, patience, tick)
	h.saves(t)
	require.Empty(t, left)
	h.hold.Store(false)
	close(h.proceed)
	require.NoError(t, <-left)
}
