package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/sockio"
	"pmnbd/nbd/wire"
)

// The floor is what two processes need at least to serve a request: two threads that block in
// read(2), and pass on messages of the same sizes through the same kinds of sockets. They store
// nothing, check nothing, and serve one request at a time:
//
//	client ── unix socket ── middle ── loopback TCP ── end
//
//	READ, FUA, FLUSH   the middle passes the request on, then the reply
//	WRITE              the middle replies, and passes the request on with the next one that is
//	                   not a WRITE, or when it has no room for another; the end does not answer
//
// The client is the same as for every other server, so its cost is the same.

// floorHelp is for the developers of scripts/bench: the help of pmnbd-bench does not list it.
const floorHelp = `Serves requests of pmnbd-bench, one at a time, and stores nothing: the floor of docs/benchmarks.md.
scripts/bench starts two of these.

Usage:
  pmnbd-bench floor --listen HOST:PORT                      the end
  pmnbd-bench floor --listen unix:/PATH --behind HOST:PORT  the middle
`

// floorSize is what the floor says its size is, in bytes. It stores nothing.
const floorSize = 1 << 40

func benchFloor(ctx context.Context, call *command.Call) error {
	listen := call.Flags.String("listen", "", "where to listen, unix:/PATH or HOST:PORT")
	behind := call.Flags.String("behind", "", "address of the end; empty: this is the end")
	if err := call.Parse(); err != nil {
		return err
	}
	if *listen == "" {
		return flags.Usagef("--listen is missing: use unix:/PATH or HOST:PORT")
	}
	network, address := "tcp", *listen
	if path, ok := strings.CutPrefix(*listen, "unix:"); ok {
		if network, address = "unix", path; path == "" {
			return flags.Usagef("--listen unix: names no path")
		}
	} else if _, _, err := net.SplitHostPort(*listen); err != nil {
		return flags.Usagef("--listen %q: use unix:/PATH or HOST:PORT", *listen)
	}
	if _, _, err := net.SplitHostPort(*behind); *behind != "" && err != nil {
		return flags.Usagef("--behind %q: use HOST:PORT", *behind)
	}
	sockio.Procs()
	l, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return flags.Listening(err)
	}
	if _, err := fmt.Fprintln(call.Stdout, "ready", l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	return serveFloor(ctx, l, *behind)
}

// serveFloor serves the connections of l, which it closes, until ctx ends. It is the end if
// behind is empty.
func serveFloor(ctx context.Context, l net.Listener, behind string) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		nc, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return errors.Join(err, l.Close())
		}
		conns.Go(func() {
			// An error ends the connection. The client reports that it did.
			if behind == "" {
				_ = floorEnd(ctx, nc)
			} else {
				_ = floorMiddle(ctx, nc, behind)
			}
		})
	}
}

// longestRequest is the length of a request of fill, in bytes. Replies are shorter.
const longestRequest = wire.RequestSize + fillSize

// A floorConn is a connection whose thread blocks in read(2).
type floorConn struct {
	fd   int
	in   []byte // in[r:w] is received and not used
	r, w int
	out  []byte // for a reply
	end  func()
}

// newFloorConn takes nc over. Until end is called, the goroutine keeps its thread, and the end of
// ctx ends the connection.
func newFloorConn(ctx context.Context, nc net.Conn) (*floorConn, error) {
	s, err := sockio.New(nc)
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	f, err := s.Detach()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	// Go's poller watches a file that it thinks nonblocking, and would wake a thread of its own
	// for each message. Closing f ends that; a duplicate stays.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	c := &floorConn{fd: fd, in: make([]byte, longestRequest), out: make([]byte, wire.SimpleReplySize+fillSize)}
	stop := context.AfterFunc(ctx, func() { _ = unix.Shutdown(fd, unix.SHUT_RDWR) }) // wakes read
	runtime.LockOSThread()
	c.end = func() {
		runtime.UnlockOSThread()
		stop()
		_ = unix.Close(fd) // it has nothing to write any more
	}
	return c, nil
}

// read reads until n bytes are there, which it returns. They are good until drop.
func (c *floorConn) read(n int) ([]byte, error) {
	if c.w-c.r < n {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	for c.w-c.r < n {
		got, err := rawRead(c.fd, c.in[c.w:])
		if err != nil {
			return nil, err
		}
		if got == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		c.w += got
	}
	return c.in[c.r : c.r+n], nil
}

// drop drops the first n bytes of what was read.
func (c *floorConn) drop(n int) { c.r += n }

func (c *floorConn) send(b []byte) error {
	for len(b) > 0 {
		n, err := rawWrite(c.fd, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// request reads a request with its payload.
func (c *floorConn) request() (r wire.Request, msg []byte, err error) {
	if msg, err = c.read(wire.RequestSize); err != nil {
		return r, nil, err
	}
	if r, err = wire.DecodeRequest(msg); err != nil || r.Command != wire.CmdWrite {
		return r, msg, err
	}
	if r.Len > fillSize {
		return r, nil, fmt.Errorf("WRITE of %d bytes, the most are %d", r.Len, fillSize)
	}
	msg, err = c.read(wire.RequestSize + int(r.Len))
	return r, msg, err
}

// reply sends the reply to r.
func (c *floorConn) reply(r wire.Request) error {
	wire.PutSimpleReply(c.out, wire.SimpleReply{Cookie: r.Cookie})
	return c.send(c.out[:replySize(r)])
}

// early reports whether the middle replies to r before the end has it.
func early(r wire.Request) bool { return r.Command == wire.CmdWrite && r.Flags&wire.CmdFlagFUA == 0 }

// replySize is the length of the reply to r, in bytes. No server of the suite sends more.
func replySize(r wire.Request) int {
	if r.Command == wire.CmdRead {
		return wire.SimpleReplySize + int(min(r.Len, fillSize))
	}
	return wire.SimpleReplySize
}

// floorEnd answers what a middle passes on.
func floorEnd(ctx context.Context, nc net.Conn) error {
	c, err := newFloorConn(ctx, nc)
	if err != nil {
		return err
	}
	defer c.end()
	for {
		r, msg, err := c.request()
		if err != nil {
			return err
		}
		c.drop(len(msg))
		if early(r) {
			continue
		}
		if err := c.reply(r); err != nil {
			return err
		}
	}
}

// floorMiddle negotiates with a client and passes its requests on.
func floorMiddle(ctx context.Context, nc net.Conn, behind string) error {
	if err := floorNegotiate(nc); err != nil {
		return errors.Join(err, nc.Close())
	}
	front, err := newFloorConn(ctx, nc)
	if err != nil {
		return err
	}
	defer front.end()
	if nc, err = new(net.Dialer).DialContext(ctx, "tcp", behind); err != nil {
		return err
	}
	rear, err := newFloorConn(ctx, nc)
	if err != nil {
		return err
	}
	defer rear.end()
	held := make([]byte, 0, longestRequest) // requests that the end does not have
	for {
		r, msg, err := front.request()
		if err != nil || r.Command == wire.CmdDisc {
			return err
		}
		if len(held)+len(msg) > cap(held) {
			if err := rear.send(held); err != nil {
				return err
			}
			held = held[:0]
		}
		held = append(held, msg...)
		front.drop(len(msg))
		if early(r) {
			if err := front.reply(r); err != nil {
				return err
			}
			continue
		}
		if err := passOn(front, rear, r, held); err != nil {
			return err
		}
		held = held[:0]
	}
}

// passOn passes requests on, and then the reply to the last one, r.
func passOn(front, rear *floorConn, r wire.Request, msgs []byte) error {
	if err := rear.send(msgs); err != nil {
		return err
	}
	reply, err := rear.read(replySize(r))
	if err != nil {
		return err
	}
	if err := front.send(reply); err != nil {
		return err
	}
	rear.drop(len(reply))
	return nil
}

// floorNegotiate answers options until a client enters transmission. It has one export, whatever
// its name.
func floorNegotiate(nc net.Conn) error {
	if err := nc.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if _, err := nc.Write(wire.AppendGreeting(nil, wire.FlagFixedNewstyle)); err != nil {
		return err
	}
	if _, err := io.ReadFull(nc, make([]byte, wire.ClientFlagsSize)); err != nil {
		return err
	}
	for {
		b := make([]byte, wire.OptionHeaderSize)
		if _, err := io.ReadFull(nc, b); err != nil {
			return err
		}
		o, err := wire.DecodeOptionHeader(b)
		if err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, nc, int64(o.Len)); err != nil {
			return err
		}
		if o.Option != wire.OptGo {
			if _, err := nc.Write(wire.AppendOptionReply(nil, o.Option, wire.RepErrUnsup, "")); err != nil {
				return err
			}
			continue
		}
		reply := wire.AppendInfoExport(nil, wire.OptGo, wire.Export{Size: floorSize, Flags: wire.FlagHasFlags | wire.FlagSendFlush | wire.FlagSendFUA})
		if _, err := nc.Write(wire.AppendOptionReply(reply, wire.OptGo, wire.RepAck, "")); err != nil {
			return err
		}
		return nc.SetDeadline(time.Time{})
	}
}
