package main

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// An export is a connection to an NBD server. A slot's number is its tag.
type export struct {
	c       *client.Client
	payload []byte
	sinks   [][]byte // READ data, by slot
}

// dialTimeout bounds connecting and negotiating.
const dialTimeout = 10 * time.Second

// dial connects to an export, and returns how much of size bytes it has.
func dial(ctx context.Context, t target, size int64, depth, block int, payload []byte) (*export, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, t.network, t.address)
	if err != nil {
		return nil, 0, err
	}
	// ctx bounds the handshake. What follows has bounds of its own.
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	c, err := client.New(nc, client.Config{Export: t.export, Depth: depth})
	stop()
	if err != nil {
		return nil, 0, err
	}
	e := &export{c: c, payload: payload}
	sinks := make([]byte, depth*block)
	for i := range depth {
		e.sinks = append(e.sinks, sinks[i*block:(i+1)*block])
	}
	return e, min(size, int64(min(c.Export().Size, 1<<62))), nil
}

func (e *export) send(rs []request) error {
	for _, r := range rs {
		switch r.cmd {
		case cmdWrite:
			e.c.Write(uint32(r.slot), uint64(r.off), e.payload[:r.len], 0)
		case cmdFUA:
			e.c.Write(uint32(r.slot), uint64(r.off), e.payload[:r.len], wire.CmdFlagFUA)
		case cmdRead:
			e.c.Read(uint32(r.slot), uint64(r.off), e.sinks[r.slot][:r.len])
		case cmdFlush:
			e.c.Flush(uint32(r.slot))
		}
	}
	return e.c.Send()
}

func (e *export) recv() (int, error) {
	tag, errno, err := e.c.Recv()
	if err == nil && errno != 0 {
		// NBD's error numbers are Linux's.
		err = fmt.Errorf("the server answered: %w", syscall.Errno(errno))
	}
	return int(tag), err
}

func (e *export) buffered() bool { return e.c.Buffered() }

func (e *export) bound(t time.Time) error { return e.c.Socket().SetDeadline(t) }

// Close sends DISC to the server first, if it can.
func (e *export) Close() error {
	if e.bound(time.Now().Add(time.Second)) == nil {
		_ = e.c.Disc() // fails if the server is gone
	}
	return e.c.Close()
}
