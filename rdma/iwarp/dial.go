package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// Dial implements rdma.Domain. It is the initiator's side of MPA.
func (d *domain) Dial(ctx context.Context, addr string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	cfg, err := queue.Complete(cfg, queue.MaxDepth, maxReads)
	if err != nil {
		return nil, err
	}
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, dialError(ctx, addr, err)
	}
	sock, mss, err := takeOver(nc)
	if err != nil {
		_ = nc.Close()
		return nil, dialError(ctx, addr, err)
	}
	// When ctx ends, a deadline in the past interrupts the handshake.
	stop := context.AfterFunc(ctx, func() { _ = sock.SetDeadline(past) })
	c, err := d.connect(setup{sock: sock, mss: mss}, cfg, recvs)
	if !stop() && err == nil {
		err = context.Cause(ctx) // the socket keeps that deadline, so it is of no use
	}
	if err != nil {
		_ = sock.Close() // err says why
		return nil, dialError(ctx, addr, err)
	}
	return c, nil
}

// connect makes a connection of s.sock.
func (d *domain) connect(s setup, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (*conn, error) {
	l, err := dialed(&s, &d.cfg)
	if err != nil {
		return nil, err
	}
	if l.channel != nil && cfg.Private != nil {
		cfg.PrivateData = cfg.Private(l.channel)
		if cfg, err = queue.Complete(cfg, queue.MaxDepth, maxReads); err != nil {
			return nil, err
		}
	}
	return d.initiate(s, l, cfg, recvs)
}

// initiate exchanges the start-up frames over l.
func (d *domain) initiate(s setup, l *link, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (*conn, error) {
	req := mpaFrame{CRC: !d.cfg.NoCRC, Rev: d.cfg.Revision, Private: cfg.PrivateData}
	if req.Rev == 2 {
		req.Enhanced = true
		req.IRD, req.ORD = uint16(cfg.MaxReadsIn), uint16(cfg.MaxReads)
	}
	if _, err := l.Write(req.append(nil, requestKey)); err != nil {
		return nil, err
	}
	rep, err := readMPA(l, replyKey)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the peer hung up instead of answering, as one at iwarps:// does: %w", err)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case rep.Rev != req.Rev:
		return nil, fmt.Errorf("%w: revision %d answered by %d", errMPA, req.Rev, rep.Rev)
	case rep.Reject:
		return nil, &rdma.RejectError{PrivateData: rep.Private}
	case rep.Markers:
		return nil, fmt.Errorf("the peer wants markers: %w", rdma.ErrNotSupported)
	}
	s.crc, s.ord = req.CRC || rep.CRC, cfg.MaxReads
	if rep.Enhanced {
		// RFC 6581 §9.2: the responder's ORD must not exceed our IRD.
		if out := rep.ORD & readsMask; out != readsUnsaid && int(out) > cfg.MaxReadsIn {
			return nil, fmt.Errorf("%w: the peer wants %d Reads answered, %d were offered", errMPA, out, cfg.MaxReadsIn)
		}
		s.ord = limitReads(s.ord, rep.IRD)
	}
	return newConn(d, &s, cfg, recvs)
}

// limitReads bounds this end's ORD by the peer's IRD.
func limitReads(ord int, ird uint16) int {
	if ird &= readsMask; ird != readsUnsaid {
		ord = min(ord, int(ird))
	}
	return ord
}

// readMPA reads a start-up frame and not a byte more.
func readMPA(r io.Reader, key string) (mpaFrame, error) {
	var head [mpaHeaderLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return mpaFrame{}, err
	}
	f, n, err := decodeMPAHeader(head[:], key)
	if err != nil {
		return f, err
	}
	rest := make([]byte, n) // at most maxMPAPrivate
	if _, err := io.ReadFull(r, rest); err != nil {
		return f, err
	}
	f.decodeRest(rest)
	return f, nil
}

// dialError gives err, an error of connecting to addr, its kind.
func dialError(ctx context.Context, addr string, err error) error {
	var reject *rdma.RejectError
	var timeout net.Error
	kind := rdma.ErrLost
	switch {
	case errors.As(err, &reject), errors.Is(err, rdma.ErrNotSupported), errors.Is(err, rdma.ErrLocalAccess):
		return fmt.Errorf("connect to %s: %w", addr, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("connect to %s: %w", addr, context.Cause(ctx))
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		kind = rdma.ErrTimeout
	}
	// Package net would name the addresses a second time.
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("connect to %s: %w", addr, notConnected{err, kind})
}

// A notConnected error has a kind that its text leaves out: "connection lost" would
// confuse where there was none yet.
type notConnected struct {
	error
	kind error
}

// Unwrap is for errors.Is and errors.As.
func (e notConnected) Unwrap() []error { return []error{e.error, e.kind} }
