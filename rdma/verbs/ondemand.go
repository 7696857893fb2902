//go:build verbs && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/rdma"
)

// A file with DAX cannot be pinned: its blocks belong to the filesystem, which may give
// them to another file. A device with on-demand paging needs no pins. It faults pages in
// when a request names them, and the kernel takes them back when they move. But such a
// device must be tried first, see errMisplaces.

// errMisplaces is the fault of rxe, in Linux 7.3 at least: it copies to and from the start
// of a page, whatever place in the page was named. Transfers that are aligned to pages
// look right.
var errMisplaces = errors.New("it misplaces bytes in memory that is not pinned")

// tryTimeout bounds a trial of on-demand paging, which takes two round trips to this
// process itself.
const tryTimeout = 5 * time.Second

// A paging is what the trial of a device's on-demand paging has shown.
type paging struct {
	mu    sync.Mutex
	known bool  // there was a trial, and err is its result
	err   error // nil if on-demand paging works
}

// onDemand returns nil if d's on-demand paging works, or why it cannot be used. A trial
// that fails for another reason says nothing, and the next call repeats it.
func (d *device) onDemand() error {
	if d.caps.odp == 0 {
		return errors.New("it has no on-demand paging")
	}
	d.paging.mu.Lock()
	defer d.paging.mu.Unlock()
	if d.paging.known {
		return d.paging.err
	}
	err := d.tryOnDemand()
	if err != nil && !errors.Is(err, errMisplaces) {
		return fmt.Errorf("a trial of its on-demand paging failed: %w", err)
	}
	d.paging.known, d.paging.err = true, err
	return err
}

// tryOnDemand connects d to itself and tries it.
func (d *device) tryOnDemand() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
	defer cancel()
	p := &provider{}
	at := netip.AddrPortFrom(d.anchor.local().Addr(), 0)
	l, err := p.Listen(ctx, at.String())
	if err != nil {
		return err
	}
	defer l.Close()                                          //nolint:errcheck // it never fails
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // in case the connection never comes
	e, err := bound(at)
	if err != nil {
		return err
	}
	dom, err := newDomain(p.cfg, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dom.Close()) }()
	a, b, err := dom.loop(ctx, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close(), b.Close()) }()
	defer context.AfterFunc(ctx, func() { _ = a.Close() })() // in case the answer never comes
	return dom.tryOnDemand(a)
}

// loop connects d to itself through l.
func (d *domain) loop(ctx context.Context, l rdma.Listener) (a, b rdma.Conn, err error) {
	var dialled sync.WaitGroup
	var dialErr error
	dialled.Go(func() {
		if a, dialErr = d.Dial(ctx, l.Addr(), rdma.ConnConfig{}, nil); dialErr != nil {
			_ = l.Close() // so that Accept does not wait
		}
	})
	req, err := l.Accept()
	if err == nil {
		b, err = req.Accept(d, rdma.ConnConfig{}, nil)
	}
	dialled.Wait()
	if err = errors.Join(dialErr, err); err == nil {
		return a, b, nil
	}
	for _, c := range []rdma.Conn{a, b} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	return nil, nil, err
}

// tryOnDemand Writes across three pages that are not pinned, Reads them back and compares.
// It does so on c, whose peer is in d, too.
func (d *domain) tryOnDemand(c rdma.Conn) error {
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 8*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem) //nolint:errcheck // d has deregistered it before
	there, here := mem[:4*page], mem[4*page:]
	paged, err := d.add(there, rdma.RemoteRead|rdma.RemoteWrite|rdma.LocalWrite, C.IBV_ACCESS_ON_DEMAND)
	if err != nil {
		return err
	}
	defer d.Deregister(paged) //nolint:errcheck // if it fails, closing d deregisters it
	pinned, err := d.add(here, rdma.LocalWrite, 0)
	if err != nil {
		return err
	}
	defer d.Deregister(pinned) //nolint:errcheck // if it fails, closing d deregisters it
	const off = 8
	n := 2 * page
	sent, got := here[:n], here[n:]
	for i := range sent {
		sent[i] = byte(i%255 + 1)
	}
	remote := rdma.Remote{Key: paged.Key, Addr: paged.Base + off}
	if _, err := c.Post([]rdma.WorkRequest{
		{Op: rdma.OpWrite, Local: rdma.SGE{Region: pinned, Len: uint32(n)}, Remote: remote},
		{Op: rdma.OpRead, Local: rdma.SGE{Region: pinned, Off: uint64(n), Len: uint32(n)}, Remote: remote},
	}); err != nil {
		return err
	}
	for n := 0; n == 0; { // until the Read completes
		var cs [1]rdma.Completion
		if n, err = c.Poll(cs[:]); n == 0 && err == nil {
			err = c.Wait()
		}
		if err != nil {
			return err
		}
	}
	rest := append(bytes.Clone(there[:off]), there[off+n:]...)
	if !bytes.Equal(there[off:off+n], sent) || !bytes.Equal(got, sent) || len(bytes.Trim(rest, "\x00")) != 0 {
		return errMisplaces
	}
	return nil
}
