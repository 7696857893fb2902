// Package rdma is the provider-neutral contract of the transports: queue pairs,
// memory regions and their keys, batched posting and polling.
//
// It exists so that sessions, barriers and the device never ask which transport
// they run on, only what it can do (Caps). It owns the words of verbs (IBTA
// specification volume 1, chapters 9 to 11; RFC 5040 for iWARP) as Go types and
// the errors that callers decide by; providers are its children
// (rdma/iwarp, rdma/verbs), and rdma/rdmatest is the suite that each of them
// passes. It imports nothing of ours and knows nothing of persistence.
//
// # Progress
//
// A software provider has no adapter that works by itself: it places, answers
// Reads and completes requests on the goroutine that is in Conn.Wait. So every
// Conn has one goroutine that loops over Wait and Poll from connection to Close,
// on both ends, also where no completion is expected.
//
// # Failure
//
// A connection fails as a whole, as a queue pair does: the first error is kept,
// every later call returns it, and nothing that was outstanding completes any
// more. Memory named by outstanding requests is free only after Close returned.
package rdma

import "context"

// An Opcode says what a work request asks for, or what a completion completes.
type Opcode uint8

const (
	// OpWrite is an RDMA Write: Local to Remote. Its completion means that Local
	// may be reused, not that the data was placed (RFC 5040 §5.5), let alone that
	// it is durable.
	OpWrite Opcode = iota + 1
	// OpRead is an RDMA Read: Remote to Local. It is placed behind the Writes
	// posted before it on the same queue pair.
	OpRead
	// OpSend consumes a receive that the peer posted.
	OpSend
	// OpFlush is the native RDMA FLUSH (IBTA A19), where Caps.PersistentFlush.
	OpFlush
	// OpRecv stands in completions only: a Send of the peer arrived.
	OpRecv
)

// Access is what a memory region permits, beyond being read locally. Relaxed
// ordering cannot be asked for (design §3.9).
type Access uint8

const (
	// LocalWrite lets the adapter write on behalf of this end: Read sinks, receives.
	LocalWrite Access = 1 << iota
	// RemoteRead lets the peer Read.
	RemoteRead
	// RemoteWrite lets the peer Write. It implies LocalWrite.
	RemoteWrite
	// RemoteFlush lets the peer make the region durable with OpFlush.
	RemoteFlush
	// PageCache is no right: it says that the memory is a file's page cache. What is
	// placed there other than by stores through the mapping is not seen to be dirty,
	// and lost: providers that place so refuse it (design §7).
	PageCache
)

// A MemoryRegion is registered memory. It belongs to a Domain.
type MemoryRegion struct {
	// Mem is the memory. It is mapped, never Go heap.
	Mem []byte
	// Key is the rkey or STag that the peer names. Keys are never reused for as
	// long as the process can help it.
	Key uint32
	// Base is the remote address (tagged offset) of Mem[0], in bytes.
	Base uint64
	// Access is what was granted.
	Access Access
}

// An SGE is a run of bytes in a memory region. Len is in bytes.
type SGE struct {
	Region *MemoryRegion
	Off    uint64
	Len    uint32
}

// Remote names memory of the peer: a key that it handed out, and an address
// (tagged offset) in bytes.
type Remote struct {
	Key  uint32
	Addr uint64
}

// A WorkRequest is one entry of a send or receive queue, passed by value in
// batches. It has one local run: a payload that lies in two places is two Writes.
type WorkRequest struct {
	// ID comes back in the completion. The provider does not look at it.
	ID uint64
	Op Opcode
	// Signaled asks for a completion. Reads and receives always complete.
	Signaled bool
	// Local is the source of a Write or Send, the sink of a Read or receive.
	Local SGE
	// Inline, if not nil, is the payload of a Send instead of Local: at most
	// Caps.MaxInline bytes, not registered, and free again when Post returns.
	Inline []byte
	// Remote is what a Write, Read or Flush names. Its length is Local.Len.
	Remote Remote
}

// A Completion tells that a work request ended well. One that ends badly fails
// its connection.
type Completion struct {
	ID  uint64
	Op  Opcode
	Len uint32 // OpRecv: bytes received
}

// Caps is what a connection can do.
type Caps struct {
	// OrderedPlacement: this end places overlapping Writes of the peer in the order in
	// which they were posted (design §4.5). It says nothing about the other end.
	OrderedPlacement bool
	// PlacesByDMA is false where the provider places with CPU stores.
	PlacesByDMA bool
	// PersistentFlush: OpFlush exists and makes data persistent.
	PersistentFlush bool
	// MaxSendWR and MaxRecvWR bound the requests posted and not yet retired. A
	// send slot is retired by polling the completion of a signalled request at
	// or behind it.
	MaxSendWR, MaxRecvWR int
	// MaxReads is the negotiated ORD: the provider holds further Reads, and what
	// is behind them, back.
	MaxReads int
	// MaxInline bounds WorkRequest.Inline, in bytes.
	MaxInline int
}

// Limits that every provider keeps.
const (
	// MaxPrivateData bounds ConnConfig.PrivateData, in bytes. The RDMA CM carries
	// 56 for a request on InfiniBand; MPA would carry 512.
	MaxPrivateData = 56
)

// ConnConfig says what a connection shall offer. Zero values take the provider's
// defaults.
type ConnConfig struct {
	// PrivateData travels with the connection request or its answer.
	PrivateData []byte
	// MaxSendWR and MaxRecvWR size the queues.
	MaxSendWR, MaxRecvWR int
	// MaxReads is how many Reads this end wants outstanding (ORD).
	MaxReads int
	// MaxReadsIn is how many Reads of the peer this end answers at a time (IRD).
	MaxReadsIn int
}

// A Provider is a transport.
type Provider interface {
	// Listen takes connections at addr, HOST:PORT; port 0 chooses one.
	Listen(ctx context.Context, addr string) (Listener, error)
	// OpenDomain makes a protection domain on the device by which addr, HOST:PORT
	// of a peer, is reached.
	OpenDomain(ctx context.Context, addr string) (Domain, error)
}

// A Listener takes connection requests.
type Listener interface {
	// Accept waits for a request. It returns ErrClosed after Close. A peer that
	// does not speak the protocol never gets this far.
	Accept() (Request, error)
	// Addr is HOST:PORT as bound.
	Addr() string
	// Close stops listening and returns when no goroutine of the listener is
	// left. Connections that were accepted live on. It is idempotent.
	Close() error
}

// A Request is a peer that wants to connect. It is answered once.
type Request interface {
	// PrivateData is what the peer sent, at most MaxPrivateData bytes of it
	// meaningful; it is hostile.
	PrivateData() []byte
	// RemoteAddr is the peer's HOST:PORT, for people.
	RemoteAddr() string
	// OpenDomain makes a fresh protection domain on the device that the request
	// arrived on.
	OpenDomain() (Domain, error)
	// Accept connects in domain d, with recvs posted before the peer can send.
	Accept(d Domain, cfg ConnConfig, recvs []WorkRequest) (Conn, error)
	// Abandon ends an Accept that waits for the peer: it then fails, and a connection
	// that it makes all the same is of no use. It may be called at any time.
	Abandon()
	// Reject refuses; the peer's Dial returns a *RejectError with privateData.
	Reject(privateData []byte) error
}

// A Domain is a protection domain: its connections reach its registrations and
// no others.
type Domain interface {
	// Register registers mem, which is mapped memory and stays so until Deregister.
	// Each call draws a fresh key.
	Register(mem []byte, a Access) (*MemoryRegion, error)
	// Deregister ends r's key. When it returns no operation of a peer touches the
	// memory any more, and none ever will by that key.
	Deregister(r *MemoryRegion) error
	// Dial connects to addr, HOST:PORT, with recvs posted before the peer can send.
	// It fails with ErrTimeout when ctx's deadline passes, *RejectError when the
	// peer refuses, ErrLost when it cannot be reached.
	Dial(ctx context.Context, addr string, cfg ConnConfig, recvs []WorkRequest) (Conn, error)
	// Close deregisters what is left. Its connections must be closed before.
	Close() error
}

// A Conn is a connected queue pair with its completion queue. Its methods may be
// called from several goroutines; the requests of one Post stay together.
type Conn interface {
	Caps() Caps
	// RemoteAddr is the peer's HOST:PORT, for people.
	RemoteAddr() string
	// PostRecv adds receives. A message longer than the receive that it meets
	// fails the connection.
	PostRecv(wrs []WorkRequest) error
	// Post hands over wrs in order and says how many it took: fewer than all,
	// with a nil error, when the send queue is full. It never blocks on the
	// peer. It copies wrs, not the memory that they name.
	Post(wrs []WorkRequest) (posted int, err error)
	// Poll moves completions that are there into cs. Requests complete in the
	// order of their queue. After a failure it first returns what had completed,
	// then the error.
	Poll(cs []Completion) (int, error)
	// Wait blocks until Poll has something to say. A completion that was there
	// when a Post returned need not wake it: who fills the send queue polls.
	// One goroutine at a time may Wait.
	Wait() error
	// Arrived counts the bytes of the peer's Writes, and of its answers to Reads, that came
	// so far: before what they belong to is complete, so that something slow can be told
	// from something dead. It takes no lock. A provider whose adapter places by itself sees
	// none of them, and returns 0.
	Arrived() uint64
	// Close destroys the queue pair: it wakes Wait, and when it returns no memory
	// named by a request is touched any more and no goroutine is left. Calls then
	// return ErrClosed, or the earlier error. It is idempotent. It must not be
	// called by the goroutine that is in Wait, for want of which it waits.
	Close() error
}
