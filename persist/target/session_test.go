package target

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

func TestSession(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	o := p.open(alice)
	require.EqualValues(t, size, o.Size)
	require.Equal(t, s.region.UUID(), o.UUID)
	require.EqualValues(t, 2, o.Epoch, "the first epoch is 1")
	sb := s.region.Superblock()
	require.EqualValues(t, 2, sb.Epoch)
	require.False(t, sb.Clean)
	require.Equal(t, alice, sb.Owner)

	require.NoError(t, p.write(o, 1, 4096, []byte("hello")))
	require.Equal(t, "hello", string(s.region.Data()[4096:4101]))

	var hb wire.HeartbeatAck
	p.ask(&wire.Heartbeat{Seq: 7}, &hb)
	require.EqualValues(t, 7, hb.Seq)

	var closed wire.Closed
	p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	require.True(t, s.region.Superblock().Clean)
	require.Error(t, p.write(o, 2, 0, []byte("late")), "the key ended with the session")
	require.NotEqual(t, "late", string(s.region.Data()[:4]))
}

// The epoch of a grant, the new owner and "unclean" are durable before the initiator
// hears of them: when OPENED arrives, they are in the file.
func TestGrantIsPersistedBeforeTheReply(t *testing.T) {
	path := onDisk(t)
	synced := make(chan region.Superblock, 64)
	s := serveRegion(t, path, func(fd int) error {
		if info, err := region.Inspect(path); err == nil {
			synced <- info.Superblock
		}
		return unix.Fdatasync(fd)
	}, Config{})
	o := s.connect(t).open(alice)
	var last region.Superblock
	for len(synced) > 0 {
		last = <-synced
	}
	require.Equal(t, o.Epoch, last.Epoch)
	require.Equal(t, alice, last.Owner)
	require.False(t, last.Clean)
}

// A grant ends the old session for good. Its connection is gone, its key is useless, and
// a late or repeated OPEN of its epoch is refused.
func TestGrantEndsTheOldSession(t *testing.T) {
	s := newSite(t)
	old := s.connect(t)
	o := old.open(alice)
	next := alice
	next.Nonce = [16]byte{9}
	p := s.connect(t)
	n := p.open(next)
	require.NotEqual(t, o.Key, n.Key)
	require.Equal(t, o.Epoch+1, n.Epoch)
	require.Error(t, old.write(o, 1, 0, []byte("old")))
	require.NotEqual(t, "old", string(s.region.Data()[:3]))

	late := s.connect(t)
	for _, epoch := range []uint64{o.Epoch - 1, o.Epoch, n.Epoch + 1} {
		r := late.refused(alice, epoch)
		require.Equal(t, wire.CodeEpoch, r.Code)
		require.Equal(t, n.Epoch, r.Epoch)
	}
	require.NoError(t, p.write(n, 1, 0, []byte("new")), "none of that affects the owner")

	// The domain of one session never knows the key of another.
	require.Error(t, p.write(o, 2, 0, []byte("key")))
}

// Class volatile also needs the initiator's permission.
func TestVolatileNeedsTheFlag(t *testing.T) {
	s := serveRegion(t, region.PathMemfd, nil, Config{})
	p := s.connect(t)
	var r wire.Refused
	p.ask(&wire.Open{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "log"}, &r)
	require.Equal(t, wire.CodeVolatile, r.Code)
}

// A stranger may not ask for ever.
func TestTooManyOpens(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	for range maxOpens {
		require.Equal(t, wire.CodeEpoch, p.refused(alice, 0).Code)
	}
	p.send((&wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}).Append(nil))
	_, err := p.receive()
	require.ErrorIs(t, err, rdma.ErrLost)
}
