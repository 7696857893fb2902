package ublk

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/internal/devicetest"
)

// TestOwnThread: a queue's thread is not the first of the process, which would not end with the queue.
func TestOwnThread(t *testing.T) {
	require.Equal(t, unix.Getpid(), onFirst[0])
	require.NotEqual(t, unix.Getpid(), onFirst[1])
	ended := make(chan int)
	go ownThread(func() { ended <- unix.Gettid() })
	require.NotEqual(t, unix.Getpid(), <-ended)
}

// The ports of queues are closed when all their threads have ended: see Device.detach. Here the first
// thread takes its time.
func TestPortOutlivesItsThread(t *testing.T) {
	k := newKernel()
	d := serveOn(t, k, devicetest.NewMem(t, 1<<20))
	looks := 0
	var closed []int // how many looks there had been
	k.lives = func() bool { looks++; return looks < 3 }
	k.closing = func() { closed = append(closed, looks) }
	require.NoError(t, d.Shutdown(context.Background()))
	require.Len(t, closed, len(d.queues))
	for _, n := range closed {
		require.Equal(t, 2+len(d.queues), n, "each thread has been seen to be gone")
	}
}

// TestRecoveryCutShort kills servers while they take a device over. The next one goes on, or says that the
// kernel does not let it. It never makes an old kernel crash.
func TestRecoveryCutShort(t *testing.T) {
	const old, since616 = features, features | featureQuiesce
	for name, tt := range map[string]struct {
		kernel uint64
		cut    func(*fakeDevice)
		stuck  bool
	}{
		"before it began":                    {kernel: old, cut: func(*fakeDevice) {}},
		"behind the command":                 {kernel: old, cut: (*fakeDevice).resetLocked},
		"behind the mapping":                 {kernel: old, cut: func(d *fakeDevice) { d.resetLocked(); d.mapped = true }, stuck: true},
		"between two queues":                 {kernel: old, cut: func(d *fakeDevice) { d.resetLocked(); d.mapped, d.owners[1] = true, true }, stuck: true},
		"a newer kernel, before it began":    {kernel: since616, cut: func(*fakeDevice) {}},
		"a newer kernel, between two queues": {kernel: since616, cut: (*fakeDevice).resetLocked}, // closing the device did that
	} {
		t.Run(name, func(t *testing.T) {
			k, dev := newKernel(), devicetest.NewMem(t, 1<<20)
			k.features = tt.kernel
			k.lie = func(i *info) { i.queues = 2 }
			k.queues = 2
			shutDown(t, serveOn(t, k, dev))
			disk := k.disk(t, 0)
			rq := disk.write(0, make([]byte, 4096))
			k.mu.Lock()
			tt.cut(disk.d)
			k.mu.Unlock()
			if tt.stuck {
				_, err := Open(t.Context(), Config{Device: dev, Identity: identity, Recover: true, host: k.host()})
				require.ErrorIs(t, err, ErrHalf)
				require.Zero(t, k.hosts)
				require.Empty(t, rq.done)
				return
			}
			d := serveOn(t, k, dev, continued)
			require.EqualValues(t, 4096, <-rq.done)
			shutDown(t, d)
		})
	}
}

// TestNeverBegun: a device that is stopped, or whose server was killed before it began, is made anew.
func TestNeverBegun(t *testing.T) {
	for name, began := range map[string]bool{"stopped": true, "never began": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, dev := newKernel(), devicetest.NewMem(t, 1<<20)
				if began {
					d := serveOn(t, k, dev)
					require.NoError(t, orderOf(k, cmdStop, "stop", 0, identity))
					<-d.Done()
				} else {
					buf := make([]byte, infoSize)
					(&info{queues: 1, depth: depth, id: 0, flags: features, identity: identity}).put(buf)
					require.NoError(t, k.command(cmdAdd, 0, 0, buf))
				}
				was := k.disk(t, 0).d

				was.open = true // somebody's, or the former server's
				ctx, cancel := context.WithTimeout(t.Context(), pollRecovery)
				defer cancel()
				_, err := Open(ctx, Config{Device: dev, Identity: identity, Recover: true, host: k.host()})
				require.ErrorContains(t, err, "a process still has it open")
				require.NoError(t, was.close())
				synctest.Wait() // it is gone now

				k.mu.Lock()
				k.devices[0] = was
				k.mu.Unlock()
				d := serveOn(t, k, dev, continued)
				require.NotSame(t, was, k.disk(t, 0).d)
				require.EqualValues(t, 4096, <-k.disk(t, 0).write(0, make([]byte, 4096)).done)
				shutDown(t, d)
			})
		})
	}
}

// TestBeginsWithoutTarget: the kernel looks for partitions, and the device does not answer. The start can be
// ended, so that the process can end, and leaves no block device. Memory stays with the device while it has it.
func TestBeginsWithoutTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, dev := newKernel(), devicetest.NewSlow(t, 1<<20)
		k.scans = 1
		ctx, cancel := context.WithCancel(t.Context())
		opened := make(chan error, 1)
		go func() {
			_, err := Open(ctx, Config{Device: dev, Identity: identity, host: k.host()})
			opened <- err
		}()
		dev.Wait(1)
		synctest.Wait()
		require.Empty(t, opened)
		cancel()
		synctest.Wait()
		require.Equal(t, []int32{-int32(unix.EIO)}, k.scanned)
		require.Empty(t, opened, "the device still has the READ")
		dev.Release(1)
		require.ErrorIs(t, <-opened, context.Canceled)
		require.Empty(t, k.devices)
	})
}

// TestStartLeavesNothing: the kernel looks for partitions, and the start waits for that. Meanwhile the device is closed, or
// a queue fails. What the kernel reads then fails. It does not wait for the next server, which could not begin.
func TestStartLeavesNothing(t *testing.T) {
	for name, breaks := range map[string]func(*devicetest.Slow, *fakeDevice){
		"the device is closed": func(dev *devicetest.Slow, _ *fakeDevice) {
			for range 2 {
				dev.Wait(1)
				op := dev.Take(1)[0]
				op.Err = backend.ErrClosed
				sink := op.Sink
				sink.Complete(op)
				sink.Kick()
			}
		},
		"another queue fails": func(dev *devicetest.Slow, d *fakeDevice) {
			d.k.mu.Lock()
			for _, q := range d.queues {
				if len(q.delivered) == 0 {
					clear(q.fetched)
					q.cq = append(q.cq, completion{tag: depth})
				}
			}
			d.k.changed.Broadcast()
			d.k.mu.Unlock()
			synctest.Wait() // until the other one knows
			dev.Release(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, dev := newKernel(), devicetest.NewSlow(t, 1<<20)
				k.queues, k.scans = 2, 2
				var d *Device
				opened := make(chan error, 1)
				go func() {
					var err error
					d, err = Open(t.Context(), Config{Device: dev, Identity: identity, host: k.host()})
					opened <- err
				}()
				dev.Wait(1)
				breaks(dev, k.disk(t, 0).d)
				require.NoError(t, <-opened)
				require.Equal(t, []int32{-int32(unix.EIO), -int32(unix.EIO)}, k.scanned)
				require.NoError(t, d.Shutdown(t.Context()))
			})
		})
	}
}

// TestForgotten: an old kernel may act late on the end of a server, and take the next one for ended. Its requests then
// wait for one more, which may be the same process.
func TestForgotten(t *testing.T) {
	for name, tt := range map[string]struct {
		forget func(*fakeDevice)
		gone   bool
		late   bool // the device can be continued when requests have timed out
	}{
		"in service":                   {forget: func(d *fakeDevice) { d.state = stateQuiesced }},
		"before END_USER_RECOVERY":     {forget: func(*fakeDevice) {}, late: true}, // which makes it live
		"somebody made another device": {forget: func(d *fakeDevice) { d.state = stateQuiesced; d.info.identity++ }, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, dev := newKernel(), devicetest.NewMem(t, 1<<20)
				shutDown(t, serveOn(t, k, dev))
				d := serveOn(t, k, dev, continued)
				disk := k.disk(t, 0)
				k.mu.Lock()
				tt.forget(disk.d)
				disk.d.cancelLocked()
				k.mu.Unlock()
				<-d.Done()
				require.Equal(t, tt.gone, errors.Is(d.Err(), ErrRemoved))
				require.Equal(t, !tt.gone, errors.Is(d.Err(), ErrForgotten))
				require.Zero(t, k.hosts)
				if tt.gone {
					return
				}
				if tt.late {
					time.AfterFunc(30*time.Second, func() {
						k.mu.Lock()
						disk.d.state = stateQuiesced
						k.mu.Unlock()
					})
				}
				rq := disk.write(0, make([]byte, 4096))
				require.Empty(t, rq.done)
				d = serveOn(t, k, dev, continued)
				require.EqualValues(t, 4096, <-rq.done)
				shutDown(t, d)
			})
		})
	}
}

// TestSettle: an old kernel gets time to act on the end of a server before there is another one.
func TestSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		kernel  uint64
		settled int
	}{
		"old":           {features, 1},
		"6.16 or newer": {features | featureQuiesce, 0},
	} {
		t.Run(name, func(t *testing.T) {
			k, dev := newKernel(), devicetest.NewMem(t, 1<<20)
			k.features = tt.kernel
			shutDown(t, serveOn(t, k, dev))
			require.Zero(t, k.settled)
			shutDown(t, serveOn(t, k, dev, continued))
			require.Equal(t, tt.settled, k.settled)
		})
	}
}

// TestTakeOverCancelled: a take-over whose context ends while it waits for the kernel takes nothing. The next one continues
// the device.
func TestTakeOverCancelled(t *testing.T) {
	k, dev := newKernel(), devicetest.NewMem(t, 1<<20)
	shutDown(t, serveOn(t, k, dev))
	disk := k.disk(t, 0)
	rq := disk.write(0, make([]byte, 4096))
	ctx, cancel := context.WithCancel(t.Context())
	k.settles = cancel
	_, err := Open(ctx, Config{Device: dev, Identity: identity, Recover: true, host: k.host()})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, disk.d.mapped)
	require.Zero(t, rq.tries)
	require.Zero(t, k.hosts)
	d := serveOn(t, k, dev, continued)
	require.EqualValues(t, 4096, <-rq.done)
	shutDown(t, d)
}

// TestStopsBeforeItFetches: a queue that stops before it fetches says so, although the other queues fetch already. Open
// waits for the word of each queue.
func TestStopsBeforeItFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, cfg := newKernel(), Config{Device: devicetest.NewMem(t, 1<<20)}
		buf := make([]byte, infoSize)
		(&info{queues: 2, depth: depth, flags: features, identity: identity}).put(buf)
		require.NoError(t, k.command(cmdAdd, 0, 0, buf))
		d := &Device{host: k.host(), begin: make(chan struct{}), done: make(chan struct{})}
		r, _, err := cfg.limits()
		require.NoError(t, err)
		require.NoError(t, d.prepare(&cfg, r, 2))
		d.halt() // as another queue does that fails
		d.wg.Wait()
		require.ErrorContains(t, d.fetch(), "the device did not begin")
		require.NoError(t, d.abandon())
	})
}
