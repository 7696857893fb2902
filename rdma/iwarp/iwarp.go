// Package iwarp is RDMA over TCP in Go: MPA (RFC 5044, RFC 6581), DDP (RFC 5041)
// and RDMAP (RFC 5040), on the standard wire format, so that hardware adapters,
// the kernel's siw and Wireshark understand it.
//
// It exists so that the device works where there is no RDMA adapter: no kernel
// module, no root. It places and answers with the CPU, on the goroutine in
// Conn.Wait, and its figures are those of a software transport. It owns the
// connections, their sockets and the protection domains. It imports rdma and
// sockio.
//
// Not spoken: markers (a peer that asks for them is refused), atomics and immediate
// data (RFC 7306).
//
// # The way of a request
//
//	Post ─► send queue ─► build: FPDUs, CRC ─► sockio.Queue ─► one writev ─► peer
//	             ▲                    ▲                 │ socket full
//	        writer goroutine ─────────┴─────────────────┘
//	                                  │
//	peer ─► one read ─► receive: check, place, match ─► Read Responses
//	                         └─► completions ─► Poll
//
// Locks, outermost first: Conn.waiting (in Wait), Conn.mu (everything sent),
// Domain.mu (keys; read-held while memory is placed or read for a peer), Conn.qmu
// (receives and completions).
package iwarp

import (
	"context"
	"net/netip"
	"time"

	"pmnbd/rdma"
)

// Defaults and limits of a connection.
const (
	// maxReads bounds ORD and IRD; the wire would carry 14 bits.
	maxReads = 1 << 10
	// maxInline is Caps.MaxInline: every control message but a barrier's fits.
	maxInline = 256

	// receiveBuffer is what one read takes, in bytes: 60 Writes of 4 KiB, yet it
	// stays in a core's second-level cache while it is checked and placed.
	receiveBuffer = 256 << 10
	// maxBuilt bounds the FPDUs that are built at a time, in bytes, for the same
	// reason, and it bounds what a peer that does not read makes us hold.
	maxBuilt = 256 << 10

	// defaultHandshake bounds how long a peer may take over its MPA request.
	defaultHandshake = 5 * time.Second
	// lingerTime bounds how long a connection that sent a Terminate waits for
	// the peer to close, so that a reset does not overtake the Terminate.
	lingerTime = time.Second
)

// A Config configures the provider. Its zero value works.
type Config struct {
	// Revision is the MPA revision of outgoing requests: 1 (RFC 5044), or 2
	// (RFC 6581, negotiates the number of Reads), which 0 means too. Incoming
	// requests are answered in their own.
	Revision uint8
	// NoCRC does not ask for CRCs, which are used all the same if the peer does. TCP's
	// checksum alone finds less: it is for peers that cannot do better.
	NoCRC bool
	// HandshakeTimeout bounds how long a listener waits for a request frame; 0
	// means 5 s.
	HandshakeTimeout time.Duration
	// Admit, unless nil, decides about each connection of a listener by its addresses,
	// before its request is answered. An error refuses it: Refused hears of that, and
	// the peer is told Unadmitted, at most rdma.MaxPrivateData bytes.
	Admit      func(local, remote netip.AddrPort) error
	Unadmitted string
	// Refused is told of connections that a listener dropped before they became
	// requests, and why; nil if nobody wants to know. It must not wait.
	Refused func(addr string, err error)
}

// New returns the provider.
func New(cfg Config) rdma.Provider {
	if cfg.Revision == 0 {
		cfg.Revision = 2
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = defaultHandshake
	}
	return &provider{cfg}
}

type provider struct{ cfg Config }

// OpenDomain makes a protection domain. There is no device to choose: addr does
// not matter.
func (p *provider) OpenDomain(context.Context, string) (rdma.Domain, error) {
	return newDomain(p.cfg), nil
}
