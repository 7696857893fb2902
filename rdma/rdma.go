// Package rdma defines what an RDMA transport offers: queue pairs, registered memory
// with keys, and requests that are posted and polled in batches.
//
// Its words are those of verbs (IBTA specification volume 1, chapters 9 to 11; RFC 5040
// for iWARP). A program chooses a transport once, as a [Provider], and after that asks
// only what a connection can do ([Caps]). The providers are rdma/iwarp, which is RDMA
// over TCP in Go, and rdma/verbs, for adapters; rdma/rdmatest is the test suite that
// both pass.
//
// Lengths and offsets are in bytes. Addresses are strings, HOST:PORT.
//
// This package is stable: later releases keep what a program can use of it.
//
// # Progress
//
// A provider in software has no adapter that works by itself. It places the peer's
// data, answers the peer's Reads and completes requests on the goroutine that is in
// [Conn.Wait]. Every Conn, at both ends, therefore needs one goroutine that loops over
// Wait and Poll from connection to Close, even if it expects no completion.
//
// # Failure
//
// A connection fails as a whole, as a queue pair does. It keeps the first error, every
// later call returns that error, and no outstanding request completes any more. The
// memory of outstanding requests is free only when Close has returned.
package rdma

import "context"

// An Opcode is what a work request asks for, or what a completion completes.
type Opcode uint8

const (
	// OpWrite is an RDMA Write, from Local to Remote. Its completion means that Local
	// may be reused. It does not mean that the data was placed (RFC 5040 §5.5), let
	// alone that the data is durable.
	OpWrite Opcode = iota + 1
	// OpRead is an RDMA Read, from Remote to Local. It sees the Writes that were posted
	// before it on the same queue pair.
	OpRead
	// OpSend is a message. It consumes a receive that the peer posted.
	OpSend
	// OpFlush is the native RDMA FLUSH (IBTA A19). It needs Caps.PersistentFlush.
	OpFlush
	// OpRecv is in completions only: a Send of the peer arrived.
	OpRecv
)

// Access is what a memory region permits beyond being read locally. There is no way to
// ask for relaxed ordering (design §3.9).
type Access uint8

const (
	// LocalWrite lets the adapter write on behalf of this end, as Read sinks and
	// receives need.
	LocalWrite Access = 1 << iota
	// RemoteRead lets the peer Read.
	RemoteRead
	// RemoteWrite lets the peer Write. It implies LocalWrite.
	RemoteWrite
	// RemoteFlush lets the peer make the region durable with OpFlush.
	RemoteFlush
	// PageCache is not a right. It says that the memory is a file's page cache. The
	// kernel does not see that such memory is dirty, and loses the data, unless it is
	// stored through the mapping. Providers that place in any other way refuse it
	// (design §7).
	PageCache
)

// A MemoryRegion is registered memory. It belongs to a Domain.
type MemoryRegion struct {
	// Mem is the memory. It is mapped memory, never Go heap.
	Mem []byte
	// Key is the rkey or STag by which the peer names the region. A provider avoids
	// reusing keys for as long as it can.
	Key uint32
	// Base is the remote address (tagged offset) of Mem[0].
	Base uint64
	// Access is what was granted.
	Access Access
}

// An SGE is a run of Len bytes at offset Off of a memory region.
type SGE struct {
	Region *MemoryRegion
	Off    uint64
	Len    uint32
}

// A Remote names memory of the peer by a key that the peer handed out and an address
// (tagged offset).
type Remote struct {
	Key  uint32
	Addr uint64
}

// A WorkRequest is one entry of a send or receive queue. It has one local run of
// bytes: a payload in two places takes two Writes.
type WorkRequest struct {
	// ID comes back in the completion. The provider does not look at it.
	ID uint64
	// Op is ignored in a receive.
	Op Opcode
	// Signaled asks for a completion. Reads and receives always complete.
	Signaled bool
	// Local is the source of a Write or Send, or the sink of a Read or receive. Of a
	// Flush only Len counts.
	Local SGE
	// Inline, if not nil, is the payload of a Send instead of Local. It has at most
	// Caps.MaxInline bytes, needs no registration, and is free again when Post returns.
	Inline []byte
	// Remote is what a Write, Read or Flush names. Its length is Local.Len.
	Remote Remote
}

// A Completion reports that a work request ended well. A request that ends badly fails
// its connection instead.
type Completion struct {
	ID  uint64
	Op  Opcode
	Len uint32 // the length of the message, for OpRecv
}

// Caps is what a connection can do.
type Caps struct {
	// OrderedPlacement means that this end places overlapping Writes of the peer in the
	// order in which they were posted (design §4.5). It says nothing of the other end.
	OrderedPlacement bool
	// PlacesByDMA is false where the provider places with CPU stores.
	PlacesByDMA bool
	// PersistentFlush means that OpFlush exists and makes data persistent.
	PersistentFlush bool
	// MaxSendWR and MaxRecvWR bound the requests that are posted and not yet retired.
	// Polling the completion of a signalled request retires it and every request
	// before it.
	MaxSendWR, MaxRecvWR int
	// MaxReads is the number of Reads outstanding that both ends agreed on (ORD). The
	// provider holds back further Reads and everything behind them.
	MaxReads int
	// MaxInline bounds WorkRequest.Inline, in bytes.
	MaxInline int
	// Channel tells of the encryption of the connection; nil: everything is clear on the wire.
	Channel *Channel
}

// A Channel is what encrypts a connection. It says nothing about who is at the other end: that takes
// a proof that covers Binding, which both ends compare.
type Channel struct {
	// Cipher names the protocol, the cipher and the key exchange, for people.
	Cipher string
	// Binding is the same at both ends, and no two channels have the same one. Whoever decrypts and
	// encrypts between two ends has one channel with each, and cannot make their bindings equal. It is
	// the tls-exporter of RFC 9266.
	Binding [32]byte
}

// Bound returns Binding, or nothing for a connection that is not encrypted.
func (c *Channel) Bound() []byte {
	if c == nil {
		return nil
	}
	return c.Binding[:]
}

// MaxPrivateData bounds ConnConfig.PrivateData and Request.Reject, in bytes. It is what
// the RDMA CM carries in a request on InfiniBand; MPA would carry 512.
const MaxPrivateData = 56

// A ConnConfig is what one end offers for a connection. Zero values take the
// provider's defaults.
type ConnConfig struct {
	// PrivateData travels with a Dial. Accept ignores it.
	PrivateData []byte
	// Private, if not nil, returns what travels in place of PrivateData where the connection is
	// encrypted, by a channel that exists by then.
	Private func(channel *Channel) []byte
	// MaxSendWR and MaxRecvWR are the depths of the queues, in requests.
	MaxSendWR, MaxRecvWR int
	// MaxReads is how many Reads this end wants outstanding (ORD).
	MaxReads int
	// MaxReadsIn is how many Reads of the peer this end answers at a time (IRD).
	MaxReadsIn int
}

// A Provider is a transport.
type Provider interface {
	// Listen takes connections at addr. Port 0 chooses a free port.
	Listen(ctx context.Context, addr string) (Listener, error)
	// OpenDomain makes a protection domain on the device that reaches addr, a peer.
	OpenDomain(ctx context.Context, addr string) (Domain, error)
}

// A Listener takes connection requests.
type Listener interface {
	// Accept waits for a request. It never returns one of a peer that does not speak
	// the protocol. After Close it returns ErrClosed.
	Accept() (Request, error)
	// Addr is the address that the listener is bound to.
	Addr() string
	// Close stops listening and returns when no goroutine of the listener is left.
	// Accepted connections live on. It is idempotent.
	Close() error
}

// A Request is a peer that wants to connect. Answer it once, by Accept or Reject.
type Request interface {
	// PrivateData is what the peer sent. Only the first MaxPrivateData bytes can mean
	// something, and the peer may be hostile.
	PrivateData() []byte
	// RemoteAddr is the peer's address, for people.
	RemoteAddr() string
	// Channel tells of the encryption of the connection; nil: there is none.
	Channel() *Channel
	// OpenDomain makes a fresh protection domain on the device that the request
	// arrived on.
	OpenDomain() (Domain, error)
	// Accept connects in domain d. It posts recvs before the peer can send.
	Accept(d Domain, cfg ConnConfig, recvs []WorkRequest) (Conn, error)
	// Abandon makes an Accept that waits for the peer fail. If Accept succeeds all the
	// same, the connection is of no use. Abandon may be called at any time.
	Abandon()
	// Reject refuses the request. The peer's Dial returns a *RejectError with
	// privateData, of which at most MaxPrivateData bytes are sent.
	Reject(privateData []byte) error
}

// A Domain is a protection domain. Its connections reach its registrations and no
// others.
type Domain interface {
	// Register registers mem, which must stay mapped until Deregister returns. Each
	// call draws a fresh key.
	Register(mem []byte, a Access) (*MemoryRegion, error)
	// Deregister ends r's key. Once it has returned, no operation of a peer touches
	// the memory by that key.
	Deregister(r *MemoryRegion) error
	// Dial connects to addr. It posts recvs before the peer can send. It fails with
	// ErrTimeout when ctx's deadline passes, with a *RejectError when the peer refuses,
	// and with ErrLost when the peer cannot be reached.
	Dial(ctx context.Context, addr string, cfg ConnConfig, recvs []WorkRequest) (Conn, error)
	// Close deregisters what is left. Close the domain's connections first.
	Close() error
}

// A Conn is a connected queue pair with its completion queue. Several goroutines may
// call its methods; the requests of one Post stay together.
type Conn interface {
	Caps() Caps
	// RemoteAddr is the peer's address, for people.
	RemoteAddr() string
	// PostRecv adds receives: all of wrs, or none and an error. A message that is longer
	// than the receive that it meets fails the connection.
	PostRecv(wrs []WorkRequest) error
	// Post hands over wrs in order and returns how many it took. When the send queue is
	// full that is fewer than all, and err is nil. It never waits for the peer. It
	// copies wrs but not the memory that they name.
	Post(wrs []WorkRequest) (posted int, err error)
	// Poll moves completions into cs and returns how many. Requests complete in the
	// order of their queue. After a failure Poll returns what had completed before it
	// returns the error.
	Poll(cs []Completion) (int, error)
	// Wait blocks until Poll has something to return. A completion that was there when
	// a Post returned need not wake it, so a caller that fills the send queue polls
	// after Post. Only one goroutine at a time may Wait.
	Wait() error
	// Arrived is how many bytes of the peer's Writes, and of its answers to Reads, have
	// come so far. It grows before the message that they belong to is complete, so it
	// tells a slow peer from a dead one. It takes no lock. It stays 0 with a provider
	// whose adapter places by itself.
	Arrived() uint64
	// Close destroys the queue pair and wakes Wait. When it returns, no memory of any
	// request is touched any more and no goroutine is left. Later calls return ErrClosed,
	// or the failure if there was one. It is idempotent. Close waits for the goroutine
	// in Wait, so that goroutine must not call it.
	Close() error
}
