package nbd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// minRead is the least room in bytes that is worth a system call to read. If a chunk has
// less room and is still in use, the reader begins the next one.
const minRead = 8 << 10

// A receiver receives requests into a chunk of the write arena. The chunk has three parts:
// bytes that are parsed, bytes that are read but not parsed, and room.
//
//	0        r              w                    backend.ChunkSize
//	+--------+--------------+--------------------+
//	| parsed | to be parsed | room for a read    |
//	+--------+--------------+--------------------+
type receiver struct {
	chunk *backend.Chunk // nil while the connection is idle
	r, w  int

	// drained is set if the last read took all that the socket had.
	drained bool
	// deadline is the deadline of reads. It is zero if there is none.
	deadline time.Time

	// incoming is the WRITE whose payload is being received. missing is how many bytes
	// of the payload are not parsed yet. The payload of a refused WRITE is dropped.
	incoming *request
	missing  int
	// reserved has the chunks for the rest of the payload. They are pinned. units is how
	// many of the export's reservations the payload has taken.
	reserved []*backend.Chunk
	units    int
	pace     pace // of the payload with the reservation

	// room pins the chunks with the payloads of the batch, or, if the batch is empty, the
	// chunks of a payload with a reservation. A connection always has a chunk to receive
	// into. It needs room in the window only for payloads (design §4.8).
	room *backend.Admission
}

// maxHeader is the length in bytes of the longest header that decode takes as a whole.
const maxHeader = wire.ExtendedRequestSize + wire.StatusPayloadSize

// receive reads, parses and submits requests until the connection must end. It returns the
// cause.
func (c *conn) receive() error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		err := c.parse()
		c.submit() // the requests before a breach or a DISC are served
		if err != nil {
			return err
		}
	}
}

// fill reads what the socket has. If it has nothing, fill waits.
func (c *conn) fill() error {
	for {
		if c.stopping.Load() {
			return errInterrupted
		}
		if c.drained && c.giveBack() {
			// Idle connections hold no memory.
			c.beforeBlocking()
			err := c.sock.WaitReadable()
			c.unparkSink()
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("wait for a request: %w", err)
			}
			c.drained = false
			continue
		}
		if err := c.makeRoom(); err != nil {
			return err
		}
		room := c.chunk.Bytes()[c.w:]
		n, err := c.read(room)
		if err != nil {
			return err
		}
		if n == 0 { // the socket is empty, so wait next time
			c.drained = true
			continue
		}
		c.w += n
		c.drained = n < len(room)
		return nil
	}
}

// giveBack releases the chunk if it is empty and nobody else has a reference. It reports
// whether the connection has no chunk.
func (c *conn) giveBack() bool {
	if c.chunk == nil {
		return true
	}
	if c.r < c.w || c.missing > 0 || c.chunk.Refs() > 1 {
		return false
	}
	c.chunk.Release()
	c.chunk = nil
	return true
}

// read reads into p. It blocks only if the socket is drained.
func (c *conn) read(p []byte) (int, error) {
	if !c.drained {
		n, err := c.sock.TryRead(p)
		return n, c.readError(err)
	}
	for {
		c.beforeBlocking()
		n, err := c.sock.Read(p)
		c.unparkSink()
		if c.units > 0 && errors.Is(err, os.ErrDeadlineExceeded) && !c.stopping.Load() {
			if c.pace.tooSlow(c.taken()) && (c.exp.reservations.Waiting() || c.exp.arenas.Write.Waiting()) {
				return 0, errStalled
			}
			c.pace.begin(c.taken(), c.srv.cfg.stall)
			continue
		}
		return n, c.readError(err)
	}
}

// beforeBlocking prepares the reader for a wait of any length. If it has a reservation, the
// wait ends with the period of its pace.
func (c *conn) beforeBlocking() {
	c.parkSink()
	if c.units > 0 {
		c.readUntil(c.pace.end)
	} else {
		c.readUntil(time.Time{})
	}
}

// readUntil sets the deadline of reads; the zero time means none.
func (c *conn) readUntil(t time.Time) {
	if t != c.deadline {
		c.setReadDeadline(t)
		c.deadline = t
	}
}

// taken returns how many bytes of the incoming payload are parsed.
func (c *conn) taken() uint64 { return c.incoming.length - uint64(c.missing) }

// readError returns the cause behind an error of a read.
func (c *conn) readError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errInterrupted
	case errors.Is(err, io.EOF) && (c.missing > 0 || c.r < c.w):
		return fmt.Errorf("%w in the middle of a request", errHungUp)
	case errors.Is(err, io.EOF):
		return errHungUp
	}
	return fmt.Errorf("read requests: %w", err)
}

// makeRoom makes room in the current chunk, or begins another one.
func (c *conn) makeRoom() error {
	// Only a header across the end of the chunk is moved.
	var header [maxHeader]byte
	tail := 0
	if c.chunk != nil {
		// Nobody else has a reference, so the whole chunk is free, and its beginning is
		// still in the caches.
		if c.r == c.w && c.chunk.Refs() == 1 {
			c.r, c.w = 0, 0
		}
		room := backend.ChunkSize - c.w
		if room >= minRead || room > 0 && c.missing > 0 { // the reservation counts on this rest
			return nil
		}
		tail = copy(header[:], c.chunk.Bytes()[c.r:c.w])
		c.chunk.Release() // a connection has one chunk; for a second it would wait for others
		c.chunk = nil
	}
	if last := len(c.reserved) - 1; last >= 0 {
		c.chunk, c.reserved = c.reserved[last], c.reserved[:last]
	} else {
		got, err := c.chunks(c.exp.arenas.Write, 1)
		if err != nil {
			return err
		}
		c.chunk = got[0]
	}
	c.r, c.w = 0, copy(c.chunk.Bytes(), header[:tail])
	return nil
}

// chunks takes n chunks of a. It submits the batch before it waits. The slice is valid until
// the next call of chunks or take.
func (c *conn) chunks(a *backend.Arena, n int) ([]*backend.Chunk, error) {
	got, ok := a.TryGet(c.got[:0], n)
	if !ok {
		c.submit()
		err := c.await(func(stop <-chan struct{}) (err error) {
			got, err = a.Get(c.got[:0], n, stop)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	c.got = got
	return got, nil
}

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
	rq.cookie, rq.command, rq.off, rq.length, rq.headed = req.Cookie, req.Command, req.Off, req.Len, false
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
