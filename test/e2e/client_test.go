package e2e

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/nbd/client"
)

// A conn is an NBD connection that does one thing at a time, for tests that need to know when a
// reply came.
type conn struct {
	c       *client.Client
	endless bool // it waits until its deadline is set from outside
	closed  bool
}

// dialNBD connects to a URI of a ready line. Each request has outer as its deadline.
func dialNBD(t *testing.T, uri string) *conn {
	t.Helper()
	return dialDeep(t, uri, 1)
}

// dialDeep is dialNBD for up to depth requests at a time.
func dialDeep(t *testing.T, uri string, depth int) *conn {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	network, address := "tcp", u.Host
	if u.Scheme == "nbd+unix" {
		network, address = "unix", u.Query().Get("socket")
	}
	nc, err := net.Dial(network, address)
	require.NoError(t, err)
	require.NoError(t, nc.SetDeadline(time.Now().Add(outer)))
	c, err := client.New(nc, client.Config{Export: strings.TrimPrefix(u.Path, "/"), Depth: depth})
	require.NoError(t, err)
	n := &conn{c: c}
	t.Cleanup(n.close)
	return n
}

// close closes the connection. It sends DISC first if the server is still there.
func (n *conn) close() {
	if !n.closed {
		n.closed = true
		_ = n.c.Disc()
		_ = n.c.Close()
	}
}

func (n *conn) write(off uint64, data []byte) error {
	n.c.Write(0, off, data, 0)
	return n.do()
}

func (n *conn) read(off uint64, data []byte) error {
	n.c.Read(0, off, data)
	return n.do()
}

func (n *conn) flush() error {
	n.c.Flush(0)
	return n.do()
}

func (n *conn) do() error {
	if err := n.limit(); err != nil {
		return err
	}
	if err := n.c.Send(); err != nil {
		return err
	}
	return n.reply()
}

// limit begins the time that the next request may take.
func (n *conn) limit() error {
	if n.endless {
		return nil
	}
	return n.c.Socket().SetDeadline(time.Now().Add(outer))
}

// reply waits for the reply to the request. It returns the server's error as a syscall.Errno:
// NBD's numbers are Linux's.
func (n *conn) reply() error {
	_, errno, err := n.c.Recv()
	if err == nil && errno != 0 {
		err = fmt.Errorf("the server replied: %w", syscall.Errno(errno))
	}
	return err
}
