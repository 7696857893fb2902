// Package client is a small NBD client that keeps many requests outstanding, only for this
// module; it promises nothing to other programs.
//
// It speaks fixed newstyle with simple, structured or extended replies, over a connection
// that the caller has made. Queue requests with Write, Read and Flush, send them with Send,
// and take one reply at a time with Recv. Each outstanding request has a tag below
// Config.Depth, which Recv returns:
//
//	c, err := client.New(nc, client.Config{Export: "disk", Depth: 2})
//	...
//	c.Write(0, 4096, data, 0)
//	c.Flush(1)
//	err = c.Send()
//	tag, errno, err := c.Recv() // twice
//
// The client is made for tests and for measurements of servers: a request allocates nothing,
// and a batch is one system call. An error of a method breaks the connection. An error of
// the server is an errno, a number of the NBD protocol.
package client

import (
	"errors"
	"fmt"
	"net"
	"os"

	"pmnbd/internal/sockio"
	"pmnbd/nbd/wire"
)

// Errors of a Client. They break the connection.
var (
	// ErrRefused: the server has refused an option, such as the export.
	ErrRefused = errors.New("refused by the server")
	// ErrUnexpected: the server has sent a message that no server sends here.
	ErrUnexpected = errors.New("unexpected message")
)

// Replies is the form of the replies of a server.
type Replies int

// The kinds of replies.
const (
	Simple     Replies = iota
	Structured         // STRUCTURED_REPLY
	Extended           // EXTENDED_HEADERS
)

// Config configures a Client.
type Config struct {
	Export string
	Depth  int // tags of requests are less than this; 0 means 1
	// Replies is the form to ask for. New fails with ErrRefused if the server does not
	// have it.
	Replies Replies
	// Allocation selects the metadata context base:allocation for BLOCK_STATUS.
	Allocation bool
}

// A Client is a connection to a server, in transmission. One goroutine may queue and send
// while another receives, if no two outstanding requests have the same tag. A goroutine
// that does both keeps so little outstanding that the server does not wait for it to
// receive.
type Client struct {
	sock    *sockio.Socket
	replies Replies
	context uint32 // id of base:allocation
	export  wire.Export
	sizes   wire.BlockSizes

	description string

	q sockio.Queue // of requests

	pending []pending // by tag
	text    string    // of the newest error
	// in[r:w] is received and not decoded.
	in   []byte
	r, w int
}

// A pending request has no reply yet.
type pending struct {
	dst    []byte // for the data of a READ
	off    uint64 // of a READ
	got    int    // bytes of the data
	errno  uint32
	extent wire.Extent
}

// New negotiates on nc and enters transmission. The Client takes nc over: New closes it if
// it fails.
func New(nc net.Conn, cfg Config) (*Client, error) {
	c := &Client{replies: cfg.Replies, pending: make([]pending, max(cfg.Depth, 1)), in: make([]byte, 64<<10)}
	err := c.negotiate(nc, cfg)
	if err == nil {
		c.sock, err = sockio.New(nc)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("negotiate for export %q: %w", cfg.Export, err), nc.Close())
	}
	return c, nil
}

// Export returns the size and the flags of the export.
func (c *Client) Export() wire.Export { return c.export }

// BlockSizes returns the size constraints of the export.
func (c *Client) BlockSizes() wire.BlockSizes { return c.sizes }

// Description returns what the server says of the export, for people; "" if it says nothing.
func (c *Client) Description() string { return c.description }

// Write queues a WRITE of data. The data must not change until Send has returned.
func (c *Client) Write(tag uint32, off uint64, data []byte, flags wire.CommandFlags) {
	if c.replies == Extended {
		flags |= wire.CmdFlagPayloadLen
	}
	c.Request(wire.Request{Command: wire.CmdWrite, Flags: flags, Cookie: uint64(tag), Off: off, Len: uint64(len(data))})
	c.q.Data(data)
}

// Read queues a READ. Recv puts the data into p.
func (c *Client) Read(tag uint32, off uint64, p []byte) {
	c.Request(wire.Request{Command: wire.CmdRead, Cookie: uint64(tag), Off: off, Len: uint64(len(p))})
	c.pending[tag] = pending{dst: p, off: off}
}

// Flush queues a FLUSH.
func (c *Client) Flush(tag uint32) {
	c.Request(wire.Request{Command: wire.CmdFlush, Cookie: uint64(tag)})
}

// Request queues the header of any request. Its cookie is the tag that Recv returns. The
// caller queues the payload with Payload.
func (c *Client) Request(r wire.Request) {
	if r.Cookie < uint64(len(c.pending)) {
		c.pending[r.Cookie] = pending{}
	}
	if c.replies == Extended {
		wire.PutExtendedRequest(c.q.Header(wire.ExtendedRequestSize), r)
		return
	}
	wire.PutRequest(c.q.Header(wire.RequestSize), r)
}

// Payload queues the payload of the request before it. It must not change until Send has
// returned.
func (c *Client) Payload(p []byte) { c.q.Data(p) }

// Send sends all that is queued, in one system call if the socket takes it.
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

// Disc sends all that is queued and then a DISC.
func (c *Client) Disc() error {
	c.Request(wire.Request{Command: wire.CmdDisc})
	return c.Send()
}

// Socket returns the connection.
func (c *Client) Socket() *sockio.Socket { return c.sock }

// Close closes the connection without a DISC.
func (c *Client) Close() error { return c.sock.Close() }

// Detach ends the client and leaves its connection, in transmission, to the caller. No request may be
// under way.
func (c *Client) Detach() (*os.File, error) { return c.sock.Detach() }
