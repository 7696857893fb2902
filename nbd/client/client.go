// Package client is a minimal NBD client that keeps many requests in flight.
//
// It exists for tests and for the load generator: a request costs no allocation
// and a batch one system call, so that what is measured is the server. It speaks
// fixed newstyle with simple replies. It imports nbd/wire and sockio.
package client

import (
	"errors"
	"fmt"
	"io"
	"net"

	"pmnbd/nbd/wire"
	"pmnbd/sockio"
)

// Errors of a Client. They break the connection.
var (
	// ErrRefused: the server does not serve the export.
	ErrRefused = errors.New("refused by the server")
	// ErrUnexpected: a message that no server sends here.
	ErrUnexpected = errors.New("unexpected message")
)

// maxReply bounds the data of an option reply, in bytes.
const maxReply = 16 << 10

// A Client is a connection in transmission. One goroutine may queue and send while
// another receives, if each tag is used by one request at a time. One that does
// both must not have so much in flight that the server waits for it to receive.
type Client struct {
	sock   *sockio.Socket
	export wire.Export
	sizes  wire.BlockSizes

	q sockio.Queue // of requests

	// dst is where the data of READs goes, by tag.
	dst [][]byte
	// in[r:w] was received and not taken.
	in   []byte
	r, w int
}

// New negotiates on nc, which it takes over, and enters transmission. depth bounds
// the tags of requests.
func New(nc net.Conn, export string, depth int) (*Client, error) {
	c := &Client{dst: make([][]byte, depth), in: make([]byte, 64<<10)}
	err := c.negotiate(nc, export)
	if err == nil {
		c.sock, err = sockio.New(nc)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("negotiate for export %q: %w", export, err), nc.Close())
	}
	return c, nil
}

func (c *Client) negotiate(rw io.ReadWriter, export string) error {
	var b [wire.OptionReplySize]byte
	if _, err := io.ReadFull(rw, b[:wire.GreetingSize]); err != nil {
		return err
	}
	flags, err := wire.DecodeGreeting(b[:wire.GreetingSize])
	if err != nil {
		return err
	}
	if flags&wire.FlagFixedNewstyle == 0 {
		return fmt.Errorf("a server of before fixed newstyle: %w", ErrUnexpected)
	}
	msg := wire.AppendClientFlags(nil, wire.ClientFixedNewstyle)
	msg = wire.AppendOption(msg, wire.OptGo, wire.AppendInfoRequest(nil, export, wire.InfoBlockSize))
	if _, err := rw.Write(msg); err != nil {
		return err
	}
	for {
		if _, err := io.ReadFull(rw, b[:]); err != nil {
			return err
		}
		h, err := wire.DecodeOptionReply(b[:])
		if err != nil {
			return err
		}
		if h.Option != wire.OptGo || h.Len > maxReply {
			return fmt.Errorf("reply to %v of %d bytes: %w", h.Option, h.Len, ErrUnexpected)
		}
		data := make([]byte, h.Len)
		if _, err := io.ReadFull(rw, data); err != nil {
			return err
		}
		switch {
		case h.Type == wire.RepAck:
			return nil
		case h.Type.IsError():
			return fmt.Errorf("%w: %v: %s", ErrRefused, h.Type, data)
		case h.Type == wire.RepInfo:
			if err := c.info(data); err != nil {
				return err
			}
		}
	}
}

// info takes one INFO reply.
func (c *Client) info(data []byte) error {
	t, body, err := wire.DecodeInfo(data)
	if err != nil {
		return err
	}
	switch t {
	case wire.InfoExport:
		c.export, err = wire.DecodeExport(body)
	case wire.InfoBlockSize:
		c.sizes, err = wire.DecodeBlockSizes(body)
	}
	return err
}

// Export is what the server said of the export.
func (c *Client) Export() wire.Export { return c.export }

// BlockSizes are the server's size constraints.
func (c *Client) BlockSizes() wire.BlockSizes { return c.sizes }

// Write queues a WRITE of data, which must stay unchanged until Send has returned.
func (c *Client) Write(tag uint32, off uint64, data []byte, flags wire.CommandFlags) {
	c.dst[tag] = nil
	c.Request(wire.Request{Command: wire.CmdWrite, Flags: flags, Cookie: uint64(tag), Off: off, Len: uint32(len(data))})
	c.q.Data(data)
}

// Read queues a READ into p, which Recv fills.
func (c *Client) Read(tag uint32, off uint64, p []byte) {
	c.dst[tag] = p
	c.Request(wire.Request{Command: wire.CmdRead, Cookie: uint64(tag), Off: off, Len: uint32(len(p))})
}

// Flush queues a FLUSH.
func (c *Client) Flush(tag uint32) {
	c.dst[tag] = nil
	c.Request(wire.Request{Command: wire.CmdFlush, Cookie: uint64(tag)})
}

// Request queues a request's header as it is. A payload is the caller's to queue,
// and the cookie is the tag that Recv returns.
func (c *Client) Request(r wire.Request) { wire.PutRequest(c.q.Header(wire.RequestSize), r) }

// Send sends what is queued, in one system call if the socket takes it.
func (c *Client) Send() error {
	for {
		if err := c.sock.Flush(&c.q); err != nil {
			return fmt.Errorf("send requests: %w", err)
		}
		if c.q.Empty() {
			return nil
		}
		if err := c.sock.WaitWritable(); err != nil {
			return fmt.Errorf("send requests: %w", err)
		}
	}
}

// Buffered reports whether a reply, or the beginning of one, was received already:
// the next Recv then needs no wait, or a short one.
func (c *Client) Buffered() bool { return c.r < c.w }

// Recv waits for one reply, and for its data if it is that of a READ. errno is the
// server's, 0 for success.
func (c *Client) Recv() (tag uint32, errno uint32, err error) {
	for c.w-c.r < wire.SimpleReplySize {
		if err := c.more(); err != nil {
			return 0, 0, err
		}
	}
	rep, err := wire.DecodeSimpleReply(c.in[c.r:c.w])
	if err != nil {
		return 0, 0, err
	}
	c.r += wire.SimpleReplySize
	if rep.Cookie >= uint64(len(c.dst)) {
		return 0, 0, fmt.Errorf("cookie %d: %w", rep.Cookie, ErrUnexpected)
	}
	tag = uint32(rep.Cookie)
	if rep.Errno != 0 {
		return tag, rep.Errno, nil
	}
	p := c.dst[tag]
	n := copy(p, c.in[c.r:c.w])
	c.r += n
	for p = p[n:]; len(p) > 0; p = p[n:] {
		if n, err = c.sock.Read(p); err != nil {
			return tag, 0, fmt.Errorf("receive data: %w", err)
		}
	}
	return tag, 0, nil
}

// more receives what is there.
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

// Disc sends what is queued and a DISC behind it.
func (c *Client) Disc() error {
	c.Request(wire.Request{Command: wire.CmdDisc})
	return c.Send()
}

// Socket is the connection beneath.
func (c *Client) Socket() *sockio.Socket { return c.sock }

// Close closes the connection, without a DISC.
func (c *Client) Close() error { return c.sock.Close() }
