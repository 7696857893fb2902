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
	room   *backend.Admission
	chunks []*backend.Chunk
	done   chan struct{} // op was completed
}

func newCall(b *Backend) *call {
	c := &call{b: b, room: backend.NewAdmission(b.arenas), done: make(chan struct{}, 1)}
	c.batch = []*backend.Op{&c.op}
	c.op.Sink = c
	return c
}

// read does the READ of p.
func (c *call) read(p []byte) error {
	c.op.Cmd = backend.Read
	var err error
	if c.chunks, err = c.b.arenas.Read.Get(c.chunks[:0], chunksFor(len(p)), c.b.stop); err != nil {
		return c.stopped(err)
	}
	defer c.release()
	c.lay(len(p))
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
	defer c.release()
	if s, ok := c.b.cut(len(p)); ok {
		c.op.Data = append(c.op.Data, s)
	} else {
		var err error
		if c.chunks, err = c.room.Reserve(nil, c.chunks[:0], chunksFor(len(p)), c.b.stop); err != nil {
			return c.stopped(err)
		}
		c.lay(len(p))
		c.b.keep(c.op.Data[len(c.op.Data)-1])
	}
	for _, s := range c.op.Data {
		p = p[copy(s.Bytes(), p):]
	}
	if err := c.room.Admit(&c.op, c.b.stop); err != nil {
		return c.stopped(err)
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

// lay gives the op spans of n bytes in the call's chunks.
func (c *call) lay(n int) {
	for _, ch := range c.chunks {
		s := backend.Span{Chunk: ch, Len: uint32(min(n, backend.ChunkSize))}
		c.op.Data = append(c.op.Data, s)
		n -= int(s.Len)
	}
}

// chunksFor returns how many chunks n bytes fill.
func chunksFor(n int) int { return (n + backend.ChunkSize - 1) / backend.ChunkSize }

// stopped is the error of a wait that Close ended.
func (c *call) stopped(err error) error { return fmt.Errorf("%w: %w", backend.ErrClosed, err) }

// release drops the op's references to its spans, and the pins of a write.
func (c *call) release() {
	for _, s := range c.op.Data {
		s.Chunk.Release()
	}
	c.room.Unpin()
	c.op.Data = c.op.Data[:0]
}

// Complete wakes whoever waits. It is backend.Sink's.
func (c *call) Complete(*backend.Op) { c.done <- struct{}{} }

// Kick has nothing to write.
func (c *call) Kick() {}

// Gone is false: the caller waits.
func (c *call) Gone() bool { return false }
