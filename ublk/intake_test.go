package ublk

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/devicetest"
)

// waiting makes the device say when somebody waits for a pin or an entry. Once retires is set, who waits
// makes room.
func waiting(d *devicetest.Windowed) (w chan struct{}, retires *atomic.Bool) {
	w, retires = make(chan struct{}, 2*depth), new(atomic.Bool)
	pressure := func() {
		if retires.Load() {
			d.Retire()
			return
		}
		w <- struct{}{}
	}
	d.Arenas().Write.Pins().Pressure, d.Arenas().Entries.Pressure = pressure, pressure
	return w, retires
}

// TestWindowFull: WRITEs wait for room in the window, and everything else goes on. When there is room they
// are all done, with few chunks: they share those.
func TestWindowFull(t *testing.T) {
	for name, size := range map[string]struct{ chunks, entries int }{
		"no chunk is left": {8, 1000},
		"no entry is left": {64, 12},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			dev := devicetest.NewWindowed(t, 32<<20, size.chunks, Queues(), size.entries)
			dev.Hold()
			waits, retires := waiting(dev)
			d := serveOn(t, k, dev)
			disk := k.disk(t, 0)
			// Each begins where the one before ended, and has a length of its own.
			var sent []*fakeRequest
			off := 0
			for i := range 40 {
				n := 4096 * (1 + i*7%40)
				sent = append(sent, disk.write(off, backendtest.Pattern(n, uint32(i))))
				off += n
			}
			<-waits
			require.Len(t, disk.read(0, 4096), 4096)
			dev.Let()
			retires.Store(true)
			for {
				select {
				case <-waits:
					dev.Retire()
					continue
				case n := <-sent[0].done:
					require.EqualValues(t, len(sent[0].payload), n)
					sent = sent[1:]
				}
				if len(sent) == 0 {
					break
				}
			}
			off = 0
			for i := range 40 {
				n := 4096 * (1 + i*7%40)
				require.True(t, bytes.Equal(backendtest.Pattern(n, uint32(i)), disk.read(off, n)), "write %d", i)
				off += n
			}
			shutDown(t, d)
		})
	}
}

// TestShutdownWhileWaiting: a request that waits for room is left to the next server. So is one whose
// zeroes wait.
func TestShutdownWhileWaiting(t *testing.T) {
	for name, op := range map[string]uint32{"write": opWrite, "zeroes": opWriteZeroes} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			dev := devicetest.NewWindowed(t, 8<<20, 4, Queues(), 4)
			dev.Hold()
			waits, _ := waiting(dev)
			d := serveOn(t, k, dev)
			disk := k.disk(t, 0)
			for i := range 4 { // all entries
				require.EqualValues(t, 4096, <-disk.write(i*4096, make([]byte, 4096)).done)
			}
			var late []*fakeRequest
			for i := range 3 {
				late = append(late, disk.begin(op, (10+i)*4096, 4096, backendtest.Pattern(4096, uint32(i))))
			}
			<-waits
			shutDown(t, d)
			for _, rq := range late {
				require.Empty(t, rq.done)
			}
			next := devicetest.NewMem(t, 8<<20)
			d = serveOn(t, k, next, continued)
			for _, rq := range late {
				require.GreaterOrEqual(t, <-rq.done, int32(0))
			}
			shutDown(t, d)
		})
	}
}

// TestReadArenaFull: a READ waits for memory of the read arena, and WRITEs go on.
func TestReadArenaFull(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewMem(t, 1<<20)
	arena := dev.Arenas().Read
	held, ok := arena.TryGet(nil, arena.Budget().Total())
	require.True(t, ok)
	waits := make(chan struct{}, depth)
	arena.Budget().Pressure = func() { waits <- struct{}{} }
	d := serveOn(t, k, dev)
	disk := k.disk(t, 0)
	p := make([]byte, 4096)
	read := disk.begin(opRead, 0, 4096, p)
	<-waits
	require.EqualValues(t, 4096, <-disk.write(0, backendtest.Pattern(4096, 1)).done)
	for _, c := range held {
		c.Release()
	}
	require.EqualValues(t, 4096, <-read.done)
	require.True(t, bytes.Equal(backendtest.Pattern(4096, 1), p))
	shutDown(t, d)
}

// TestFewChunks: small payloads share chunks. A chunk for each would fill the window with little.
func TestFewChunks(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewWindowed(t, 8<<20, 16, Queues(), 1000)
	dev.Hold()
	d := serveOn(t, k, dev)
	disk := k.disk(t, 0)
	for i := range 60 {
		require.EqualValues(t, 4096, <-disk.write(i*4096, make([]byte, 4096)).done)
	}
	require.LessOrEqual(t, 16-dev.Arenas().Write.Pins().Free(), len(d.queues))
	shutDown(t, d)
}

// A scriptPort is a port for one thread that allocates nothing: it delivers what the test has put into ready.
type scriptPort struct {
	desc      [depth]descriptor
	ready     []completion
	committed int
	result    int32
}

func (p *scriptPort) descriptor(tag uint16) descriptor { return p.desc[tag] }
func (p *scriptPort) fetch(uint16)                     {}
func (p *scriptPort) commit(_ uint16, result int32)    { p.committed++; p.result = result }
func (p *scriptPort) enter(bool) error                 { return nil }
func (p *scriptPort) next() (completion, bool) {
	if len(p.ready) == 0 {
		return completion{}, false
	}
	c := p.ready[0]
	p.ready = p.ready[:copy(p.ready, p.ready[1:])]
	return c, true
}
func (p *scriptPort) receive(uint16, int, []byte) error { return nil }
func (p *scriptPort) send(uint16, int, []byte) error    { return nil }
func (p *scriptPort) wake()                             {}
func (p *scriptPort) close() error                      { return nil }

func TestAllocatesNothing(t *testing.T) {
	for _, op := range []uint32{opRead, opWrite, opWrite | flagFUA, opFlush, opDiscard, opWriteZeroes} {
		for _, n := range []uint32{8, 600, 2048} {
			t.Run(fmt.Sprintf("%#x of %d sectors", op, n), func(t *testing.T) {
				q := newQueue(devicetest.NewMem(t, 1<<20), rules{size: 1 << 20, maxIO: maxRequest, maxZero: 1 << 20})
				p := &scriptPort{ready: make([]completion, 0, depth)}
				q.own(p)
				require.NoError(t, q.fetch())
				tag := uint16(0)
				got := testing.AllocsPerRun(100, func() {
					for range 4 {
						p.desc[tag] = descriptor{op, n, 0}
						p.ready = append(p.ready, completion{tag: uint32(tag)})
						tag = (tag + 1) % depth
					}
					if q.arrivals() != nil || q.submit() != nil {
						panic("broken")
					}
					q.answer()
					if q.sleep() != nil {
						panic("broken")
					}
				})
				require.Zero(t, got)
				require.Positive(t, p.committed)
				require.GreaterOrEqual(t, p.result, int32(0))
				q.reads.drop()
				q.writes.drop()
			})
		}
	}
}

// TestResult: every error of a device has a number that the kernel takes.
func TestResult(t *testing.T) {
	for _, tt := range []struct {
		op   *backend.Op
		want int32
	}{
		{&backend.Op{Cmd: backend.Read, Len: maxRequest}, maxRequest},
		{&backend.Op{Cmd: backend.Write, Len: 512}, 512},
		{&backend.Op{Cmd: backend.WriteZeroes, Len: 1 << 30}, 0},
		{&backend.Op{Cmd: backend.Flush}, 0},
		{&backend.Op{Cmd: backend.Write, Len: 512, Err: backend.ErrFailed}, -int32(unix.EIO)},
		{&backend.Op{Cmd: backend.Flush, Err: unix.EBADF}, -int32(unix.EIO)},
	} {
		require.Equal(t, tt.want, result(tt.op), "%v %v", tt.op.Cmd, tt.op.Err)
	}
}

// TestCopyFailsLate: the payload of a WRITE that had to wait for room cannot be copied. The WRITE fails at once
// and keeps no place in the window, although nothing else happens on the queue.
func TestCopyFailsLate(t *testing.T) {
	k := newKernel()
	dev := devicetest.NewWindowed(t, 8<<20, 8, Queues(), 4)
	dev.Hold()
	waits, _ := waiting(dev)
	d := serveOn(t, k, dev)
	disk := k.disk(t, 0)
	for i := range 4 { // all entries
		require.EqualValues(t, 4096, <-disk.write(i*4096, make([]byte, 4096)).done)
	}
	late := disk.write(0, make([]byte, 4096))
	<-waits
	k.mu.Lock()
	for _, q := range disk.d.queues {
		q.copies = unix.EFAULT
	}
	k.mu.Unlock()
	dev.Let()
	require.EqualValues(t, -int32(unix.EIO), <-late.done)
	for _, q := range d.queues {
		q.helpers.Wait()
	}
	require.Equal(t, 8, dev.Arenas().Write.Pins().Free())
	shutDown(t, d)
}
