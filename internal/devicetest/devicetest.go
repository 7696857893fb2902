// Package devicetest has devices for the tests of front ends: one that takes its time, and one with a
// window. Both are devices in memory otherwise.
package devicetest

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/mem"
)

// NewMem makes a device in memory. When the test ends it checks that everything was given back.
func NewMem(t testing.TB, size uint64) *mem.Device {
	d, err := mem.New(size)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// Slow is a device that takes ops and holds them until Release.
type Slow struct {
	*mem.Device
	// Through says which ops it executes at once. Set it before the first op.
	Through func(*backend.Op) bool

	mu      sync.Mutex
	cond    sync.Cond
	held    []*backend.Op
	batches []int
}

// NewSlow makes a slow device that holds all ops.
func NewSlow(t testing.TB, size uint64) *Slow {
	d := &Slow{Device: NewMem(t, size), Through: func(*backend.Op) bool { return false }}
	d.cond.L = &d.mu
	return d
}

// Submit implements backend.Device.
func (d *Slow) Submit(ops []*backend.Op) {
	d.mu.Lock()
	d.batches = append(d.batches, len(ops))
	var now []*backend.Op
	for _, op := range ops {
		if d.Through(op) {
			now = append(now, op)
		} else {
			d.held = append(d.held, op)
		}
	}
	d.cond.Broadcast()
	d.mu.Unlock()
	d.Device.Submit(now)
}

// Wait waits until it holds n ops.
func (d *Slow) Wait(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.held) < n {
		d.cond.Wait()
	}
}

// Held returns how many ops it holds.
func (d *Slow) Held() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.held)
}

// Batches returns how many ops came in each Submit.
func (d *Slow) Batches() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.batches
}

// Take returns the first n ops that it holds, and holds them no more.
func (d *Slow) Take(n int) []*backend.Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	ops := d.held[:n]
	d.held = d.held[n:]
	return ops
}

// Release executes the first n ops that it holds. Like a completer, it runs on another goroutine than
// the front end's.
func (d *Slow) Release(n int) {
	for _, op := range d.Take(n) {
		sink := op.Sink
		d.Device.Submit([]*backend.Op{op})
		sink.Kick()
	}
}

// Windowed is a device that keeps writes in a window until a FLUSH, or until somebody waits for room in
// it, as the remote device does.
type Windowed struct {
	*mem.Device
	Window *backend.Window
	arenas backend.Arenas

	mu       sync.Mutex
	withheld bool
}

// NewWindowed makes a windowed device. The write arena has chunks for the window, and more.
func NewWindowed(t testing.TB, size uint64, chunks, more, entries int) *Windowed {
	d := &Windowed{Device: NewMem(t, size)}
	arena, err := backend.NewArena(chunks + more)
	require.NoError(t, err)
	d.Window, err = backend.NewWindow(arena, chunks, 1, entries)
	require.NoError(t, err)
	d.arenas = backend.Arenas{Write: arena, Read: d.Device.Arenas().Read, Entries: backend.NewEntries(d.Window.Entries(), 1<<20)}
	arena.Pins().Pressure = d.Retire
	d.arenas.Entries.Pressure = d.Retire
	t.Cleanup(func() {
		d.Let()
		require.Equal(t, chunks, arena.Pins().Free())
		require.Equal(t, entries, d.arenas.Entries.Free())
		require.NoError(t, d.Window.Close())
		require.NoError(t, arena.Close())
	})
	return d
}

// Info implements backend.Device.
func (d *Windowed) Info() backend.Info {
	in := d.Device.Info()
	in.MaxRequest = 1 << 20
	return in
}

// Arenas implements backend.Device.
func (d *Windowed) Arenas() *backend.Arenas { return &d.arenas }

// Submit implements backend.Device.
func (d *Windowed) Submit(ops []*backend.Op) {
	for _, op := range ops {
		switch op.Cmd {
		case backend.Write:
			d.publish(op)
			if op.FUA {
				d.Retire()
			}
		case backend.WriteZeroes:
			d.arenas.Entries.GiveRest(op, 0)
		case backend.Flush:
			d.Retire()
		}
	}
	d.Device.Submit(ops)
	if d.arenas.Write.Waiting() || d.arenas.Entries.Waiting() {
		d.Retire()
	}
}

func (d *Windowed) publish(op *backend.Op) {
	d.mu.Lock()
	defer d.mu.Unlock()
	off := op.Off
	for _, s := range op.Data {
		d.Window.Publish(0, backend.Entry{Off: off, Src: s.ArenaOff(), Len: s.Len, Kind: backend.EntryData})
		off += uint64(s.Len)
	}
	d.arenas.Entries.GiveRest(op, len(op.Data))
}

// Retire empties the window, unless that is withheld.
func (d *Windowed) Retire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.withheld {
		return
	}
	r := d.Window.Ring(0)
	from, to := r.Covered(), r.Head()
	r.Cover(to)
	d.Window.Free(0, from, to)
}

// Hold retires nothing until Let.
func (d *Windowed) Hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.withheld = true
}

// Let ends Hold, and empties the window.
func (d *Windowed) Let() {
	d.mu.Lock()
	d.withheld = false
	d.mu.Unlock()
	d.Retire()
}

// Chunks returns in how many chunks the writes lie that are in the window.
func (d *Windowed) Chunks() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := make(map[uint64]bool)
	r := d.Window.Ring(0)
	for i := r.Covered(); i < r.Head(); i++ {
		held[r.At(i).Src/backend.ChunkSize] = true
	}
	return len(held)
}
