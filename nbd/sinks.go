package nbd

import "pmnbd/backend"

const (
	// spanAlign is the alignment of spans in bytes: two READs share no cache line.
	spanAlign = 64
	// ownSinks is how many chunks of the read arena a connection can always have, whatever
	// the others hold: its own part. It is a right. An idle connection holds no chunk.
	ownSinks = 1
)

// sinks has the memory for the data of READs. Each READ gets the next span of the
// connection's current chunk of the read arena.
//
// A connection takes more chunks than its own part from the common ones, as long as there
// are any. It never waits for those of another connection. If there are none, a READ that
// fits the own part waits until the part is free again, and a larger one is read in parts.
type sinks struct {
	sink     *backend.Chunk // nil while the connection is idle
	sinkUsed int
	// got is the slice that take or chunks has returned last.
	got []*backend.Chunk

	// held is how many chunks of the read arena the connection holds. common of them are
	// common ones: those beyond ownSinks. conn.mu guards both.
	held, common int
}

// beginRead gets the READ rq spans to read into, and enqueues it. It submits the batch
// before it waits.
func (c *conn) beginRead(rq *request) error {
	n := int(rq.op.Len)
	if c.sink != nil && c.sink.Refs() == 1 {
		c.sinkUsed = 0
	}
	room := 0
	if c.sink != nil {
		room = backend.ChunkSize - c.sinkUsed
	}
	var fresh []*backend.Chunk
	if n > room {
		var ok bool
		if fresh, ok = c.take(chunksFor(n - room)); !ok {
			var err error
			if fresh, err = c.awaitSinks(chunksFor(n)); err != nil {
				return c.drop(rq, err)
			}
			switch {
			case len(fresh) > 0:
			case rq.whole:
				c.exp.short.Add(1)
				rq.op.Err = backend.ErrOverflow // proto.md lets a server that would have to fragment say so
				c.enqueue(rq)
				return nil
			default:
				return c.readInParts(rq)
			}
		}
	}
	for n > 0 {
		if c.sink == nil || c.sinkUsed == backend.ChunkSize {
			c.dropSinks()
			c.sink, fresh = fresh[0], fresh[1:]
		}
		n -= c.cut(rq, n)
	}
	c.enqueue(rq)
	return nil
}

// awaitSinks takes n chunks. It takes none if they would have to be common ones and there
// are too few. It waits only for READs of this connection.
func (c *conn) awaitSinks(n int) ([]*backend.Chunk, error) {
	c.submit()
	c.dropSinks() // a connection that waits keeps no chunk for later READs
	if err := c.awaitFreed(func() bool { return c.mayHoldLocked(n) }); err != nil {
		return nil, err
	}
	if fresh, ok := c.take(n); ok || n > ownSinks {
		return fresh, nil
	}
	own, err := c.takeOwn(n)
	c.exp.short.Add(1) // not before takeOwn, which waits for this connection's own client
	return own, err
}

// cut gives rq a span of n bytes of the current chunk, or less if the chunk has less left.
// It returns the length of the span.
func (c *conn) cut(rq *request, n int) int {
	n = min(n, backend.ChunkSize-c.sinkUsed)
	c.sink.Retain()
	rq.op.Data = append(rq.op.Data, backend.Span{Chunk: c.sink, Off: uint32(c.sinkUsed), Len: uint32(n)})
	c.sinkUsed = min((c.sinkUsed+n+spanAlign-1)&^(spanAlign-1), backend.ChunkSize)
	return n
}

// mayHoldLocked reports whether the connection may hold n chunks more. A single READ always
// may.
func (c *conn) mayHoldLocked(n int) bool { return c.held == 0 || c.held+n <= c.exp.sinkCap }

// take takes n chunks. It reports false if the connection may not hold them, or if there
// are too few common ones. The slice is valid until the next call of take or chunks.
func (c *conn) take(n int) ([]*backend.Chunk, bool) {
	x := c.exp
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mayHoldLocked(n) {
		return nil, false
	}
	beyond := max(0, c.held+n-ownSinks) - c.common
	if beyond > 0 && !x.common.TryTake(beyond) {
		return nil, false
	}
	got, ok := x.arenas.Read.TryGet(c.got[:0], n)
	if !ok {
		x.common.Give(beyond)
		return nil, false
	}
	c.got = got
	c.held += n
	c.common += beyond
	return got, true
}

// takeOwn waits until the connection's own part is free, and takes n chunks of it, at most
// ownSinks. They are there at once, unless another user of the arena has them.
func (c *conn) takeOwn(n int) ([]*backend.Chunk, error) {
	if err := c.awaitFreed(func() bool { return c.held+n <= ownSinks }); err != nil {
		return nil, err
	}
	got, err := c.chunks(c.exp.arenas.Read, n)
	if err == nil {
		c.mu.Lock()
		c.held += n
		c.mu.Unlock()
	}
	return got, err
}

// readInParts executes the READ rq with only the connection's own part. It reads one part
// of the data after the other, each when the one before is in the socket. With simple replies the
// client sees an ordinary reply, otherwise one that has a chunk for each part. The connection has no
// other request outstanding meanwhile, because no other reply may come between the parts of a simple one.
func (c *conn) readInParts(rq *request) error {
	if err := c.awaitFreed(func() bool { return len(c.free)+len(c.freed) == maxInFlight-1 }); err != nil {
		return c.drop(rq, err)
	}
	got, err := c.takeOwn(1)
	if err != nil {
		return c.drop(rq, err)
	}
	c.sink = got[0]
	op := &rq.op
	for end := op.Off + op.Len; ; op.Off += op.Len {
		c.exp.short.Add(1)
		c.sinkUsed = 0
		op.Len = uint64(c.cut(rq, int(end-op.Off)))
		last := op.Off+op.Len == end
		rq.partial.Store(!last)
		c.batch = append(c.batch, op)
		c.submit()
		if last {
			return c.awaitFreed(func() bool { return len(c.free)+len(c.freed) == maxInFlight })
		}
		if err := c.awaitFreed(func() bool { return !rq.partial.Load() }); err != nil {
			return c.drop(rq, err)
		}
		if op.Err != nil { // the reply can still say so
			c.enqueue(rq)
			return nil
		}
	}
}

// drop returns rq, which nobody else has, to the unused requests. It returns err.
func (c *conn) drop(rq *request, err error) error {
	c.free = append(c.free, rq.op.Tag)
	return err
}

// dropSinks gives the current chunk back.
func (c *conn) dropSinks() {
	if c.sink != nil {
		c.mu.Lock()
		c.releaseSinkLocked(c.sink)
		c.mu.Unlock()
		c.sink = nil
	}
	c.sinkUsed = 0
}

// releaseSinkLocked drops a reference to a chunk of the read arena.
func (c *conn) releaseSinkLocked(ch *backend.Chunk) {
	if !ch.Release() {
		return
	}
	c.held--
	if c.common > 0 {
		c.common--
		c.exp.common.Give(1)
	}
}

// parkSink lets the last READ in the current chunk release it while the reader blocks, so
// that an idle connection holds no memory.
func (c *conn) parkSink() {
	if c.sink == nil {
		return
	}
	c.mu.Lock()
	c.parked = c.sink
	c.freeParkedLocked()
	c.mu.Unlock()
}

// unparkSink takes the current chunk back if it has not been released.
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

// freeParkedLocked releases the parked chunk if no READ uses it any more.
func (c *conn) freeParkedLocked() {
	if c.parked != nil && c.parked.Refs() == 1 {
		c.releaseSinkLocked(c.parked)
		c.parked = nil
	}
}
