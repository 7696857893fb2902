package nbd

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/mem"
)

// A shaped device takes requests of up to max bytes in units of min, and may have its own
// arenas.
type shaped struct {
	*mem.Device
	max, min uint32
	arenas   *backend.Arenas
}

func (d shaped) Info() backend.Info {
	in := d.Device.Info()
	in.MaxRequest, in.BlockMin = d.max, max(d.min, 1)
	return in
}

func (d shaped) Arenas() *backend.Arenas {
	if d.arenas != nil {
		return d.arenas
	}
	return d.Device.Arenas()
}

// A gated device stops at the beginning of Submit until the test lets it through.
type gated struct {
	*mem.Device
	arrived chan []*backend.Op // a batch is at the gate
	through chan struct{}

	mu      sync.Mutex
	batches int
}

func newGated(t testing.TB, size uint64) *gated {
	return &gated{Device: newMem(t, size), arrived: make(chan []*backend.Op), through: make(chan struct{})}
}

func (d *gated) Submit(ops []*backend.Op) {
	d.mu.Lock()
	d.batches++
	d.mu.Unlock()
	if _, background := ops[0].Sink.(*background); !background {
		d.arrived <- ops
		<-d.through
	}
	d.Device.Submit(ops)
}

func (d *gated) batchCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.batches
}

// A slow device takes ops and holds them until release.
type slow struct {
	*mem.Device
	mu   sync.Mutex
	cond sync.Cond
	held []*backend.Op
}

func newSlow(t testing.TB, size uint64) *slow {
	d := &slow{Device: newMem(t, size)}
	d.cond.L = &d.mu
	return d
}

func (d *slow) Submit(ops []*backend.Op) {
	if _, background := ops[0].Sink.(*background); background {
		d.Device.Submit(ops)
		return
	}
	d.mu.Lock()
	d.held = append(d.held, ops...)
	d.cond.Broadcast()
	d.mu.Unlock()
}

// wait waits until n ops are held.
func (d *slow) wait(n int) {
	d.mu.Lock()
	for len(d.held) < n {
		d.cond.Wait()
	}
	d.mu.Unlock()
}

// release executes the first n ops that are held. Like a completer, it runs on another
// goroutine than the reader.
func (d *slow) release(n int) {
	d.mu.Lock()
	ops := d.held[:n]
	d.held = d.held[n:]
	d.mu.Unlock()
	for _, op := range ops {
		sink := op.Sink
		d.Device.Submit([]*backend.Op{op})
		sink.Kick()
	}
}

// A windowed device keeps writes in a window until a FLUSH, or until somebody waits for
// room in it, as the remote device does. It retires none while withheld is set.
type windowed struct {
	*mem.Device
	arenas backend.Arenas

	mu       sync.Mutex
	window   *backend.Window
	withheld bool
}

// newWindowed makes a windowed device for so many connections.
func newWindowed(t testing.TB, size uint64, window, connections, entries int) *windowed {
	d := &windowed{Device: newMem(t, size)}
	arena, err := backend.NewArena(window + connections)
	require.NoError(t, err)
	d.window, err = backend.NewWindow(arena, window, 1, entries)
	require.NoError(t, err)
	d.arenas = backend.Arenas{Write: arena, Read: d.Device.Arenas().Read, Entries: backend.NewEntries(d.window.Entries(), 1<<20)}
	arena.Pins().Pressure = d.retire
	d.arenas.Entries.Pressure = d.retire
	t.Cleanup(func() {
		require.NoError(t, d.window.Close())
		require.NoError(t, arena.Close())
	})
	return d
}

func (d *windowed) Info() backend.Info {
	in := d.Device.Info()
	in.MaxRequest = 1 << 20
	return in
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
			if op.FUA {
				d.retire()
			}
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
