package gonbd

import (
	"fmt"

	"pmnbd/backend"
)

// A call is an Op and its Sink. It does one request at a time.
type call struct {
	b      *Backend
	op     backend.Op
	batch  []*backend.Op // op alone
	chunks []*backend.Chunk
	done   chan struct{} // op was completed
}

func newCall(b *Backend) *call {
	c := &call{b: b, done: make(chan struct{}, 1)}
	c.batch = []*backend.Op{&c.op}
	c.op.Sink = c
	return c
}

// read does the READ of p.
func (c *call) read(p []byte) error {
	c.op.Cmd = backend.Read
	if err := c.take(c.b.arenas.Read.Get, len(p)); err != nil {
		return err
	}
	defer c.release()
	if err := c.do(); err != nil {
		return err
	}
	for _, s := range c.op.Data {
		p = p[copy(p, s.Bytes()):]
	}
	return nil
}

// write does the WRITE of p.
func (c *call) write(p []byte) error {
	c.op.Cmd = backend.Write
	a := c.b.arenas
	if s, ok := c.b.cut(len(p)); ok {
		if err := s.Chunk.Pin(c.b.stop); err != nil {
			s.Chunk.Release()
			return c.stopped(err)
		}
		c.op.Data = append(c.op.Data, s)
	} else {
		if err := c.take(a.Write.GetPinned, len(p)); err != nil {
			return err
		}
		c.b.keep(c.op.Data[len(c.op.Data)-1])
	}
	defer c.release()
	for _, s := range c.op.Data {
		p = p[copy(s.Bytes(), p):]
	}
	if a.Entries != nil {
		n := a.EntriesFor(c.op.Off, c.op.Len, len(c.op.Data))
		if err := a.Entries.Take(n, c.b.stop); err != nil {
			return c.stopped(err)
		}
		c.op.Entries = n
	}
	return c.do()
}

// do hands the op to the device and waits for it.
func (c *call) do() error {
	c.op.Err = nil
	c.b.dev.Submit(c.batch)
	c.b.dev.Post()
	<-c.done
	return c.op.Err
}

// take gives the op spans of n bytes, in chunks that nobody else uses.
func (c *call) take(get func([]*backend.Chunk, int, <-chan struct{}) ([]*backend.Chunk, error), n int) (err error) {
	c.chunks, err = get(c.chunks[:0], (n+backend.ChunkSize-1)/backend.ChunkSize, c.b.stop)
	if err != nil {
		return c.stopped(err)
	}
	for _, ch := range c.chunks {
		s := backend.Span{Chunk: ch, Len: uint32(min(n, backend.ChunkSize))}
		c.op.Data = append(c.op.Data, s)
		n -= int(s.Len)
	}
	return nil
}

// stopped is the error of a wait that Close ended.
func (c *call) stopped(err error) error { return fmt.Errorf("%w: %w", backend.ErrClosed, err) }

// release drops the op's references to its spans, and the pins of a write.
func (c *call) release() {
	for _, s := range c.op.Data {
		s.Chunk.Release()
		if c.op.Cmd == backend.Write {
			s.Chunk.Unpin()
		}
	}
	c.op.Data = c.op.Data[:0]
}

// Complete wakes whoever waits. It is backend.Sink's.
func (c *call) Complete(*backend.Op) { c.done <- struct{}{} }

// Kick has nothing to write.
func (c *call) Kick() {}

// Gone is false: the caller waits.
func (c *call) Gone() bool { return false }
