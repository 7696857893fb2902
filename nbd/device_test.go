package nbd

import (
	"sync"
	"testing"

	"pmnbd/backend"
	"pmnbd/backend/mem"
	"pmnbd/internal/devicetest"
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

// newSlow makes a slow device that executes at once what the server itself asks for.
func newSlow(t testing.TB, size uint64) *devicetest.Slow {
	d := devicetest.NewSlow(t, size)
	d.Through = func(op *backend.Op) bool { _, background := op.Sink.(*background); return background }
	return d
}
