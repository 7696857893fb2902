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

// A descriptor is an event file of the libraries in Go's poller, so that waiting on it
// costs no thread.
type descriptor struct {
	file *os.File
	raw  syscall.RawConn
}

// watch makes fd non-blocking and adds a duplicate of it to Go's poller. The library keeps
// fd itself.
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

// until calls take until it reports true, and sleeps in between. interrupt ends it.
func (d *descriptor) until(take func(uintptr) bool) error { return d.raw.Read(take) }

// interrupt ends until with os.ErrDeadlineExceeded, now and in every later call.
func (d *descriptor) interrupt() { _ = d.file.SetReadDeadline(time.Unix(1, 0)) }

// An endpoint is an identifier of the connection manager with an event channel of its
// own.
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

// close destroys the endpoint. Events that nobody took are lost.
func (e *endpoint) close() {
	if e.id != nil {
		C.rdma_destroy_id(e.id)
	}
	_ = e.events.file.Close()
	C.rdma_destroy_event_channel(e.channel)
}

// An event is a copy of a connection manager's event, which is acknowledged already.
type event struct {
	kind    C.enum_rdma_cm_event_type
	status  int
	id      *C.struct_rdma_cm_id
	private []byte
	// How many Reads this end may have outstanding, and how many the peer asks it to
	// answer.
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
	switch ev.event { // other events have no private data that anybody reads
	case C.RDMA_CM_EVENT_CONNECT_REQUEST, C.RDMA_CM_EVENT_REJECTED:
		got.private = C.GoBytes(p.private_data, C.int(p.private_data_len))
	}
	C.rdma_ack_cm_event(ev)
	return got, nil
}

// expect waits for an event of kind want. Another kind is an error.
func (e *endpoint) expect(want C.enum_rdma_cm_event_type) (event, error) {
	ev, err := e.next()
	if err == nil && ev.kind != want {
		err = ev.err()
	}
	return ev, err
}

// consumerRejected is IB_CM_REJ_CONSUMER_DEFINED (IBTA volume 1, table 108). It tells a
// peer that refuses from an address where nobody listens.
const consumerRejected = 28

// err returns the meaning of an event that expect did not want.
func (ev *event) err() error {
	name := C.GoString(C.rdma_event_str(ev.kind))
	switch ev.kind {
	case C.RDMA_CM_EVENT_REJECTED:
		// iWARP has negative errnos for both. A peer that refuses gives a reason.
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

// bounded runs f, whose waits on e end when ctx does. After that e is of no use.
func (e *endpoint) bounded(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, e.events.interrupt)
	err := f()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// A sockaddr is an address in the form that the libraries take.
type sockaddr struct{ raw unix.RawSockaddrInet6 } // larger than that of IPv4

func (s *sockaddr) c() *C.struct_sockaddr {
	// x/sys has the kernel's own layouts, and s has room for IPv4's and IPv6's.
	return (*C.struct_sockaddr)(unsafe.Pointer(&s.raw))
}

// toSockaddr converts ap, whose zone, if any, is a number or the name of an interface.
func toSockaddr(ap netip.AddrPort) *sockaddr {
	s := new(sockaddr)
	if a := ap.Addr().Unmap(); a.Is4() {
		// It is smaller than what it overlays, and needs less alignment.
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		s4.Family, s4.Port, s4.Addr = unix.AF_INET, networkOrder(ap.Port()), a.As4()
		return s
	}
	s.raw.Family, s.raw.Port, s.raw.Addr = unix.AF_INET6, networkOrder(ap.Port()), ap.Addr().As16()
	s.raw.Scope_id = zone(ap.Addr().Zone())
	return s
}

// fromSockaddr converts an address that a library holds.
func fromSockaddr(sa *C.struct_sockaddr) netip.AddrPort {
	// sa is in a struct sockaddr_storage, which is large and aligned enough for either.
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

// networkOrder converts a port from this machine's byte order to the wire's, or back.
func networkOrder(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

// zone returns the index of the interface name, which may itself be an index.
func zone(name string) uint32 {
	if i, err := net.InterfaceByName(name); err == nil {
		return uint32(i.Index)
	}
	n, _ := strconv.ParseUint(name, 10, 32) // 0 if it is neither
	return uint32(n)
}
