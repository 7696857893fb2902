package gonbd

import (
	"fmt"

	"pmnbd/backend"
)

// A call is an Op and its Sink. It executes one request at a time.
type call struct {
	b      *Backend
	op     backend.Op
	batch  []*backend.Op // op only
	room   *backend.Admission
	chunks []*backend.Chunk
	done   chan struct{} // receives a token when op is completed
}

func newCall(b *Backend) *call {
	c := &call{b: b, room: backend.NewAdmission(b.arenas), done: make(chan struct{}, 1)}
	c.batch = []*backend.Op{&c.op}
	c.op.Sink = c
	return c
}

// read reads into p.
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

// write writes p.
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

// do hands the op to the device and waits until it is completed.
func (c *call) do() error {
	c.submit()
	<-c.done
	return c.op.Err
}

// submit hands the op to the device. done receives a token when it is completed.
func (c *call) submit() {
	c.op.Err = nil
	c.b.dev.Submit(c.batch)
	c.b.dev.Post()
}

// lay gives the op spans of n bytes in total, in the chunks of the call.
func (c *call) lay(n int) {
	for _, ch := range c.chunks {
		s := backend.Span{Chunk: ch, Len: uint32(min(n, backend.ChunkSize))}
		c.op.Data = append(c.op.Data, s)
		n -= int(s.Len)
	}
}

// chunksFor returns how many chunks n bytes fill.
func chunksFor(n int) int { return (n + backend.ChunkSize - 1) / backend.ChunkSize }

// stopped is the error of a call that Close interrupted.
func (c *call) stopped(err error) error { return fmt.Errorf("%w: %w", backend.ErrClosed, err) }

// release drops the references to the op's spans, and the pins of a write.
func (c *call) release() {
	for _, s := range c.op.Data {
		s.Chunk.Release()
	}
	c.room.Unpin()
	c.op.Data = c.op.Data[:0]
}

// Complete implements backend.Sink. It wakes the caller.
func (c *call) Complete(*backend.Op) { c.done <- struct{}{} }

// Kick implements backend.Sink. There is nothing to write out.
func (c *call) Kick() {}

// Gone implements backend.Sink. The caller waits, so it is not gone.
func (c *call) Gone() bool { return false }
