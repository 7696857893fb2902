package nbd

import (
	"sync/atomic"

	"pmnbd/backend"
)

// spanAlign keeps the results of two READs out of one cache line, in bytes.
const spanAlign = 64

// sinks is where READs put their data: spans cut, one behind the other, from the
// connection's current chunk of the read arena.
type sinks struct {
	sink     *backend.Chunk // nil while the connection is idle
	sinkUsed int
	// sinkBytes is how much READs hold that are not in the socket: at the export's
	// cap, the reader waits. The reader adds, whoever frees a request subtracts.
	sinkBytes atomic.Int64
	// got is what chunks returned last.
	got []*backend.Chunk
}

// allocate gives the READ rq its spans. The batch is submitted before it waits.
func (c *conn) allocate(rq *request) error {
	n := int(rq.op.Len)
	if err := c.belowSinkCap(n); err != nil {
		return err
	}
	if c.sink != nil && c.sink.Refs() == 1 {
		c.sinkUsed = 0
	}
	room := 0
	if c.sink != nil {
		room = backend.ChunkSize - c.sinkUsed
	}
	var fresh []*backend.Chunk
	if n > room {
		a, need := c.exp.arenas.Read, chunksFor(n-room)
		var ok bool
		if fresh, ok = a.TryGet(c.got[:0], need); ok {
			c.got = fresh
		} else {
			// Whoever waits for chunks holds none of them.
			c.dropSinks()
			var err error
			if fresh, err = c.chunks(a, chunksFor(n)); err != nil {
				return err
			}
		}
	}
	c.sinkBytes.Add(int64(n))
	for n > 0 {
		if c.sink == nil || c.sinkUsed == backend.ChunkSize {
			c.dropSinks()
			c.sink, fresh = fresh[0], fresh[1:]
		}
		take := min(n, backend.ChunkSize-c.sinkUsed)
		c.sink.Retain()
		rq.op.Data = append(rq.op.Data, backend.Span{Chunk: c.sink, Off: uint32(c.sinkUsed), Len: uint32(take)})
		c.sinkUsed = min((c.sinkUsed+take+spanAlign-1)&^(spanAlign-1), backend.ChunkSize)
		n -= take
	}
	return nil
}

// belowSinkCap waits until READs of n bytes more are within the cap. A single one
// always is.
func (c *conn) belowSinkCap(n int) error {
	fits := func() bool {
		held := int(c.sinkBytes.Load())
		return held == 0 || held+n <= c.exp.sinkCap
	}
	if fits() {
		return nil
	}
	c.submit()
	return c.awaitFreed(func() bool { return fits() || c.broken != nil })
}

// dropSinks gives back the current chunk.
func (c *conn) dropSinks() {
	if c.sink != nil {
		c.sink.Release()
		c.sink = nil
	}
	c.sinkUsed = 0
}

// parkSink leaves the current chunk, while the reader blocks, to whoever frees the
// last READ: idle connections hold no memory.
func (c *conn) parkSink() {
	if c.sink == nil {
		return
	}
	if c.sinkBytes.Load() == 0 {
		c.dropSinks()
		return
	}
	c.mu.Lock()
	c.parked = c.sink
	c.freeParked()
	c.mu.Unlock()
}

// unparkSink takes the current chunk back, if it is still there.
func (c *conn) unparkSink() {
	if c.sink == nil {
		return
	}
	c.mu.Lock()
	if c.sink, c.parked = c.parked, nil; c.sink == nil {
		c.sinkUsed = 0
	}
	c.mu.Unlock()
}

// freeParked releases a parked chunk that no READ uses any more. mu is held.
func (c *conn) freeParked() {
	if c.parked != nil && c.sinkBytes.Load() == 0 {
		c.parked.Release()
		c.parked = nil
	}
}
