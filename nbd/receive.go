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

// minRead is the least room, in bytes, for which another read into a chunk that
// cannot be rewound is worth its system call; below it the next chunk is begun.
const minRead = 8 << 10

// A receiver is where requests arrive: a chunk of the write arena that holds, in
// this order, what was parsed, what was read and not yet parsed, and room.
//
//	0        r              w                    backend.ChunkSize
//	+--------+--------------+--------------------+
//	| parsed | to be parsed | room for a read    |
//	+--------+--------------+--------------------+
type receiver struct {
	chunk *backend.Chunk // nil while the connection is idle
	r, w  int

	// drained: the last read took all that the socket held.
	drained bool
	// deadline is that of reading; zero: none.
	deadline time.Time

	// incoming is the WRITE whose payload is being received, missing how much of it
	// is not parsed yet, in bytes. A refused one is dropped as it comes.
	incoming *request
	missing  int
	// reserved are the chunks for the rest of the payload, units how many of the
	// export's reservations it took.
	reserved []*backend.Chunk
	units    int
	pace     pace // of the payload that they are for

	// room pins the chunks in which payloads of the batch lie, or, while that is empty,
	// those of one with a reservation. A connection has a chunk to receive into whatever
	// others do; it needs the window's for payloads alone (design §4.8).
	room *backend.Admission
}

// maxHeader is the longest run of bytes that decode takes or leaves as a whole.
const maxHeader = wire.ExtendedRequestSize + wire.StatusPayloadSize

// receive reads, parses and submits until the connection must end, and says why.
func (c *conn) receive() error {
	for {
		if err := c.fill(); err != nil {
			return err
		}
		err := c.parse()
		c.submit() // what precedes a breach or a DISC is served
		if err != nil {
			return err
		}
	}
}

// fill reads what the socket holds, and waits for something when it is empty.
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
		if n == 0 { // nothing there: only then a wait is due
			c.drained = true
			continue
		}
		c.w += n
		c.drained = n < len(room)
		return nil
	}
}

// giveBack releases an empty chunk to which nobody else refers, and reports whether
// the connection holds none.
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

// read reads into p. It blocks if the socket is known to be drained.
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

// beforeBlocking readies the reader for a wait of any length. One that holds
// reserved chunks has until its period ends.
func (c *conn) beforeBlocking() {
	c.parkSink()
	if c.units > 0 {
		c.readUntil(c.pace.end)
	} else {
		c.readUntil(time.Time{})
	}
}

// readUntil sets when reading ends; never, with the zero time.
func (c *conn) readUntil(t time.Time) {
	if t != c.deadline {
		c.setReadDeadline(t)
		c.deadline = t
	}
}

// taken is how much of the incoming payload has come, in bytes.
func (c *conn) taken() uint64 { return c.incoming.length - uint64(c.missing) }

// readError is the cause that an error of reading stands for.
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

// makeRoom sees to it that the current chunk has room.
func (c *conn) makeRoom() error {
	// A header that straddles the end of the chunk is all that is ever moved.
	var header [maxHeader]byte
	tail := 0
	if c.chunk != nil {
		// The last reference is ours: nothing of the chunk is in use, and its
		// start is hot.
		if c.r == c.w && c.chunk.Refs() == 1 {
			c.r, c.w = 0, 0
		}
		room := backend.ChunkSize - c.w
		if room >= minRead || room > 0 && c.missing > 0 { // reserved was: the rest of it
			return nil
		}
		tail = copy(header[:], c.chunk.Bytes()[c.r:c.w])
		c.chunk.Release() // whoever takes one more than its own would wait for others
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

// chunks takes n chunks. The batch is submitted before it waits. The slice is valid
// until the next call.
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

// parse takes the requests that were read, up to an incomplete one, into the batch.
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

// begin takes one request whose header was parsed, and behind which there are
// payload bytes.
func (c *conn) begin(req wire.Request, payload uint64) error {
	if req.Command == wire.CmdDisc {
		c.disc.Store(true) // before the batch is submitted: see Gone
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

// zeroInParts zeroes what of rq exceeds maxZero, part by part, waiting for each, and
// readies rq's op for the rest: a length has 64 bits, the window's index has not.
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
	op.FUA = fua // the last part's barrier covers them all
	if op.Err != nil {
		return nil
	}
	return c.admit(op)
}

// admit takes what a write needs of the window. The batch is submitted before it waits.
func (c *conn) admit(op *backend.Op) error {
	if c.room.TryAdmit(op) {
		return nil
	}
	c.submit()
	return c.await(func(stop <-chan struct{}) error { return c.room.Admit(op, stop) })
}

// enqueue puts rq into the batch, or answers it if there is nothing for the device
// to do: it is refused, or asks what is known here, or is a hint that is not taken.
func (c *conn) enqueue(rq *request) {
	switch {
	case rq.op.Err != nil, rq.command == wire.CmdCache, rq.command == wire.CmdBlockStatus:
		c.Complete(&rq.op)
	default:
		c.batch = append(c.batch, &rq.op)
	}
}

// reserve takes the chunks that the incoming payload will fill beyond the current
// one, and pins all of them, before more of it is read. What fits the current chunk
// is the window's only when it is complete; what fits any one chunk is moved to where it
// fits if it would have to wait.
func (c *conn) reserve() error {
	n := chunksFor(c.missing - (backend.ChunkSize - c.r))
	if n <= 0 {
		return nil
	}
	// Nothing behind this header can be parsed yet. What is ahead of it goes, with its
	// pins: who holds a reservation holds nothing else that others wait for.
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

// moveIncoming moves what has come of the incoming payload, of which nothing was parsed, to
// the start of a chunk, where all of it fits. So a small WRITE waits for nobody's reservation,
// at the price of a copy.
func (c *conn) moveIncoming() error {
	came := c.chunk.Bytes()[c.r:c.w]
	if c.chunk.Refs() > 1 {
		came = slices.Clone(came)
		c.chunk.Release() // the connection has one chunk to receive into
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

// takePayload takes what was read of the incoming payload.
func (c *conn) takePayload() {
	n := min(c.missing, c.w-c.r)
	if n == 0 {
		return
	}
	op := &c.incoming.op
	if op.Err == nil {
		if last := len(op.Data) - 1; last >= 0 && op.Data[last].Chunk == c.chunk {
			op.Data[last].Len += uint32(n) // a chunk's part of a payload is one run
		} else {
			c.chunk.Retain()
			op.Data = append(op.Data, backend.Span{Chunk: c.chunk, Off: uint32(c.r), Len: uint32(n)})
		}
	}
	c.r += n
	c.missing -= n
}

// payloadComplete enqueues the incoming WRITE, once it has room in the window; only then
// a reservation is given back. Reservations are half of the window at most: any payload
// fits the other half, which barriers alone free.
func (c *conn) payloadComplete() error {
	rq := c.incoming
	if rq.op.Err == nil {
		// On an error rq is still incoming, and dropped as such.
		if err := c.admit(&rq.op); err != nil {
			return err
		}
	}
	c.giveReserved()
	c.incoming = nil
	c.enqueue(rq)
	return nil
}

// giveReserved gives back what was reserved for a payload.
func (c *conn) giveReserved() {
	for _, ch := range c.reserved {
		ch.Release()
	}
	c.reserved = c.reserved[:0]
	c.exp.reservations.Give(c.units)
	c.units = 0
}

// dropReceived gives back the current chunk and an incomplete WRITE. What is pinned of
// the chunk is the window's, and nobody waits for that.
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
