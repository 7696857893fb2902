// Package client is a minimal NBD client that keeps many requests in flight.
//
// It exists for tests and for the load generator: a request costs no allocation
// and a batch one system call, so that what is measured is the server. It speaks
// fixed newstyle with simple, structured or extended replies. It imports nbd/wire,
// plain and sockio.
package client

import (
	"errors"
	"fmt"
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

// Replies is how a server answers requests.
type Replies int

// The kinds of replies.
const (
	Simple     Replies = iota
	Structured         // STRUCTURED_REPLY
	Extended           // EXTENDED_HEADERS
)

// Config is what a Client asks for.
type Config struct {
	Export string
	Depth  int // bounds the tags of requests; 0 means 1
	// Replies are refused (ErrRefused) if the server does not have them.
	Replies Replies
	// Allocation selects the metadata context base:allocation for BLOCK_STATUS.
	Allocation bool
}

// A Client is a connection in transmission. One goroutine may queue and send while
// another receives, if each tag is used by one request at a time. One that does
// both must not have so much in flight that the server waits for it to receive.
type Client struct {
	sock    *sockio.Socket
	replies Replies
	context uint32 // id of base:allocation
	export  wire.Export
	sizes   wire.BlockSizes

	q sockio.Queue // of requests

	pending []pending // by tag
	text    string    // of the newest error
	// in[r:w] was received and not taken.
	in   []byte
	r, w int
}

// A pending request is one that has no reply yet.
type pending struct {
	dst    []byte // where the data of a READ goes
	off    uint64 // of a READ
	got    int    // bytes of it
	errno  uint32
	extent wire.Extent
}

// New negotiates on nc, which it takes over, and enters transmission.
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

// Export is what the server said of the export.
func (c *Client) Export() wire.Export { return c.export }

// BlockSizes are the server's size constraints.
func (c *Client) BlockSizes() wire.BlockSizes { return c.sizes }

// Write queues a WRITE of data, which must stay unchanged until Send has returned.
func (c *Client) Write(tag uint32, off uint64, data []byte, flags wire.CommandFlags) {
	if c.replies == Extended {
		flags |= wire.CmdFlagPayloadLen
	}
	c.Request(wire.Request{Command: wire.CmdWrite, Flags: flags, Cookie: uint64(tag), Off: off, Len: uint64(len(data))})
	c.q.Data(data)
}

// Read queues a READ into p, which Recv fills.
func (c *Client) Read(tag uint32, off uint64, p []byte) {
	c.Request(wire.Request{Command: wire.CmdRead, Cookie: uint64(tag), Off: off, Len: uint64(len(p))})
	c.pending[tag] = pending{dst: p, off: off}
}

// Flush queues a FLUSH.
func (c *Client) Flush(tag uint32) {
	c.Request(wire.Request{Command: wire.CmdFlush, Cookie: uint64(tag)})
}

// Request queues a request's header as it is. A payload is the caller's to queue
// (Payload), and the cookie is the tag that Recv returns.
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

// Payload queues what follows a request. It must stay unchanged until Send has
// returned.
func (c *Client) Payload(p []byte) { c.q.Data(p) }

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

// Disc sends what is queued and a DISC behind it.
func (c *Client) Disc() error {
	c.Request(wire.Request{Command: wire.CmdDisc})
	return c.Send()
}

// Socket is the connection beneath.
func (c *Client) Socket() *sockio.Socket { return c.sock }

// Close closes the connection, without a DISC.
func (c *Client) Close() error { return c.sock.Close() }
