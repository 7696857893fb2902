//go:build verbs && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pmnbd/rdma"
)

// A descriptor is an event file of the libraries in Go's poller, so that waiting
// costs no thread.
type descriptor struct {
	file *os.File
	raw  syscall.RawConn
}

// watch makes fd non-blocking and watches it. The library goes on to own fd:
// ours is a duplicate.
func watch(fd C.int) (d descriptor, err error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return d, fmt.Errorf("duplicate an event channel: %w", err)
	}
	if err = unix.SetNonblock(own, true); err != nil {
		_ = unix.Close(own)
		return d, fmt.Errorf("make an event channel non-blocking: %w", err)
	}
	d.file = os.NewFile(uintptr(own), "rdma events")
	d.raw, err = d.file.SyscallConn()
	return d, err
}

// until calls take until it reports true, and sleeps in between. interrupt ends
// it, for good.
func (d *descriptor) until(take func(uintptr) bool) error { return d.raw.Read(take) }

func (d *descriptor) interrupt() { _ = d.file.SetReadDeadline(time.Unix(1, 0)) }

// An endpoint is an identifier of the connection manager with an event channel of
// its own.
type endpoint struct {
	id      *C.struct_rdma_cm_id
	channel *C.struct_rdma_event_channel
	events  descriptor
}

// newChannel makes an endpoint without an identifier.
func newChannel() (*endpoint, error) {
	channel, err := C.rdma_create_event_channel()
	if channel == nil {
		return nil, libError("open the RDMA connection manager", err)
	}
	e := &endpoint{channel: channel}
	if e.events, err = watch(channel.fd); err != nil {
		C.rdma_destroy_event_channel(channel)
		return nil, err
	}
	return e, nil
}

func newEndpoint() (*endpoint, error) {
	e, err := newChannel()
	if err != nil {
		return nil, err
	}
	if rc, err := C.rdma_create_id(e.channel, &e.id, nil, C.RDMA_PS_TCP); rc != 0 {
		e.close()
		return nil, libError("make an RDMA identifier", err)
	}
	return e, nil
}

// close destroys what is there. Events that nobody took are dropped with it.
func (e *endpoint) close() {
	if e.id != nil {
		C.rdma_destroy_id(e.id)
	}
	_ = e.events.file.Close()
	C.rdma_destroy_event_channel(e.channel)
}

// An event is one of the connection manager's, copied and acknowledged.
type event struct {
	kind    C.enum_rdma_cm_event_type
	status  int
	id      *C.struct_rdma_cm_id
	private []byte
	// What the event says of Reads, from this end's side: how many it may have
	// outstanding, and how many it is asked to answer.
	initiatorDepth, responderResources int
}

// next waits for an event.
func (e *endpoint) next() (event, error) {
	var ev *C.struct_rdma_cm_event
	var errno error
	err := e.events.until(func(uintptr) bool {
		var rc C.int
		if rc, errno = C.rdma_get_cm_event(e.channel, &ev); rc == 0 {
			errno = nil
		}
		return !errors.Is(errno, syscall.EAGAIN)
	})
	if err != nil {
		return event{}, err
	}
	if errno != nil {
		return event{}, libError("wait for the connection manager", errno)
	}
	p := C.shim_conn_param(ev)
	got := event{
		kind: ev.event, status: int(ev.status), id: ev.id,
		initiatorDepth: int(p.initiator_depth), responderResources: int(p.responder_resources),
	}
	switch ev.event { // others have no parameters, or those of datagrams
	case C.RDMA_CM_EVENT_CONNECT_REQUEST, C.RDMA_CM_EVENT_REJECTED:
		got.private = C.GoBytes(p.private_data, C.int(p.private_data_len))
	}
	C.rdma_ack_cm_event(ev)
	return got, nil
}

// expect waits for an event of kind want; another is an error.
func (e *endpoint) expect(want C.enum_rdma_cm_event_type) (event, error) {
	ev, err := e.next()
	if err == nil && ev.kind != want {
		err = ev.err()
	}
	return ev, err
}

// consumerRejected is IB_CM_REJ_CONSUMER_DEFINED (IBTA volume 1, table 108): a peer
// said no, rather than nobody being there.
const consumerRejected = 28

// err is what an event that nobody wanted means.
func (ev *event) err() error {
	name := C.GoString(C.rdma_event_str(ev.kind))
	switch ev.kind {
	case C.RDMA_CM_EVENT_REJECTED:
		// iWARP has negative errnos for both; a peer that says no gives a reason.
		if ev.status == consumerRejected || ev.status < 0 && len(ev.private) > 0 {
			return &rdma.RejectError{PrivateData: ev.private}
		}
		return fmt.Errorf("nobody listens there (reason %d): %w", ev.status, rdma.ErrLost)
	case C.RDMA_CM_EVENT_DEVICE_REMOVAL:
		return fmt.Errorf("%w: %w", rdma.ErrDevice, rdma.ErrLost)
	}
	if ev.status < 0 {
		return libError(name, syscall.Errno(-ev.status))
	}
	return fmt.Errorf("%s (status %d): %w", name, ev.status, rdma.ErrLost)
}

// bounded runs f, whose waits in e end when ctx does. e is of no use then.
func (e *endpoint) bounded(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, e.events.interrupt)
	err := f()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// A sockaddr is an address as the libraries take it.
type sockaddr struct{ raw unix.RawSockaddrInet6 } // larger than that of IPv4

func (s *sockaddr) c() *C.struct_sockaddr {
	// The kernel's own layouts, and s has room for both.
	return (*C.struct_sockaddr)(unsafe.Pointer(&s.raw))
}

// toSockaddr is ap, whose zone must be a number or an interface's name.
func toSockaddr(ap netip.AddrPort) *sockaddr {
	s := new(sockaddr)
	if a := ap.Addr().Unmap(); a.Is4() {
		// Smaller, and of weaker alignment, than what it overlays.
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		s4.Family, s4.Port, s4.Addr = unix.AF_INET, networkOrder(ap.Port()), a.As4()
		return s
	}
	s.raw.Family, s.raw.Port, s.raw.Addr = unix.AF_INET6, networkOrder(ap.Port()), ap.Addr().As16()
	s.raw.Scope_id = zone(ap.Addr().Zone())
	return s
}

// fromSockaddr reads an address that a library holds.
func fromSockaddr(sa *C.struct_sockaddr) netip.AddrPort {
	// sa is in a struct sockaddr_storage, aligned and large enough for each.
	switch sa.sa_family {
	case unix.AF_INET:
		s := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), networkOrder(s.Port))
	case unix.AF_INET6:
		s := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		a := netip.AddrFrom16(s.Addr).Unmap()
		if s.Scope_id != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(s.Scope_id), 10))
		}
		return netip.AddrPortFrom(a, networkOrder(s.Port))
	}
	return netip.AddrPort{}
}

func (e *endpoint) local() netip.AddrPort  { return fromSockaddr(C.rdma_get_local_addr(e.id)) }
func (e *endpoint) remote() netip.AddrPort { return fromSockaddr(C.rdma_get_peer_addr(e.id)) }

// networkOrder swaps a port between this machine's order and the wire's.
func networkOrder(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

// zone is the index of the interface that name is, or says.
func zone(name string) uint32 {
	if i, err := net.InterfaceByName(name); err == nil {
		return uint32(i.Index)
	}
	n, _ := strconv.ParseUint(name, 10, 32) // 0: none
	return uint32(n)
}
