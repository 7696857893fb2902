package ublk

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/mem"
)

// newMem makes a device in memory, and checks in the end that everything was given back.
func newMem(t testing.TB, size uint64) *mem.Device {
	d, err := mem.New(size)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// A shaped device says other things of itself.
type shaped struct {
	*mem.Device
	change func(*backend.Info)
}

func (d shaped) Info() backend.Info {
	in := d.Device.Info()
	d.change(&in)
	return in
}

// A slow device takes ops and holds them until release.
type slow struct {
	*mem.Device
	mu      sync.Mutex
	cond    sync.Cond
	held    []*backend.Op
	batches []int // their sizes
	// first lets so many ops through.
	through func(*backend.Op) bool
}

func newSlow(t testing.TB, size uint64) *slow {
	d := &slow{Device: newMem(t, size), through: func(*backend.Op) bool { return false }}
	d.cond.L = &d.mu
	return d
}

func (d *slow) Submit(ops []*backend.Op) {
	d.mu.Lock()
	d.batches = append(d.batches, len(ops))
	var now []*backend.Op
	for _, op := range ops {
		if d.through(op) {
			now = append(now, op)
		} else {
			d.held = append(d.held, op)
		}
	}
	d.cond.Broadcast()
	d.mu.Unlock()
	d.Device.Submit(now)
}

// wait waits until n ops are held.
func (d *slow) wait(n int) {
	d.mu.Lock()
	for len(d.held) < n {
		d.cond.Wait()
	}
	d.mu.Unlock()
}

// release executes the ops that are held. Like a completer, it runs on another goroutine than the queue.
func (d *slow) release() {
	d.mu.Lock()
	ops := d.held
	d.held = nil
	d.mu.Unlock()
	for _, op := range ops {
		sink := op.Sink
		d.Device.Submit([]*backend.Op{op})
		sink.Kick()
	}
}

// A windowed device keeps writes in a window until a FLUSH, or until somebody waits for room in it, as
// the remote device does. It retires none while withheld is set.
type windowed struct {
	*mem.Device
	arenas backend.Arenas

	mu       sync.Mutex
	window   *backend.Window
	withheld bool
}

// newWindowed makes a windowed device whose window has so many chunks and entries.
func newWindowed(t testing.TB, size uint64, chunks, entries int) *windowed {
	d := &windowed{Device: newMem(t, size)}
	arena, err := backend.NewArena(chunks + Queues())
	require.NoError(t, err)
	d.window, err = backend.NewWindow(arena, chunks, 1, entries)
	require.NoError(t, err)
	d.arenas = backend.Arenas{Write: arena, Read: d.Device.Arenas().Read, Entries: backend.NewEntries(d.window.Entries(), 1<<20)}
	arena.Pins().Pressure = d.retire
	d.arenas.Entries.Pressure = d.retire
	t.Cleanup(func() {
		d.let()
		require.Equal(t, chunks, arena.Pins().Free())
		require.Equal(t, entries, d.arenas.Entries.Free())
		require.NoError(t, d.window.Close())
		require.NoError(t, arena.Close())
	})
	return d
}

func (d *windowed) Arenas() *backend.Arenas { return &d.arenas }

func (d *windowed) Submit(ops []*backend.Op) {
	for _, op := range ops {
		switch op.Cmd {
		case backend.Write:
			d.mu.Lock()
			off := op.Off
			for _, s := range op.Data {
				d.window.Publish(0, backend.Entry{Off: off, Src: s.ArenaOff(), Len: s.Len, Kind: backend.EntryData})
				off += uint64(s.Len)
			}
			d.arenas.Entries.GiveRest(op, len(op.Data))
			d.mu.Unlock()
		case backend.WriteZeroes:
			d.arenas.Entries.GiveRest(op, 0)
		case backend.Flush:
			d.retire()
		}
	}
	d.Device.Submit(ops)
	if d.arenas.Write.Waiting() || d.arenas.Entries.Waiting() {
		d.retire()
	}
}

func (d *windowed) retire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.withheld {
		return
	}
	r := d.window.Ring(0)
	from, to := r.Covered(), r.Head()
	r.Cover(to)
	d.window.Free(0, from, to)
}

// hold retires nothing until let.
func (d *windowed) hold() {
	d.mu.Lock()
	d.withheld = true
	d.mu.Unlock()
}

func (d *windowed) let() {
	d.mu.Lock()
	d.withheld = false
	d.mu.Unlock()
	d.retire()
}

// identity is that of the block devices in these tests.
const identity = 7

// serveOn serves dev on k, as block device 0.
func serveOn(t *testing.T, k *fakeKernel, dev backend.Device, change ...func(*Config)) *Device {
	t.Helper()
	cfg := Config{Device: dev, Identity: identity, host: k.host()}
	for _, c := range change {
		c(&cfg)
	}
	d, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	return d
}

func continued(cfg *Config) { cfg.Recover = true }

// shutDown ends d in order.
func shutDown(t *testing.T, d *Device) {
	t.Helper()
	require.NoError(t, d.Shutdown(t.Context()))
	require.NoError(t, d.Err())
}
