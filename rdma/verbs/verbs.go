// Package verbs is RDMA by libibverbs and librdmacm, for InfiniBand, RoCE and iWARP
// adapters and for the kernel's software devices rdma_rxe and siw.
//
// An adapter works by itself: it places, answers Reads and completes requests without a
// CPU of the peer.
//
// The provider exists only in builds with the tag verbs, which need the two libraries; in
// other builds [New] returns an error that says so. rdma.OpFlush needs the tag verbs_flush as
// well, rdma-core 45 or newer, and a device that has it.
//
// This package is stable: later releases keep what a program can use of it.
//
// # What devices lack
//
// The error of an iWARP device is always rdma.ErrLost when the peer refuses a request:
// its error completions leave out the reason in the Terminate.
//
// siw (Linux 6.12) answers Reads of anything registered in the domain, even without the
// right to be read. As a responder it may, rarely, overlook an initiator's first message
// that comes while it is still accepting, until more arrives; then only the initiator's
// time limit helps.
//
// iWARP adapters do not promise Caps.OrderedPlacement; siw does. A pmnbd session needs it
// at both ends, so it does not run on iWARP adapters.
//
// A device cannot pin a file with DAX. A device with on-demand paging may use such a file
// without pinning it, after a trial has shown that it places each byte where it should.
// rxe does not (Linux 7.3). No adapter has been tried yet.
package verbs

import "time"

// A Config configures the provider. The zero Config works.
type Config struct {
	// Spin is how long Wait polls before it sleeps. The default 0 means not at all: a
	// wake-up costs less than a core that every connection keeps busy. Polling pays
	// where cores are idle and a round trip takes less than a wake-up, a few
	// microseconds.
	Spin time.Duration
	// Refused, if not nil, is called for each request that a listener drops, with the
	// peer's address, if it is known, and the reason. It must not block.
	Refused func(addr string, err error)
}

// What a request meets:
//
//	Post ─► descriptors in C memory ─► one call for 64 ─► ibv_post_send
//	Poll ◄─ ring of completions ◄─ one call for 64 ◄─ ibv_poll_cq
//	Wait: poll ─► (spin) ─► arm ─► poll ─► sleep in Go's poller until the
//	      completion channel has an event
//
// A connection has one goroutine, which waits for the connection manager to report its
// end. A device has two: one waits for asynchronous events, one for its removal.
//
// Locks, outermost first: paging.mu (for the length of a trial), conn.waiting (in Wait),
// conn.mu (posting), domain.mu (regions), devices.mu (references), device.mu (its
// connections), conn.qmu (accounts and completions). Two waits belong to that order:
//
//   - release of a device's last reference waits for the device's goroutines, with
//     domain.mu and devices.mu held. So those goroutines take only device.mu and conn.qmu.
//   - Destroying a queue pair waits, with conn.qmu held, until its events are
//     acknowledged. The connection is no longer in the device's list then. So a goroutine
//     takes only device.mu before it acknowledges an event.
