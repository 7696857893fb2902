package remote

import (
	"context"
	"fmt"

	"pmnbd/backend"
)

// Sync makes every write durable that the device has completed before Sync is called: it is one
// FLUSH. While the target is away, Sync waits for it.
//
// If ctx ends first, Sync returns an error that wraps ctx's. Then nobody knows which of the writes
// are durable. They are not lost: the device goes on with them, and a later Sync or Close covers
// them. An error that wraps backend.ErrFailed means that they may be lost.
func (d *Device) Sync(ctx context.Context) error {
	sink := flushSink{done: make(chan error, 1)}
	d.Submit([]*backend.Op{{Cmd: backend.Flush, Sink: sink}})
	d.Post()
	select {
	case err := <-sink.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("flush: %w", context.Cause(ctx))
	}
}

// flush has a barrier cover all that was enqueued, also while the device closes. The channel takes
// its result.
func (x *core) flush() <-chan error {
	last := flushSink{done: make(chan error, 1)}
	x.commit.add(&backend.Op{Cmd: backend.Flush, Sink: last})
	x.commit.start(true) // also where only a resync would let it have its answer
	x.post()
	return last.done
}

// A flushSink takes the result of one FLUSH of the device's own. Its channel has room for that, so
// nobody has to wait for it.
type flushSink struct{ done chan error }

func (s flushSink) Complete(op *backend.Op) { s.done <- op.Err }
func (flushSink) Kick()                     {}
func (flushSink) Gone() bool                { return false }
