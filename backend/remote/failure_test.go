package remote

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/testhost"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// requireFailed says that the device answers everything with EIO, for good.
func requireFailed(t *testing.T, c *backendtest.Client) {
	t.Helper()
	fua := c.Write(0, backendtest.Pattern(block, 9), 0)
	fua.FUA = true
	for _, r := range []*backendtest.Request{c.Write(0, backendtest.Pattern(block, 9), 0), fua, c.Read(0, block, 0), c.Flush()} {
		err := c.Do(r)
		require.ErrorIs(t, err, backend.ErrFailed, "%v", r.Cmd)
		require.Equal(t, backend.EIO, backend.ErrnoOf(err))
	}
}

// A sync that fails is an error for whoever asked, the device and the region have
// failed, and nothing but an operator helps: a sync that succeeds later proves
// nothing, for the kernel calls the lost pages clean.
func TestFailedSync(t *testing.T) {
	path := filepath.Join(testhost.Disk(t), "region")
	provider := rdmafake.New(rdmafake.Config{})
	t.Run("fails", func(t *testing.T) {
		p := newPair(t, provider, "", path, target.Config{})
		d := p.dial(t)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		p.sync.fail(unix.EIO)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)), "acknowledged early")
		require.ErrorIs(t, c.Do(c.Flush()), backend.ErrFailed)
		p.sync.fail(nil)
		requireFailed(t, c)
		require.Error(t, d.Close())

		_, err := Dial(context.Background(), p.config(t))
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, wire.CodeFailed, refused.said.Code)
	})
	t.Run("stays failed across a restart", func(t *testing.T) {
		p := newPair(t, provider, "", path, target.Config{})
		_, err := Dial(context.Background(), p.config(t))
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, wire.CodeFailed, refused.said.Code)
	})
	t.Run("cleared", func(t *testing.T) {
		require.NoError(t, region.Clear(path, "the test looked at it"))
		p := newPair(t, provider, "", path, target.Config{})
		d := p.dial(t)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 3), 0), c.Flush()))
		require.NoError(t, d.Close())
	})
}

// A sync that fails fails everybody who waits, also those of the next barrier.
func TestFailedSyncFailsAllWhoWait(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	release := p.sync.block()
	p.sync.fail(unix.ENOSPC)
	first := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), first)
	<-p.sync.began
	second := c.Write(block, backendtest.Pattern(block, 1), 0)
	second.FUA = true
	c.Submit(second)
	release()
	require.ErrorIs(t, c.Wait(first), backend.ErrFailed)
	require.ErrorIs(t, c.Wait(second), backend.ErrFailed)
	require.NotZero(t, d.Unflushed(), "what is lost can be counted")
	require.Error(t, d.Close())
}

// Whoever waits for room in a full window wakes when the barrier that was to make
// it fails, and is told by the write that follows.
func TestFullWindowAndAFailedBarrier(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	arena := d.Arenas().Write
	release := p.sync.block()
	p.sync.fail(unix.EIO)
	for arena.Pins().Free() > 0 {
		c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0)) // pins a chunk
	}
	<-p.sync.began // the window's own barrier, at half
	got, room := make(chan []*backend.Chunk), backend.NewAdmission(d.Arenas())
	go func() {
		chunks, _ := room.Reserve(nil, nil, 3, t.Context().Done())
		got <- chunks
	}()
	require.Eventually(t, arena.Waiting, patience, tick)
	release()
	for _, chunk := range <-got {
		chunk.Release()
	}
	room.Unpin()
	requireFailed(t, c)
	backendtest.AllBack(t, d)
	require.Error(t, d.Close())
}

// A connection that breaks fails the device: whatever was asked for and not
// answered gets an error, FLUSH never success, and nothing is leaked.
func TestLostConnection(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	wire := p.provider.(*rdmafake.Provider)
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	wire.Pause()
	flush, fua, read := c.Flush(), c.Write(block, backendtest.Pattern(block, 2), 0), c.Read(0, 3*block, 0)
	fua.FUA = true
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	c.Submit(fua, read)
	wire.Cut()
	for _, r := range []*backendtest.Request{flush, fua, read} {
		require.ErrorIs(t, c.Wait(r), backend.ErrFailed)
		require.ErrorIs(t, r.Err, rdma.ErrLost, "the cause is told")
	}
	requireFailed(t, c)
	backendtest.AllBack(t, d)
	require.ErrorIs(t, d.Close(), backend.ErrFailed)
}

// A target that says nothing for a lease has gone, whatever the transport thinks.
func TestSilentTarget(t *testing.T) {
	p := newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 10 * time.Millisecond, Lease: 50 * time.Millisecond})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	p.provider.(*rdmafake.Provider).Pause()
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	require.ErrorIs(t, c.Wait(flush), backend.ErrFailed)
	require.ErrorIs(t, flush.Err, rdma.ErrTimeout)
	require.Error(t, d.Close())
}

// Close flushes what nobody flushed.
func TestCloseFlushes(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	require.Zero(t, p.targetBarriers())
	require.NoError(t, d.Close())
	require.EqualValues(t, 1, p.targetBarriers())
	require.Equal(t, backendtest.Pattern(block, 1), p.region.Data()[:block])
	require.True(t, p.region.Superblock().Clean)
	require.ErrorIs(t, c.Do(c.Flush()), backend.ErrClosed)
}

// CLOSE does not overtake a READ, whose key it would end.
func TestCloseWaitsForReads(t *testing.T) {
	for range 20 {
		p := fake(t, rdmafake.Config{})
		network := p.provider.(*rdmafake.Provider)
		d := p.dialLanes(t, 2)
		c := backendtest.NewClient(t, d)
		network.Pause()
		reads := []*backendtest.Request{c.Read(0, block, 0), c.Read(1<<20, block, 0)}
		c.Submit(reads...)
		closed := make(chan error)
		go func() { closed <- d.Close() }()
		network.Resume()
		require.NoError(t, <-closed)
		require.NoError(t, c.Wait(reads...))
	}
}

// A target that answers nonsense is a lost connection, never a success.
func TestNonsenseFromTheTarget(t *testing.T) {
	ack := wire.BarrierAck{Seq: 99, Last: true}
	fail := wire.BarrierFail{Seq: 1, Code: wire.CodeFailed, Text: "no"}
	for name, msg := range map[string][]byte{
		"garbage":                     []byte("hello"),
		"ack of a barrier never sent": ack.Append(nil),
		"a message of the initiator":  (&wire.Heartbeat{Seq: 1}).Append(nil),
		"a barrier that failed":       fail.Append(nil),
		"cut off":                     ack.Append(nil)[:20],
	} {
		t.Run(name, func(t *testing.T) {
			p := fake(t, rdmafake.Config{})
			d := p.dial(t)
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			l := d.legs[0].lanes[0]
			copy(l.recvs.Mem, msg)
			l.mu.Lock()
			_, err := l.receiveLocked(rdma.Completion{ID: tagRecv, Op: rdma.OpRecv, Len: uint32(len(msg))})
			l.mu.Unlock()
			require.Error(t, err)
			l.abort(err)
			require.ErrorIs(t, c.Do(c.Flush()), backend.ErrFailed)
			require.Error(t, d.Close())
		})
	}
}
