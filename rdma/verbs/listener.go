//go:build verbs && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"pmnbd/rdma"
)

const (
	// backlog bounds the requests that wait in the kernel for Accept.
	backlog = 128
	// acceptTimeout is how long an initiator may take to confirm the connection.
	acceptTimeout = 5 * time.Second
	// returnPause is how long a listener whose device was removed waits between attempts
	// to listen again.
	returnPause = 250 * time.Millisecond
)

// A listener has no goroutine. Requests wait in the kernel for Accept.
type listener struct {
	cfg  Config
	addr netip.AddrPort
	done chan struct{}
	once sync.Once

	mu sync.Mutex // for the length of an Accept
	e  *endpoint  // nil after Close, and while its device is away

	current sync.Mutex
	waits   *endpoint // a copy of e, for Close to interrupt
}

// Listen implements rdma.Provider.
func (p *provider) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	at, err := addresses(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	ln := &listener{cfg: p.cfg, addr: at[0], done: make(chan struct{})}
	if at[0].Port() == 0 {
		err = onFreePort(ln.bindLocked)
	} else {
		err = ln.bindLocked()
	}
	if err != nil {
		return nil, err
	}
	ln.addr = netip.AddrPortFrom(ln.addr.Addr(), ln.e.local().Port())
	return ln, nil
}

// bound returns an endpoint at addr.
func bound(addr netip.AddrPort) (*endpoint, error) {
	e, err := newEndpoint()
	if err != nil {
		return nil, err
	}
	if rc, err := C.rdma_bind_addr(e.id, toSockaddr(addr).c()); rc != 0 {
		e.close()
		return nil, libError(fmt.Sprintf("bind to %v", addr), err)
	}
	return e, nil
}

// bindLocked makes ln.e and listens.
func (ln *listener) bindLocked() error {
	e, err := bound(ln.addr)
	if err != nil {
		return err
	}
	if rc, err := C.rdma_listen(e.id, backlog); rc != 0 {
		e.close()
		return libError(fmt.Sprintf("listen on %v", ln.addr), err)
	}
	ln.e = e
	ln.current.Lock()
	defer ln.current.Unlock()
	ln.waits = e
	select {
	case <-ln.done:
		e.events.interrupt()
	default:
	}
	return nil
}

// unbindLocked closes ln.e.
func (ln *listener) unbindLocked() {
	ln.current.Lock()
	defer ln.current.Unlock()
	if ln.e != nil {
		ln.e.close()
	}
	ln.e, ln.waits = nil, nil
}

// Addr implements rdma.Listener.
func (ln *listener) Addr() string { return ln.addr.String() }

// Accept implements rdma.Listener. If the device of the address is removed, Accept waits
// for it to come back.
func (ln *listener) Accept() (rdma.Request, error) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for {
		select {
		case <-ln.done:
			return nil, fmt.Errorf("accept on %v: %w", ln.addr, rdma.ErrClosed)
		default:
		}
		if ln.e == nil {
			ln.rebindLocked()
			continue
		}
		ev, err := ln.e.next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // Close
		case err != nil:
			return nil, fmt.Errorf("accept on %v: %w", ln.addr, err)
		case ev.kind == C.RDMA_CM_EVENT_CONNECT_REQUEST:
			r, err := newRequest(ln.cfg, &ev)
			if err == nil {
				return r, nil
			}
			if ln.cfg.Refused != nil {
				ln.cfg.Refused("", err)
			}
		case ev.kind == C.RDMA_CM_EVENT_DEVICE_REMOVAL:
			ln.unbindLocked()
			reap()
		}
	}
}

// rebindLocked tries once to listen again. If it fails, it pauses.
func (ln *listener) rebindLocked() {
	if ln.bindLocked() == nil {
		return
	}
	pause := time.NewTimer(returnPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ln.done:
	}
}

// Close implements rdma.Listener. It rejects the requests that nobody accepted.
func (ln *listener) Close() error {
	ln.once.Do(func() {
		ln.current.Lock()
		close(ln.done)
		if ln.waits != nil {
			ln.waits.events.interrupt()
		}
		ln.current.Unlock()
	})
	ln.mu.Lock() // wait for Accept to leave
	defer ln.mu.Unlock()
	ln.unbindLocked()
	return nil
}

// A request is a peer that wants to connect.
type request struct {
	cfg     Config
	e       *endpoint
	private []byte
	addr    string
	reads   int // how many this end may have outstanding
	readsIn int // how many the peer asks this end to answer
}

// newRequest makes a request of ev, whose identifier it moves to an event channel of its
// own. If it fails, it destroys the identifier.
func newRequest(cfg Config, ev *event) (*request, error) {
	e, err := newChannel()
	if err == nil {
		if rc, merr := C.rdma_migrate_id(ev.id, e.channel); rc != 0 {
			e.close()
			err = libError("take a connection request", merr)
		}
	}
	if err != nil {
		C.rdma_destroy_id(ev.id)
		return nil, err
	}
	e.id = ev.id
	r := &request{
		cfg: cfg, e: e, private: ev.private, addr: e.remote().String(),
		reads: ev.initiatorDepth, readsIn: ev.responderResources,
	}
	if r.reads == 0 && r.readsIn == 0 { // MPA revision 1 does not negotiate them (RFC 6581 §1)
		r.reads, r.readsIn = maxReads, maxReads
	}
	return r, nil
}

// Channel implements rdma.Request. Adapters do not encrypt.
func (r *request) Channel() *rdma.Channel { return nil }

// PrivateData implements rdma.Request.
func (r *request) PrivateData() []byte { return r.private }

// RemoteAddr implements rdma.Request.
func (r *request) RemoteAddr() string { return r.addr }

// OpenDomain implements rdma.Request.
func (r *request) OpenDomain() (rdma.Domain, error) {
	e, err := bound(netip.AddrPortFrom(r.e.local().Addr(), 0)) // the domain may outlive r.e
	if err != nil {
		return nil, err
	}
	d, err := newDomain(r.cfg, e)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Accept implements rdma.Request.
func (r *request) Accept(d rdma.Domain, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	c, err := r.accept(d, cfg, recvs)
	if err != nil {
		return nil, fmt.Errorf("accept %s: %w", r.addr, err)
	}
	return c, nil
}

func (r *request) accept(d rdma.Domain, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (*conn, error) {
	own, ok := d.(*domain)
	if !ok {
		r.e.close() // a request is answered once, by hanging up if need be
		return nil, fmt.Errorf("a %T is a domain of another provider: %w", d, rdma.ErrNotSupported)
	}
	cfg, err := own.dev.complete(cfg)
	if err != nil {
		r.e.close()
		return nil, err
	}
	c, err := newConn(own, r.e, cfg, recvs)
	if err != nil {
		return nil, err
	}
	c.caps.MaxReads = min(cfg.MaxReads, r.reads)
	ctx, cancel := context.WithTimeout(context.Background(), acceptTimeout)
	defer cancel()
	err = r.e.bounded(ctx, func() error {
		err := sysError("accept", C.shim_accept(r.e.id, C.uint8_t(min(cfg.MaxReadsIn, r.readsIn)), C.uint8_t(c.caps.MaxReads)))
		if err == nil {
			_, err = r.e.expect(C.RDMA_CM_EVENT_ESTABLISHED)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.start()
	return c, nil
}

// Abandon implements rdma.Request.
func (r *request) Abandon() { r.e.events.interrupt() }

// Reject implements rdma.Request.
func (r *request) Reject(privateData []byte) error {
	if len(privateData) > rdma.MaxPrivateData {
		privateData = privateData[:rdma.MaxPrivateData]
	}
	defer r.e.close()
	private, n := bytesToC(privateData)
	if rc, err := C.rdma_reject(r.e.id, private, n); rc != 0 {
		return libError("reject", err)
	}
	return nil
}
