// Package verbs is RDMA by libibverbs and librdmacm: InfiniBand, RoCE and iWARP
// adapters, and the kernel's software devices rdma_rxe and siw.
//
// It exists because an adapter works by itself: it places, answers Reads and
// completes without a CPU of the peer. It owns devices, protection domains,
// connections and their event channels; cgo and unsafe code live here alone. It
// imports rdma. Only builds with the tag verbs have it (and need the two
// libraries); in others New says so. With the tag verbs_flush too, and rdma-core
// 45 or newer, OpFlush can be posted where the device has it.
//
// # What a request meets
//
//	Post ─► descriptors in C memory ─► one call for 64 ─► ibv_post_send
//	Poll ◄─ ring of completions ◄─ one call for 64 ◄─ ibv_poll_cq
//	Wait: poll ─► (spin) ─► arm ─► poll ─► sleep in Go's poller until the
//	      completion channel says something
//
// A connection has one goroutine, which waits for what its connection manager
// says (gone, device removed), and each device has two, for its asynchronous
// events and its removal.
//
// Locks, outermost first: paging.mu (across all of a try), Conn.waiting (in Wait),
// Conn.mu (posting), domain.mu (regions), devices.mu (references), device.mu (its
// connections), Conn.qmu (rings and completions). Two waits go with them: who gives a
// device's last reference back joins its goroutines under domain.mu and devices.mu, so
// these take device.mu and Conn.qmu alone; and who destroys a queue pair waits, under
// Conn.qmu and no longer in the device's list, for its events to be acknowledged, so
// device.mu alone is taken before an acknowledgement.
//
// # What devices do not have
//
// SendInvalidate is refused: an adapter invalidates memory windows and fast
// registrations only, and user space has no fast registrations. iWARP devices
// report what the peer refused as ErrLost: their error completions do not carry
// the Terminate's reason. siw (Linux 6.12) answers Reads of whatever is registered
// in the domain, with the right to be read or without; and as a responder it may
// not notice an initiator's first message until more arrives, if that comes while
// it is still accepting (rarely: the initiator's time limit must end it).
//
// iWARP adapters do not promise OrderedPlacement, and sessions want it, so neither end
// takes one; siw places in order.
//
// Files with DAX cannot be pinned. A device with on-demand paging takes them once a
// try has shown that it places in such memory where it was told: rxe does not (Linux
// 7.3). Adapters have not been seen to.
package verbs

import "time"

// A Config configures the provider. Its zero value works.
type Config struct {
	// Spin is how long Wait polls before it sleeps. 0, the default, never does: a
	// wake-up costs less than a core that every lane burns, unless cores are idle
	// and the round trip is shorter than a wake-up (some microseconds).
	Spin time.Duration
	// Refused is told of requests that a listener dropped, and why; nil if nobody
	// wants to know. It must not wait.
	Refused func(addr string, err error)
}
