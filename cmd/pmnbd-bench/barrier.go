package main

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"pmnbd/backend"
)

// A shape is what one measured barrier makes durable.
type shape struct {
	Bytes  int `json:"bytes"`  // of each Write
	Writes int `json:"writes"` // ahead of the barrier
}

// barriers repeats one kind of barrier on a device: a batch of WRITEs and a FLUSH, submitted as
// a server does. It is the batch's Sink.
type barriers struct {
	dev    backend.Device
	shape  shape
	area   int64 // bytes, from the beginning of the device
	rng    *rand.Rand
	room   *backend.Admission
	chunks []*backend.Chunk
	batch  []*backend.Op
	left   atomic.Int32 // ops of the batch that are not completed
	done   chan struct{}
}

// newBarriers reserves the memory of a batch. Each WRITE has a payload of its own, which it
// keeps.
func newBarriers(dev backend.Device, s shape, area int64, rng *rand.Rand) (*barriers, error) {
	b := &barriers{dev: dev, shape: s, area: area, rng: rng, room: backend.NewAdmission(dev.Arenas()), done: make(chan struct{}, 1)}
	perChunk := backend.ChunkSize / s.Bytes
	var ok bool
	if b.chunks, ok = b.room.TryReserve(nil, nil, (s.Writes+perChunk-1)/perChunk); !ok {
		return nil, errors.New("the window is too small")
	}
	for i := range s.Writes {
		span := backend.Span{Chunk: b.chunks[i/perChunk], Off: uint32(i % perChunk * s.Bytes), Len: uint32(s.Bytes)}
		b.batch = append(b.batch, &backend.Op{Cmd: backend.Write, Len: uint64(s.Bytes), Data: []backend.Span{span}, Sink: b})
	}
	b.batch = append(b.batch, &backend.Op{Cmd: backend.Flush, Sink: b})
	return b, nil
}

// once writes to random blocks, and returns how long it takes until they are durable.
func (b *barriers) once() (time.Duration, error) {
	for _, op := range b.batch[:b.shape.Writes] {
		op.Off = uint64(b.rng.Int64N(b.area/int64(b.shape.Bytes)) * int64(b.shape.Bytes))
		if err := b.room.Admit(op, nil); err != nil { // nothing is outstanding, so this does not wait for long
			return 0, err
		}
	}
	b.left.Store(int32(len(b.batch)))
	began := time.Now()
	b.dev.Submit(b.batch)
	b.dev.Post()
	<-b.done
	took := time.Since(began)
	for _, op := range b.batch {
		if op.Err != nil {
			return 0, op.Err
		}
	}
	return took, nil
}

// fewest is how many barriers a round has at least, however slow they are.
const fewest = 5

// drive repeats the barrier for warm + measured, and returns how long each one took that began
// after warm.
func (b *barriers) drive(warm, measured time.Duration) ([]time.Duration, error) {
	begin := time.Now()
	var samples []time.Duration
	for {
		passed := time.Since(begin)
		if len(samples) >= fewest && passed >= warm+measured {
			return samples, nil
		}
		took, err := b.once()
		if err != nil {
			return nil, err
		}
		if passed >= warm {
			samples = append(samples, took)
		}
	}
}

func (b *barriers) close() {
	for _, c := range b.chunks {
		c.Release()
	}
	b.room.Unpin()
}

// Complete implements backend.Sink.
func (b *barriers) Complete(*backend.Op) {
	if b.left.Add(-1) == 0 {
		b.done <- struct{}{}
	}
}

// Kick implements backend.Sink. There is nothing to write out.
func (b *barriers) Kick() {}

// Gone implements backend.Sink. The caller waits, so it is not gone.
func (b *barriers) Gone() bool { return false }
