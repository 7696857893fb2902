package ublk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/devicetest"
)

// TestServes writes and reads through the whole way, in sizes that begin, fill, split and leave chunks.
func TestServes(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewMem(t, 16<<20)
	d := serveOn(t, k, dev)
	disk := k.disk(t, 0)
	sizes := []int{512, 4096, backend.ChunkSize - 512, 512, 31 << 10, backend.ChunkSize, 4096, 300 << 10, maxRequest, 1536}
	var sent []*fakeRequest
	off := 0
	for i, n := range sizes {
		sent = append(sent, disk.write(off, backendtest.Pattern(n, uint32(i))))
		off += n
	}
	for i, rq := range sent {
		require.EqualValues(t, sizes[i], <-rq.done)
	}
	off = 0
	for i, n := range sizes {
		require.True(t, bytes.Equal(backendtest.Pattern(n, uint32(i)), disk.read(off, n)), "%d bytes", n)
		off += n
	}
	for name, rq := range map[string]*fakeRequest{
		"flush":   disk.flush(),
		"discard": disk.begin(opDiscard, 0, 4096, nil),
		"zeroes":  disk.begin(opWriteZeroes|flagFUA, 4096, 1<<20, nil),
	} {
		require.Zero(t, <-rq.done, name)
	}
	require.True(t, bytes.Equal(make([]byte, 1<<20), disk.read(4096, 1<<20)))
	shutDown(t, d)

	got := d.Snapshot()
	require.Equal(t, Path(0), got.Path)
	require.EqualValues(t, len(sizes), got.Commands.Write.Requests)
	require.EqualValues(t, off, got.Commands.Write.Bytes)
	require.EqualValues(t, 1, got.Commands.WriteZeroes.FUA)
	require.EqualValues(t, 1, got.Commands.Flush.Requests)
	require.EqualValues(t, 1, got.Latency.FUA.Count())
}

// TestLimits checks what the kernel is told.
func TestLimits(t *testing.T) {
	k := newKernel()
	d := serveOn(t, k, devicetest.NewMem(t, 1<<20), func(cfg *Config) { cfg.ReadOnly = true })
	fake := k.devices[0]
	require.Equal(t, params{readOnly: true, sectors: 2048, maxIO: 2048, maxZero: 1 << 21}, fake.params)
	require.EqualValues(t, features, fake.info.flags)
	require.EqualValues(t, identity, fake.info.identity)
	shutDown(t, d)

	small := shaped{devicetest.NewMem(t, 1<<20), func(in *backend.Info) { in.MaxRequest, in.CanZero = 70_000, false }}
	d = serveOn(t, k, small, func(cfg *Config) { cfg.Number = 5 })
	require.Equal(t, params{sectors: 2048, maxIO: 136}, k.devices[5].params)
	require.Equal(t, 5, d.Number())
	shutDown(t, d)
	require.Zero(t, k.hosts)
}

// TestRefused: what the parser refuses gets its error, and the device hears nothing of it.
func TestRefused(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewSlow(t, 1<<20)
	d := serveOn(t, k, dev)
	disk := k.disk(t, 0)
	p := make([]byte, 1<<20)
	for name, tt := range map[string]struct {
		rq   *fakeRequest
		want unix.Errno
	}{
		"past the end":    {disk.begin(opWrite, 1<<20-512, 1024, p), unix.ENOSPC},
		"far past it":     {disk.begin(opRead, 1<<40, 512, p), unix.ENOSPC},
		"nothing":         {disk.begin(opRead, 0, 0, nil), unix.EINVAL},
		"unknown command": {disk.begin(9, 0, 512, nil), unix.ENOTSUP},
	} {
		require.EqualValues(t, -int32(tt.want), <-tt.rq.done, name)
	}
	shutDown(t, d)
	require.Empty(t, dev.Batches())
}

// TestBatches: what came together is submitted together, and writes that the device acknowledges are
// answered before it posts.
func TestBatches(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewSlow(t, 1<<20)
	d := serveOn(t, k, dev)
	disk := k.disk(t, 0)
	// The queue sleeps or not; lock it out while the requests come.
	k.mu.Lock()
	var sent []*fakeRequest
	q := k.devices[0].queues[0]
	for i := range 10 {
		rq := &fakeRequest{desc: descriptor{opFlush, 0, 0}, done: make(chan int32, 1)}
		sent = append(sent, rq)
		delete(q.fetched, uint16(i))
		q.delivered[uint16(i)] = rq
		q.cq = append(q.cq, completion{tag: uint32(i)})
	}
	k.changed.Broadcast()
	k.mu.Unlock()
	dev.Wait(10)
	require.Equal(t, []int{10}, dev.Batches())
	dev.Release(dev.Held())
	for _, rq := range sent {
		require.Zero(t, <-rq.done)
	}
	_ = disk
	shutDown(t, d)
}

// A posting device notes what was answered when Post was called.
type posting struct {
	*devicetest.Slow
	post func()
}

func (d posting) Post() { d.post() }

func TestAnswersBeforePost(t *testing.T) {
	k := newKernel()
	dev := posting{Slow: devicetest.NewSlow(t, 1<<20)}
	dev.Through = func(*backend.Op) bool { return true }
	var rq *fakeRequest
	answered := make(chan int, 1)
	dev.post = func() { answered <- len(rq.done) }
	d := serveOn(t, k, dev)
	p := make([]byte, 4096)
	rq = &fakeRequest{desc: descriptor{opWrite, 8, 0}, payload: p, done: make(chan int32, 1)}
	k.mu.Lock()
	k.devices[0].deliverLocked(rq)
	k.mu.Unlock()
	require.Equal(t, 1, <-answered)
	shutDown(t, d)
}

// TestCopyFails: a payload that cannot be copied fails its request alone, and leaves no memory behind.
func TestCopyFails(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewWindowed(t, 1<<20, 8, Queues(), 100)
	d := serveOn(t, k, dev)
	disk := k.disk(t, 0)
	set := func(err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, q := range disk.d.queues {
			q.copies = err
		}
	}
	set(unix.EFAULT)
	require.EqualValues(t, -int32(unix.EIO), <-disk.write(0, make([]byte, 4096)).done)
	require.EqualValues(t, -int32(unix.EIO), <-disk.begin(opRead, 0, 4096, make([]byte, 4096)).done)
	set(nil)
	require.EqualValues(t, 4096, <-disk.write(0, make([]byte, 4096)).done)
	shutDown(t, d)
}

// TestOpenFails: a start that fails leaves no thread, no file and no block device.
func TestOpenFails(t *testing.T) {
	for name, tt := range map[string]struct {
		kernel func(*fakeKernel)
		dev    func(*backend.Info)
		config func(*Config)
		says   string
	}{
		"an old kernel":        {kernel: func(k *fakeKernel) { k.features = featureRecovery }, says: "needs Linux 6.5"},
		"no queue":             {kernel: func(k *fakeKernel) { k.lie = func(i *info) { i.queues = 0 } }, says: "0 queues"},
		"too many queues":      {kernel: func(k *fakeKernel) { k.lie = func(i *info) { i.queues = MaxQueues + 1 } }, says: "9 queues"},
		"another depth":        {kernel: func(k *fakeKernel) { k.lie = func(i *info) { i.depth = 4096 } }, says: "queues of 4096"},
		"features taken away":  {kernel: func(k *fakeKernel) { k.lie = func(i *info) { i.flags &^= featureUserCopy } }, says: "features"},
		"refused fetches":      {kernel: func(k *fakeKernel) { k.refuse = -int32(unix.EINVAL) }, says: "refuses to deliver"},
		"a number that is had": {kernel: func(k *fakeKernel) { k.devices[3] = &fakeDevice{k: k} }, config: func(c *Config) { c.Number = 3 }, says: "exists already"},
		"half a sector":        {dev: func(in *backend.Info) { in.Size = 1000 }, says: "whole sectors"},
		"large blocks":         {dev: func(in *backend.Info) { in.BlockMin = 4096 }, says: "blocks of 4096"},
		"small requests":       {dev: func(in *backend.Info) { in.MaxRequest = 2048 }, says: "needs 4096"},
		"nothing to continue":  {config: func(c *Config) { c.Recover = true }, says: "no such block device"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			if tt.kernel != nil {
				tt.kernel(k)
			}
			had := len(k.devices)
			if tt.dev == nil {
				tt.dev = func(*backend.Info) {}
			}
			cfg := Config{Device: shaped{devicetest.NewMem(t, 1<<20), tt.dev}, Identity: identity, host: k.host()}
			if tt.config != nil {
				tt.config(&cfg)
			}
			_, err := Open(t.Context(), cfg)
			require.ErrorContains(t, err, tt.says)
			require.Zero(t, k.hosts)
			require.Len(t, k.devices, had)
		})
	}
}

// TestBreach: a kernel that says what it cannot say ends the server. The queue first waits for its device:
// as long as a WRITE is in there, the kernel must not give it to the next server.
func TestBreach(t *testing.T) {
	for name, c := range map[string]completion{
		"a tag that there is not":   {tag: depth},
		"a tag beyond 16 bits":      {tag: 1<<16 + 1},
		"a tag that is ours":        {tag: 0},
		"a fetch that fails":        {tag: 1, result: -int32(unix.EINVAL)},
		"a result that nobody asks": {tag: 1, result: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				dev := devicetest.NewSlow(t, 1<<20)
				d := serveOn(t, k, dev)
				q := d.queues[0].port.(*fakeQueue)
				rq := &fakeRequest{desc: descriptor{opWrite, 8, 0}, payload: make([]byte, 4096), done: make(chan int32, 1)}
				k.mu.Lock()
				delete(q.fetched, 0)
				q.delivered[0] = rq
				q.cq = append(q.cq, completion{tag: 0})
				k.changed.Broadcast()
				k.mu.Unlock()
				dev.Wait(1)
				k.mu.Lock()
				q.cq = append(q.cq, c)
				k.changed.Broadcast()
				k.mu.Unlock()
				synctest.Wait()
				require.False(t, q.closed, "the device still has the WRITE")
				require.True(t, d.Ending(), "the other queues take nothing more")
				require.Empty(t, k.devices[0].waiting)
				dev.Release(dev.Held())
				<-d.Done()
				require.ErrorContains(t, d.Err(), "the kernel")
				require.Empty(t, rq.done, "the next server answers it")
				require.Equal(t, []*fakeRequest{rq}, k.devices[0].waiting)
			})
		})
	}
}

// TestRemoved: a block device that somebody removes ends, with what was under way answered first.
func TestRemoved(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewSlow(t, 1<<20)
	d := serveOn(t, k, dev)
	rq := k.disk(t, 0).flush()
	dev.Wait(1)
	require.False(t, d.Ending())
	removed := make(chan error, 1)
	require.ErrorIs(t, orderOf(k, cmdStop, "stop", 0, identity+1), ErrOther)
	go func() {
		removed <- errors.Join(orderOf(k, cmdStop, "stop", 0, identity), orderOf(k, cmdDelete, "remove", 0, identity))
	}()
	dev.Release(dev.Held())
	require.Zero(t, <-rq.done)
	require.NoError(t, <-removed)
	require.True(t, d.Ending())
	<-d.Done()
	require.ErrorIs(t, d.Err(), ErrRemoved)
	require.ErrorIs(t, orderOf(k, cmdStop, "stop", 0, identity), ErrNone)
	require.NoError(t, d.Shutdown(t.Context()), "it is over")
}

// TestRemovedAndBegun: somebody removes a block device. Between the two steps of that a server begins with its number
// again, for the same region. That block device stays.
func TestRemovedAndBegun(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewMem(t, 1<<20)
	d := serveOn(t, k, dev)
	require.NoError(t, orderOf(k, cmdStop, "stop", 0, identity))
	<-d.Done()
	d = serveOn(t, k, dev, continued)
	require.NoError(t, orderOf(k, cmdDelete, "remove", 0, identity))
	require.Zero(t, <-k.disk(t, 0).flush().done)
	shutDown(t, d)
}

// TestRecovery: what a server has not answered, the next one gets; what it has answered, it does not.
func TestRecovery(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewSlow(t, 1<<20)
	d := serveOn(t, k, dev)
	disk := k.disk(t, 0)
	old := disk.write(0, backendtest.Pattern(4096, 1))
	dev.Wait(1)
	dev.Release(dev.Held())
	require.EqualValues(t, 4096, <-old.done)
	shutDown(t, d)

	// Nobody serves: requests wait.
	later := disk.write(4096, backendtest.Pattern(4096, 2))
	require.Zero(t, later.tries)
	k.devices[0].dying = 3 // the process takes its time to end
	d = serveOn(t, k, dev, continued)
	dev.Wait(1)
	dev.Release(dev.Held())
	require.EqualValues(t, 4096, <-later.done)
	require.Equal(t, 1, old.tries)
	shutDown(t, d)
	require.Zero(t, k.hosts)
}

// TestClosedDeviceLeavesRequests: a device that is closed while requests are under way has not executed
// them. The kernel must not hear of an error: the next server executes them.
func TestClosedDeviceLeavesRequests(t *testing.T) {
	k := newKernel()
	k.queues = 1 // another one would end at once, and the kernel would keep what comes then
	dev := devicetest.NewSlow(t, 1<<20)
	d := serveOn(t, k, dev)
	disk := k.disk(t, 0)
	rq := disk.write(0, backendtest.Pattern(4096, 1))
	dev.Wait(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, d.Shutdown(ctx), context.Canceled)
	fresh := disk.flush() // it comes too late
	k.taken(0)
	op := dev.Take(1)[0]
	op.Err = fmt.Errorf("the target is away: %w", backend.ErrClosed)
	sink := op.Sink
	sink.Complete(op)
	sink.Kick()
	<-d.Done()
	require.NoError(t, d.Err())
	require.Empty(t, rq.done)
	require.Empty(t, fresh.done)

	next := devicetest.NewMem(t, 1<<20)
	d = serveOn(t, k, next, continued)
	require.EqualValues(t, 4096, <-rq.done)
	require.Zero(t, <-fresh.done)
	require.True(t, bytes.Equal(backendtest.Pattern(4096, 1), disk.read(0, 4096)))
	shutDown(t, d)
}

// TestRecoveryRefused: a block device of somebody else, or one that asks for more than the device has, is
// left as it is.
func TestRecoveryRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		dev    func(*backend.Info)
		config func(*Config)
		kernel func(*fakeKernel)
		says   string
	}{
		"another identity":   {config: func(c *Config) { c.Identity++ }, says: "somebody else's"},
		"too large requests": {dev: func(in *backend.Info) { in.MaxRequest = 64 << 10 }, says: "larger --window"},
		"another size":       {dev: func(in *backend.Info) { in.Size = 512 << 10 }, says: "524288 bytes"},
		"made read-only":     {config: func(c *Config) { c.ReadOnly = true }, says: "read-only"},
		"lies":               {kernel: func(k *fakeKernel) { k.lie = func(i *info) { i.queues = 100 } }, says: "100 queues"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			dev := devicetest.NewMem(t, 1<<20)
			shutDown(t, serveOn(t, k, dev))
			rq := k.disk(t, 0).write(0, make([]byte, 4096))
			cfg := Config{Device: dev, Identity: identity, Recover: true, host: k.host()}
			if tt.dev != nil {
				cfg.Device = shaped{dev, tt.dev}
			}
			if tt.config != nil {
				tt.config(&cfg)
			}
			if tt.kernel != nil {
				tt.kernel(k)
			}
			_, err := Open(t.Context(), cfg)
			require.ErrorContains(t, err, tt.says)
			require.Zero(t, k.hosts)
			require.Empty(t, rq.done)
			k.lie = nil
			d := serveOn(t, k, dev, continued)
			require.EqualValues(t, 4096, <-rq.done)
			shutDown(t, d)
		})
	}
}

// TestRecoveryWaits: the former server's process still lives.
func TestRecoveryWaits(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewMem(t, 1<<20)
	d := serveOn(t, k, dev)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, Config{Device: dev, Identity: identity, Recover: true, host: k.host()})
	require.ErrorContains(t, err, "has not ended")
	require.EqualValues(t, 4096, <-k.disk(t, 0).write(0, make([]byte, 4096)).done, "it is not disturbed")
	shutDown(t, d)
}
