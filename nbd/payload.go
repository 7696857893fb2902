package nbd

import (
	"slices"

	"pmnbd/backend"
)

// reserve reserves the chunks that the incoming payload needs besides the current one, and
// pins all of them, before more of the payload is read. A payload that fits the current
// chunk needs no reservation: it is admitted when it is complete. A payload that fits one
// chunk is moved to the start of a chunk if it would have to wait for a reservation.
func (c *conn) reserve() error {
	n := chunksFor(c.missing - (backend.ChunkSize - c.r))
	if n <= 0 {
		return nil
	}
	// Submit the requests before this one, which drops their pins: a connection that
	// waits for a reservation holds nothing else that others wait for.
	c.submit()
	if !c.exp.reservations.TryTake(n + 1) {
		if c.missing <= backend.ChunkSize {
			return c.moveIncoming()
		}
		err := c.await(func(stop <-chan struct{}) error { return c.exp.reservations.Take(n+1, stop) })
		if err != nil {
			return err
		}
	}
	c.units = n + 1
	got, ok := c.room.TryReserve(c.chunk, c.reserved[:0], n)
	if !ok {
		err := c.await(func(stop <-chan struct{}) (err error) {
			got, err = c.room.Reserve(c.chunk, c.reserved[:0], n, stop)
			return err
		})
		if err != nil {
			return err
		}
	}
	c.reserved = got
	c.pace.begin(c.taken(), c.srv.cfg.stall)
	return nil
}

// moveIncoming moves the bytes of the incoming payload, none of which is parsed yet, to the
// start of a chunk, where the whole payload fits. So a small WRITE does not wait for the
// reservations of others. The price is a copy.
func (c *conn) moveIncoming() error {
	came := c.chunk.Bytes()[c.r:c.w]
	if c.chunk.Refs() > 1 {
		came = slices.Clone(came)
		c.chunk.Release() // first, because a connection has only one chunk to receive into
		c.chunk = nil
		fresh, err := c.chunks(c.exp.arenas.Write, 1)
		if err != nil {
			return err
		}
		c.chunk = fresh[0]
	}
	c.r, c.w = 0, copy(c.chunk.Bytes(), came)
	return nil
}

// takePayload adds the bytes that were read to the incoming payload.
func (c *conn) takePayload() {
	n := min(c.missing, c.w-c.r)
	if n == 0 {
		return
	}
	op := &c.incoming.op
	if op.Err == nil {
		if last := len(op.Data) - 1; last >= 0 && op.Data[last].Chunk == c.chunk {
			op.Data[last].Len += uint32(n) // the bytes in one chunk are one span
		} else {
			c.chunk.Retain()
			op.Data = append(op.Data, backend.Span{Chunk: c.chunk, Off: uint32(c.r), Len: uint32(n)})
		}
	}
	c.r += n
	c.missing -= n
}

// taken returns how many bytes of the incoming payload are parsed.
func (c *conn) taken() uint64 { return c.incoming.length - uint64(c.missing) }

// payloadComplete admits and enqueues the incoming WRITE. Only then does it give the
// reservation back. Reservations hold at most half of the window. Barriers free the other
// half, and any payload fits there, so no client waits for the payload of another forever.
func (c *conn) payloadComplete() error {
	rq := c.incoming
	if rq.op.Err == nil {
		// After an error rq is still incoming, and dropReceived drops it.
		if err := c.admit(&rq.op); err != nil {
			return err
		}
	}
	c.giveReserved()
	c.incoming = nil
	c.enqueue(rq)
	return nil
}

// giveReserved gives the rest of a reservation back. Unpin drops its pins.
func (c *conn) giveReserved() {
	for _, ch := range c.reserved {
		ch.Release()
	}
	c.reserved = c.reserved[:0]
	c.exp.reservations.Give(c.units)
	c.units = 0
}

// dropReceived drops the incomplete WRITE, the current chunk and all pins. The window has
// its own pins on the chunks that it needs.
func (c *conn) dropReceived() {
	c.giveReserved()
	if rq := c.incoming; rq != nil {
		release(&rq.op)
		c.incoming, c.missing = nil, 0
		c.free = append(c.free, rq.op.Tag)
	}
	if c.chunk != nil {
		c.chunk.Release()
		c.chunk = nil
	}
	c.room.Unpin()
}
