package target

import (
	"context"
	"sync"
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
	release        func()        // it never hangs any more
}

func newHung(t *testing.T, path string, patience time.Duration) *hung {
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
	h.site = serveWith(t, path, m, Config{diskAnswers: patience, image: func(r *region.Region) protected {
		if r.Name() == "log" {
			return nil
		}
		return (&fakeImage{}).of(r)
	}})
	h.release = sync.OnceFunc(func() { h.hold.Store(false); close(h.proceed) })
	t.Cleanup(h.release) // before the server is stopped
	h.more = made(t, "more")
	require.NoError(t, h.server.Change(Offer{Regions: []*region.Region{h.region, h.more}}, nothing))
	return h
}

// leave withdraws log, and serves what stays.
func (h *hung) leave(stays ...*region.Region) error {
	return h.server.Change(Offer{Regions: stays}, nothing)
}

// forgotten ends the lease of log's owner.
func (h *hung) forgotten() {
	h.server.served()["log"].session.heard.Store(clock() - int64(Lease) - 1)
}

// saves requires that a save of more goes through now.
func (h *hung) saves(t *testing.T) {
	t.Helper()
	saved, err := h.server.Save(context.Background())
	require.NoError(t, err)
	require.Len(t, saved, 1)
	require.Equal(t, "more", saved[0].Region)
	require.NoError(t, saved[0].Err)
	require.NoError(t, h.server.Resume())
}

// A region whose last session waits for a disk that hangs is not withdrawn, and no save of another waits for it: the
// power may be about to go.
func TestWithdrawFromAHungDisk(t *testing.T) {
	for name, hang := range map[string]func(h *hung, p *peer) (release func()){
		"in a sync": func(h *hung, p *peer) func() {
			h.hold.Store(true)
			p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
			<-h.began
			h.p.Cut()
			return h.release
		},
		"in a page fault": func(h *hung, _ *peer) func() {
			s := h.server.served()["log"].session
			s.mu.Lock()
			s.looks.Stop() // it would wait, too
			s.mu.Unlock()
			c := s.conn
			c.life.Lock() // who ends the connection waits, as for who stores what arrives
			return sync.OnceFunc(c.life.Unlock)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHung(t, onDisk(t), time.Millisecond)
			p := h.connect(t)
			p.open(alice)
			release := hang(h, p)
			t.Cleanup(release)
			h.forgotten()
			require.ErrorIs(t, h.leave(h.more), errHangs)
			require.Len(t, h.server.Snapshot(), 2, "nothing has changed")
			h.saves(t)
			release()
			require.Eventually(t, func() bool { return h.leave(h.more) == nil }, patience, tick)
			require.Len(t, h.server.Snapshot(), 1)
		})
	}
}

// A region is withdrawn while doubt is being settled, and that hangs. Change waits for it, and no save does. The save
// is also of what the same Change has withdrawn: nobody else could save that.
func TestWithdrawWhileDoubtIsSettled(t *testing.T) {
	for name, stays := range map[string]bool{"the other one stays": true, "so is the other one": false} {
		t.Run(name, func(t *testing.T) {
			h := newHung(t, region.PathMemfd, 0)
			h.connect(t).open(alice)
			h.hold.Store(true)
			h.connect(t).open(alice)
			<-h.began
			h.forgotten()
			var rest []*region.Region
			if stays {
				rest = append(rest, h.more)
			}
			left := make(chan error, 1)
			go func() { left <- h.leave(rest...) }()
			require.Eventually(t, func() bool { return len(h.server.served()) == len(rest) }, patience, tick)
			h.saves(t)
			require.Empty(t, left)
			h.release()
			require.NoError(t, <-left)
		})
	}
}

// A save includes a withdrawn region until the caller of Change has saved it: the power may fail before that.
func TestSaveDuringALastSave(t *testing.T) {
	h := newHung(t, region.PathMemfd, 0)
	var during []Saved
	var saving error
	stays := Offer{Regions: []*region.Region{h.region}}
	require.NoError(t, h.server.Change(stays, func() { during, saving = h.server.Save(context.Background()) }))
	require.NoError(t, saving)
	require.Len(t, during, 1)
	require.Equal(t, "more", during[0].Region)
	require.NoError(t, during[0].Err)
	behind, err := h.server.Save(context.Background())
	require.NoError(t, err)
	require.Empty(t, behind)
}
