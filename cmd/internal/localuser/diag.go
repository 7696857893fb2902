package localuser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The request for one socket and its answer (include/uapi/linux/inet_diag.h). Ports and
// addresses are in network byte order, the rest in the machine's.
//
//	inet_diag_req_v2                inet_diag_msg
//	 0  family, protocol             0  family, state, timer, retransmissions
//	 2  extensions, padding          4  socket, as in the request
//	 4  states, a bit for each      52  expiry, queues: 3 words
//	 8  socket                      64  uid
//	56                              68  inode
//	                                72  attributes
//	socket: port, peer's port, address (16), peer's address (16), interface, cookie (8)
const (
	requestSize = 56
	answerSize  = 72
	uidAt       = 64
	inodeAt     = 68
	// established is the state of a connection that both ends still have open
	// (include/net/tcp_states.h). Once a socket is closed the kernel forgets its user and
	// answers root.
	established = unix.BPF_TCP_ESTABLISHED
)

// userOf asks the kernel for the user of the TCP socket that is at socket and connected to
// peer. The kernel finds it only on this machine and in this network namespace.
func userOf(socket, peer netip.AddrPort) (uid uint32, err error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return 0, fmt.Errorf("ask the kernel: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	messages, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request},
		Data:   request(socket, peer),
	})
	if err != nil {
		return 0, fmt.Errorf("ask the kernel for the socket at %v: %w", socket, err)
	}
	if len(messages) != 1 {
		return 0, fmt.Errorf("the kernel answers with %d messages instead of one", len(messages))
	}
	return user(messages[0].Data, socket, peer)
}

// request is the inet_diag_req_v2 for the socket at socket that is connected to peer.
func request(socket, peer netip.AddrPort) []byte {
	b := make([]byte, requestSize)
	b[0], b[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if socket.Addr().Unmap().Is4() {
		b[0] = unix.AF_INET // also that of an IPv6 socket with such addresses
	}
	binary.NativeEndian.PutUint32(b[4:], 1<<established)
	binary.BigEndian.PutUint16(b[8:], socket.Port())
	binary.BigEndian.PutUint16(b[10:], peer.Port())
	copy(b[12:28], socket.Addr().Unmap().AsSlice())
	copy(b[28:44], peer.Addr().Unmap().AsSlice())
	for i := 48; i < requestSize; i++ {
		b[i] = 0xff // INET_DIAG_NOCOOKIE
	}
	return b
}

// user reads the user from b, an inet_diag_msg. It refuses two answers of the kernel: a
// listener, which comes if there is no such connection, and root for a socket that nobody has
// open any more.
func user(b []byte, socket, peer netip.AddrPort) (uint32, error) {
	if len(b) < answerSize {
		return 0, fmt.Errorf("the kernel answers with %d bytes instead of %d", len(b), answerSize)
	}
	at := netip.AddrPortFrom(address(b[0], b[8:24]), binary.BigEndian.Uint16(b[4:]))
	to := netip.AddrPortFrom(address(b[0], b[24:40]), binary.BigEndian.Uint16(b[6:]))
	if at != unmapped(socket) || to != unmapped(peer) {
		return 0, fmt.Errorf("there is no socket at %v connected to %v on this machine", socket, peer)
	}
	if b[1] != established || binary.NativeEndian.Uint32(b[inodeAt:]) == 0 {
		return 0, fmt.Errorf("the socket at %v is closed already", socket)
	}
	return binary.NativeEndian.Uint32(b[uidAt:]), nil
}

// address reads an address of an answer. In another family than IP it is invalid.
func address(family byte, b []byte) netip.Addr {
	switch family {
	case unix.AF_INET:
		return netip.AddrFrom4([4]byte(b))
	case unix.AF_INET6:
		return netip.AddrFrom16([16]byte(b)).Unmap()
	}
	return netip.Addr{}
}

func unmapped(ap netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
