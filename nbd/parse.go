package nbd

import (
	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// parse adds the requests that were read to the batch, up to one that is incomplete.
func (c *conn) parse() error {
	for {
		if c.incoming != nil {
			c.takePayload()
			if c.missing > 0 {
				return nil
			}
			if err := c.payloadComplete(); err != nil {
				return err
			}
		}
		req, payload, n, err := c.decode(c.chunk.Bytes()[c.r:c.w])
		if n == 0 || err != nil {
			return err
		}
		c.r += n
		if err := c.begin(req, payload); err != nil {
			return err
		}
	}
}

// begin begins a request whose header is parsed. payload bytes follow the header.
func (c *conn) begin(req wire.Request, payload uint64) error {
	if req.Command == wire.CmdDisc {
		c.disc.Store(true) // before the batch is submitted, because Gone looks at it
		return errDisc
	}
	if payload > maxPayload {
		return breach("a payload of %d bytes", payload)
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	rq.cookie, rq.command, rq.off, rq.length, rq.headed, rq.came = req.Cookie, req.Command, req.Off, req.Len, false, c.came
	rq.whole = req.Flags&wire.CmdFlagDF != 0
	op := &rq.op
	op.Cmd, op.Off, op.Len, op.FUA = backend.Flush, req.Off, req.Len, false
	op.Err = c.rules.validate(req)
	if payload > 0 {
		c.incoming, c.missing = rq, int(payload)
	}
	switch req.Command {
	case wire.CmdWrite:
		op.Cmd = backend.Write
		op.FUA = req.Flags&wire.CmdFlagFUA != 0
		if op.Err == nil {
			return c.reserve()
		}
	case wire.CmdRead:
		op.Cmd = backend.Read
		if op.Err == nil {
			return c.beginRead(rq)
		}
	case wire.CmdTrim:
		op.Cmd = backend.Trim
	case wire.CmdWriteZeroes:
		op.Cmd = backend.WriteZeroes
		op.FUA = req.Flags&wire.CmdFlagFUA != 0
		if err := c.zeroInParts(rq); err != nil {
			return c.drop(rq, err)
		}
	}
	if payload == 0 {
		c.enqueue(rq)
	}
	return nil
}

// zeroInParts cuts the zero rq into parts of maxZero bytes, because the length has 64 bits
// and the window's index is small. It submits all parts but the last, waits for each, and
// leaves the last part in the op of rq, admitted.
func (c *conn) zeroInParts(rq *request) error {
	op, fua := &rq.op, rq.op.FUA
	for end := op.Off + op.Len; op.Err == nil && op.Len > c.exp.maxZero; op.Len = end - op.Off {
		op.Len, op.FUA = c.exp.maxZero, false
		if err := c.admit(op); err != nil {
			return err
		}
		rq.partial.Store(true)
		c.batch = append(c.batch, op)
		c.submit()
		if err := c.awaitFreed(func() bool { return !rq.partial.Load() }); err != nil {
			return err
		}
		op.Off += op.Len
	}
	op.FUA = fua // the barrier of the last part covers all parts
	if op.Err != nil {
		return nil
	}
	return c.admit(op)
}

// admit takes room in the window for op. It submits the batch before it waits.
func (c *conn) admit(op *backend.Op) error {
	if c.room.TryAdmit(op) {
		return nil
	}
	c.submit()
	return c.await(func(stop <-chan struct{}) error { return c.room.Admit(op, stop) })
}

// enqueue adds rq to the batch. If the device has nothing to do, it queues the reply: to a
// request that is refused, to a BLOCK_STATUS, which the server knows itself, and to CACHE,
// a hint that it ignores.
func (c *conn) enqueue(rq *request) {
	switch {
	case rq.op.Err != nil, rq.command == wire.CmdCache, rq.command == wire.CmdBlockStatus:
		c.Complete(&rq.op)
	default:
		c.batch = append(c.batch, &rq.op)
	}
}
