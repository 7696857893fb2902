package nbd

import (
	"errors"
	"fmt"
	"io"
	"os"
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

	// drained is set if the last read took all that the socket had, and soon if the next
	// request may follow at once.
	drained, soon bool
	// came is when the last read ended, by conn.now.
	came time.Duration
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
		if c.drained && !c.soon && c.giveBack() {
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
			c.drained, c.soon = true, !c.drained && c.soon
			continue
		}
		c.came = c.now()
		c.w += n
		c.drained, c.soon = n < len(room), true
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

// read reads into p. It blocks only if the socket is drained, and not for long if a request may
// follow soon.
func (c *conn) read(p []byte) (int, error) {
	if !c.drained {
		n, err := c.sock.TryRead(p)
		return n, c.readError(err)
	}
	for {
		c.beforeBlocking()
		n, err := c.wait(p)
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

// wait reads into p when something is there, or gives up where a request was to follow soon.
func (c *conn) wait(p []byte) (int, error) {
	if c.soon {
		return c.sock.ReadSoon(p)
	}
	return c.sock.Read(p)
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
