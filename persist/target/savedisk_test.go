package target

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// serveWithImage serves a region of class protected, whose image is on a disk that fails while fails
// is set.
func serveWithImage(t *testing.T) (s *site, fails *atomic.Bool) {
	t.Helper()
	fails = new(atomic.Bool)
	return serveProtected(t, func() error {
		if fails.Load() {
			return unix.EIO
		}
		return nil
	}), fails
}

// serveProtected serves a region of class protected. disk is called before each write and sync of its image.
func serveProtected(t *testing.T, disk func() error) *site {
	t.Helper()
	testhost.CanLock(t, region.DataOffset+size)
	memory := testhost.Memory(t)
	path, save := filepath.Join(memory, "region"), testhost.Disk(t)
	_, err := region.Create(path, region.CreateOptions{Name: "log", Size: size, Class: persist.ClassProtected, Save: save})
	require.NoError(t, err)
	m := regiontest.Medium{Image: disk}
	r, err := region.Open(path, region.OpenOptions{Name: "log", Save: save, Wrap: m.Wrap})
	require.NoError(t, err)
	s := serveOpened(t, path, r, Config{})
	looked(t, s.server.served()["log"])
	return s
}

// looked waits until the target has looked at the disk for the first time. It does so beside what a test does.
func looked(t *testing.T, e *export) {
	t.Helper()
	require.Eventually(t, func() bool { return e.disk.trouble.Load() != nil && e.disk.began.Load() == 0 }, patience, tick)
}

// An owner that comes back when the disk for the image has just failed waits for the disk: its
// device does not fail, and it keeps its lease.
func TestDiskThatFailsBeforeAGrant(t *testing.T) {
	s, fails := serveWithImage(t)
	o := s.connect(t).open(alice)
	e := s.server.served()["log"]
	fails.Store(true)
	e.started.Store(clock() - int64(Lease) - 1)
	e.session.heard.Store(clock() - int64(Lease) - 1)
	bobs := s.connect(t)
	r := s.connect(t).resumeRefused(alice, o.Epoch)
	require.Equal(t, wire.CodeBusy, r.Code)
	require.Contains(t, r.Text, "input/output error")
	require.NoError(t, s.region.Failed())
	require.Equal(t, alice.ID, bobs.refused(bob, o.Epoch).Holder)
	fails.Store(false)
	s.connect(t).resume(alice, o.Epoch)
}

// A session goes on while the disk for the image is away, also when a record of a mirror could not
// be kept for that.
func TestDiskThatFailsDuringASession(t *testing.T) {
	s, fails := serveWithImage(t)
	p := s.connect(t)
	o := p.open(alice)
	fails.Store(true)
	rec := persist.Record{Set: [16]byte{1}, MinCopies: 1, Ancestor: persist.Ancestor{Generation: persist.Generation{Count: 1, Nonce: [16]byte{2}}, F: 1}}
	rec.Members[0] = persist.Membership{UUID: s.region.UUID(), Contents: o.ContentsID, Epoch: o.Epoch}
	require.ErrorIs(t, s.region.SetRecord(rec, 0), region.ErrSave)
	require.NoError(t, p.write(o, 1, 0, []byte("flushed")))
	require.Zero(t, s.region.Superblock().Record)
	fails.Store(false)
	require.NoError(t, s.region.SetRecord(rec, 0))
	require.NoError(t, p.write(o, 2, 0, []byte("flushed")))
}

// The image of a session's region is written over, and the disk cannot say that it is live. The session ends, and its
// device does not fail: the owner comes back when the disk is well.
func TestImageIsWrittenOverDuringASession(t *testing.T) {
	s, fails := serveWithImage(t)
	p := s.connect(t)
	o := p.open(alice)
	require.NoError(t, p.write(o, 1, 0, []byte("flushed")))
	e := s.server.served()["log"]
	shape, _ := s.region.Protection()
	require.NoError(t, os.Truncate(shape.Image, 0))
	fails.Store(true)
	e.disk.look(e.image)
	require.ErrorContains(t, e.disk.wrong(), "somebody has written over the image")
	require.Error(t, p.write(o, 2, 0, []byte("not flushed")), "the connection ends")
	require.NoError(t, s.region.Failed())
	require.Equal(t, wire.CodeBusy, s.connect(t).resumeRefused(alice, o.Epoch).Code)
	fails.Store(false)
	for range 2 { // the first look makes the image live
		e.disk.look(e.image)
	}
	p = s.connect(t)
	require.NoError(t, p.write(p.resume(alice, o.Epoch), 3, 0, []byte("flushed")))
}

// The end of a target does not wait for a disk that hangs: its other regions would stay locked, and not
// be saved at the shutdown.
func TestEndWithADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d disk
		answers := make(chan struct{})
		d.start(time.Second, func(context.Context) { <-answers })
		synctest.Wait()
		d.close()
		select {
		case <-d.ended:
			t.Error("the look at the disk has ended")
		default:
		}
		close(answers)
		<-d.ended
		d.close()
	})
}
