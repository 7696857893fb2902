// Package iwarp is RDMA over TCP, written in Go: MPA (RFC 5044, RFC 6581), DDP (RFC
// 5041) and RDMAP (RFC 5040) on the standard wire format. Adapters, the kernel's siw and
// Wireshark understand it.
//
// It needs no RDMA adapter, no kernel module and no root, and has the speed of a
// software transport: it places and answers with the CPU, on the goroutine in Conn.Wait.
// It can catch a fault on the memory that it places in, and reports it as an
// rdma.FaultError.
//
// It does not speak markers (it refuses a peer that asks for them), atomics or immediate
// data (RFC 7306).
//
// This package is stable: later releases keep what a program can use of it.
package iwarp

import (
	"context"
	"net/netip"
	"time"

	"pmnbd/internal/sockio"
	"pmnbd/rdma"
)

// The way of a request:
//
//	Post ─► send queue ─► build: FPDUs, CRC ─► sockio.Queue ─► one sendmsg ─► peer
//	             ▲                    ▲                 │ socket full
//	        writer goroutine ─────────┴─────────────────┘
//	                                  │
//	peer ─► one read ─► receive: check, place, match ─► Read Responses
//	                         └─► completions ─► Poll
//
// Locks, outermost first: conn.waiting (in Wait), conn.mu (the sender), domain.mu (keys;
// held for reading while memory is placed in, or read for a peer), conn.qmu (receives and
// completions).

// Limits of a connection.
const (
	// maxReads bounds ORD and IRD. The wire would carry 14 bits.
	maxReads = 1 << 10
	// maxInline is Caps.MaxInline, in bytes. Every control message fits but a barrier's.
	maxInline = 256

	// receiveBuffer is what one read takes at most, in bytes. It holds 60 Writes of
	// 4 KiB, and stays in a core's second-level cache until it is checked and placed.
	receiveBuffer = 256 << 10
	// maxBuilt bounds the FPDUs that are built at a time, in bytes, for the same
	// reason. It also bounds the memory that a peer takes up by not reading.
	maxBuilt = 256 << 10

	// defaultHandshake is how long a peer may take to send its MPA request.
	defaultHandshake = 5 * time.Second
	// lingerTime is how long a connection that sent a Terminate waits for the peer to
	// close, so that no reset overtakes the Terminate.
	lingerTime = time.Second
)

// A Config configures the provider. Its zero value works.
type Config struct {
	// Revision is the MPA revision of outgoing requests: 1 (RFC 5044), or 2 (RFC 6581),
	// which negotiates the number of Reads and is the default. A listener answers each
	// request in the request's revision.
	Revision uint8
	// NoCRC makes this end not ask for CRCs. If the peer asks, both use them all the
	// same. It is for peers that cannot do better: TCP's checksum finds less.
	NoCRC bool
	// Encrypt has TLS 1.3 beneath MPA on every connection, with keys that no later theft can tell.
	// A peer that does not speak it gets no connection. Nobody's certificate is checked: without
	// a proof that covers rdma.Channel.Binding, somebody in between can decrypt everything.
	// Implies NoCRC, because TLS finds every change. A connection is lost once its keys have encrypted
	// 256 GiB in a direction.
	Encrypt bool
	// HandshakeTimeout is how long a listener waits for a peer's request frame, and for the
	// handshake of TLS before it. 0 means 5 s.
	HandshakeTimeout time.Duration
	// Allow, if not nil, judges each connection of a listener by its addresses before
	// the request is answered. If it returns an error, the listener refuses the
	// connection, passes the error to Refused, and sends Denied to the peer as the
	// reason, at most rdma.MaxPrivateData bytes of it.
	Allow  func(local, remote netip.AddrPort) error
	Denied string
	// Refused, if not nil, is called for each connection that a listener drops before it
	// becomes a request, with the peer's address and the reason. It must not block.
	Refused func(addr string, err error)

	keyBytes uint64 // how many bytes the keys of a connection may encrypt each way; sockio.KeyBytes, less in tests
}

// New returns a provider configured by cfg.
func New(cfg Config) rdma.Provider {
	if cfg.Revision == 0 {
		cfg.Revision = 2
	}
	cfg.NoCRC = cfg.NoCRC || cfg.Encrypt
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = defaultHandshake
	}
	if cfg.keyBytes == 0 {
		cfg.keyBytes = sockio.KeyBytes
	}
	return &provider{cfg}
}

type provider struct{ cfg Config }

// OpenDomain implements rdma.Provider. It ignores the address: there is no device to
// choose.
func (p *provider) OpenDomain(context.Context, string) (rdma.Domain, error) {
	return newDomain(p.cfg), nil
}
