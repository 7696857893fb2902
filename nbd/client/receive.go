package client

import (
	"encoding/binary"
	"fmt"

	"pmnbd/internal/plain"
	"pmnbd/nbd/wire"
)

// Buffered reports whether at least the beginning of another reply is received. The next
// Recv then does not wait, or not for long.
func (c *Client) Buffered() bool { return c.r < c.w }

// Text returns the text that came with the last errno of Recv, with control characters
// escaped. It is empty if the server sent none.
func (c *Client) Text() string { return c.text }

// Extent returns the result of the BLOCK_STATUS with that tag.
func (c *Client) Extent(tag uint32) wire.Extent { return c.pending[tag].extent }

// Recv waits for one reply, and for its data if the request is a READ. errno is the error
// number that the server has sent, 0 for success.
func (c *Client) Recv() (tag uint32, errno uint32, err error) {
	for {
		if err := c.need(wire.SimpleReplySize); err != nil {
			return 0, 0, err
		}
		if c.replies == Simple || c.replies == Structured && binary.BigEndian.Uint32(c.in[c.r:]) == wire.MagicSimpleReply {
			return c.simple()
		}
		tag, done, err := c.chunk()
		p := &c.pending[tag]
		if err == nil && done {
			err = p.complete()
		}
		if done || err != nil {
			return tag, p.errno, err
		}
	}
}

// complete returns an error if the reply to p is a success without all data.
func (p *pending) complete() error {
	if p.errno == 0 && p.got < len(p.dst) {
		return fmt.Errorf("%d of %d bytes read: %w", p.got, len(p.dst), ErrUnexpected)
	}
	return nil
}

// simple receives a simple reply.
func (c *Client) simple() (tag uint32, errno uint32, err error) {
	rep, err := wire.DecodeSimpleReply(c.in[c.r:c.w])
	if err != nil {
		return 0, 0, err
	}
	c.r += wire.SimpleReplySize
	p, err := c.of(rep.Cookie)
	if err != nil {
		return 0, 0, err
	}
	tag = uint32(rep.Cookie)
	if rep.Errno != 0 || c.replies != Simple {
		c.text, p.errno = "", rep.Errno
		return tag, rep.Errno, p.complete()
	}
	return tag, 0, c.data(p.dst)
}

// chunk receives a part of a structured reply. done reports whether it is the last.
func (c *Client) chunk() (tag uint32, done bool, err error) {
	size, decode := wire.StructuredReplySize, wire.DecodeStructuredReply
	if c.replies == Extended {
		size, decode = wire.ExtendedReplySize, wire.DecodeExtendedReply
	}
	if err := c.need(size); err != nil {
		return 0, false, err
	}
	h, err := decode(c.in[c.r:c.w])
	if err != nil {
		return 0, false, err
	}
	c.r += size
	p, err := c.of(h.Cookie)
	if err != nil {
		return 0, false, err
	}
	tag, done = uint32(h.Cookie), h.Flags&wire.ReplyFlagDone != 0
	if h.Type == wire.ChunkOffsetData {
		return tag, done, c.offsetData(p, h.Len)
	}
	if h.Len > maxReply {
		return tag, done, fmt.Errorf("a chunk of %d bytes: %w", h.Len, ErrUnexpected)
	}
	if err := c.need(int(h.Len)); err != nil {
		return tag, done, err
	}
	payload := c.in[c.r : c.r+int(h.Len)]
	c.r += int(h.Len)
	switch {
	case h.Type == wire.ChunkNone && h.Len == 0:
	case h.Type.IsError():
		var text []byte
		p.errno, text, err = wire.DecodeError(payload)
		c.text = plain.Text(string(text))
	case h.Type == wire.ChunkBlockStatus && c.replies == Structured:
		err = c.status(p, payload, wire.DecodeBlockStatus)
	case h.Type == wire.ChunkBlockStatusExt && c.replies == Extended:
		err = c.status(p, payload, wire.DecodeBlockStatusExt)
	default:
		err = fmt.Errorf("a chunk of type %d: %w", h.Type, ErrUnexpected)
	}
	return tag, done, err
}

// offsetData receives the payload of an OFFSET_DATA, of n bytes.
func (c *Client) offsetData(p *pending, n uint64) error {
	if err := c.need(wire.OffsetSize); err != nil {
		return err
	}
	at := binary.BigEndian.Uint64(c.in[c.r:]) - p.off
	c.r += wire.OffsetSize
	n -= wire.OffsetSize
	if at > uint64(len(p.dst)) || n > uint64(len(p.dst))-at {
		return fmt.Errorf("%d bytes at %d of a READ of %d: %w", n, at, len(p.dst), ErrUnexpected)
	}
	p.got += int(n)
	return c.data(p.dst[at : at+n])
}

func (c *Client) status(p *pending, payload []byte, decode func([]byte) (uint32, wire.Extent, error)) error {
	id, e, err := decode(payload)
	if err == nil && id != c.context {
		err = fmt.Errorf("metadata context %d: %w", id, ErrUnexpected)
	}
	p.extent = e
	return err
}

// of returns the request with that cookie.
func (c *Client) of(cookie uint64) (*pending, error) {
	if cookie >= uint64(len(c.pending)) {
		return nil, fmt.Errorf("cookie %d: %w", cookie, ErrUnexpected)
	}
	return &c.pending[cookie], nil
}

// data receives into p.
func (c *Client) data(p []byte) error {
	n := copy(p, c.in[c.r:c.w])
	c.r += n
	for p = p[n:]; len(p) > 0; p = p[n:] {
		var err error
		if n, err = c.sock.Read(p); err != nil {
			return fmt.Errorf("receive data: %w", err)
		}
	}
	return nil
}

// need receives until it has n bytes.
func (c *Client) need(n int) error {
	for c.w-c.r < n {
		if err := c.more(); err != nil {
			return err
		}
	}
	return nil
}

// more receives what the socket has, at least a byte.
func (c *Client) more() error {
	if c.r > 0 {
		c.r, c.w = 0, copy(c.in, c.in[c.r:c.w])
	}
	n, err := c.sock.Read(c.in[c.w:])
	c.w += n
	if err != nil {
		return fmt.Errorf("receive a reply: %w", err)
	}
	return nil
}
