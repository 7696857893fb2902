//go:build verbs && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"pmnbd/rdma"
)

// resolveTimeout bounds the resolution of the address, and that of the route, in
// milliseconds. It is for callers whose context has no deadline.
const resolveTimeout = 5000

// resolve returns an endpoint bound to the device that reaches addr.
func resolve(ctx context.Context, addr string) (*endpoint, error) {
	targets, err := addresses(ctx, addr)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, target := range targets { // a name may have some that no device reaches
		e, err := newEndpoint()
		if err != nil {
			return nil, err
		}
		err = e.bounded(ctx, func() error {
			if rc, err := C.rdma_resolve_addr(e.id, nil, toSockaddr(target).c(), resolveTimeout); rc != 0 {
				return libError("resolve the address", err)
			}
			_, err := e.expect(C.RDMA_CM_EVENT_ADDR_RESOLVED)
			return err
		})
		if err == nil {
			return e, nil
		}
		e.close()
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// addresses resolves addr, HOST:PORT. An empty host is ::.
func addresses(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "::"
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var all []netip.AddrPort
	for _, ip := range ips {
		all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	return all, nil
}

// Dial implements rdma.Domain.
func (d *domain) Dial(ctx context.Context, addr string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	cfg, err := d.dev.complete(cfg)
	if err != nil {
		return nil, err
	}
	var c *conn
	err = onFreePort(func() (err error) {
		c, err = d.dial(ctx, addr, cfg, recvs)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.start()
	return c, nil
}

// dial is one attempt of Dial, from a port that the connection manager draws.
func (d *domain) dial(ctx context.Context, addr string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (*conn, error) {
	e, err := resolve(ctx, addr)
	if err != nil {
		return nil, dialError(ctx, addr, err)
	}
	c, err := newConn(d, e, cfg, recvs)
	if err != nil {
		return nil, dialError(ctx, addr, err)
	}
	if err = e.bounded(ctx, func() error { return c.connect(cfg) }); err != nil {
		return nil, errors.Join(dialError(ctx, addr, err), c.Close())
	}
	return c, nil
}

// connect sends the request and waits for the peer's answer.
func (c *conn) connect(cfg rdma.ConnConfig) error {
	if rc, err := C.rdma_resolve_route(c.e.id, resolveTimeout); rc != 0 {
		return libError("find a route", err)
	}
	if _, err := c.e.expect(C.RDMA_CM_EVENT_ROUTE_RESOLVED); err != nil {
		return err
	}
	private, n := bytesToC(cfg.PrivateData)
	if err := sysError("connect", C.shim_connect(c.e.id, private, n, C.uint8_t(cfg.MaxReadsIn), C.uint8_t(cfg.MaxReads))); err != nil {
		return err
	}
	ev, err := c.e.expect(C.RDMA_CM_EVENT_ESTABLISHED)
	if err != nil {
		return err
	}
	// InfiniBand reports what the peer offers, iWARP what was agreed.
	reads := ev.initiatorDepth
	if c.d.dev.caps.iwarp != 0 {
		reads = ev.responderResources
	}
	c.caps.MaxReads = min(cfg.MaxReads, reads)
	return nil
}

// dialError gives err, an error of connecting to addr, its kind.
func dialError(ctx context.Context, addr string, err error) error {
	var reject *rdma.RejectError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", err, rdma.ErrTimeout)
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.As(err, &reject), errors.Is(err, rdma.ErrLost), errors.Is(err, rdma.ErrNotSupported), errors.Is(err, rdma.ErrClosed), errors.Is(err, rdma.ErrLocalAccess):
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%w: %w", err, rdma.ErrTimeout)
	default:
		err = fmt.Errorf("%w: %w", err, rdma.ErrLost)
	}
	return fmt.Errorf("connect to %s: %w", addr, err)
}
