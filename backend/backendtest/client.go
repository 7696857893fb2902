// Package backendtest tests implementations of backend.Device.
//
// Run is the conformance suite. A Client drives a device in tests, here and in other
// packages. This package is only for tests of this module and promises nothing.
package backendtest

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
)

// patience bounds every wait. It is far longer than any wait in a test that passes.
const patience = 30 * time.Second

// A Request is an Op and its result.
type Request struct {
	backend.Op
	// Got is the data of a READ. It is valid after Wait.
	Got []byte

	client    *Client
	room      *backend.Admission
	completed int // guarded by client.mu
}

// A Client makes ops for a device and is their Sink. Any number of goroutines may use it.
type Client struct {
	t   testing.TB
	dev backend.Device

	mu   sync.Mutex
	cond sync.Cond
	reqs []*Request // by Tag
	open int        // submitted and not completed
	gone bool
	late bool // patience is over
}

var _ backend.Sink = (*Client)(nil)

// NewClient makes a client of dev.
func NewClient(t testing.TB, dev backend.Device) *Client {
	c := &Client{t: t, dev: dev}
	c.cond.L = &c.mu
	return c
}

// Write makes a WRITE of data. If lead is not 0, that many bytes of it lie at the end of
// a chunk and the others begin in the next. A server receives such payloads.
func (c *Client) Write(off uint64, data []byte, lead int) *Request {
	r := c.request(backend.Write, off, uint64(len(data)))
	r.Data = c.spans(func(dst []*backend.Chunk, n int, stop <-chan struct{}) ([]*backend.Chunk, error) {
		return r.room.Reserve(nil, dst, n, stop)
	}, len(data), lead)
	for _, s := range r.Data {
		data = data[copy(s.Bytes(), data):]
	}
	c.admit(r)
	return r
}

// Zero makes a WRITE_ZEROES.
func (c *Client) Zero(off, length uint64) *Request {
	r := c.request(backend.WriteZeroes, off, length)
	c.admit(r)
	return r
}

// Read makes a READ; lead is as in Write.
func (c *Client) Read(off uint64, n, lead int) *Request {
	r := c.request(backend.Read, off, uint64(n))
	r.Data = c.spans(c.dev.Arenas().Read.Get, n, lead)
	return r
}

// Flush makes a FLUSH.
func (c *Client) Flush() *Request { return c.request(backend.Flush, 0, 0) }

func (c *Client) request(cmd backend.Command, off, length uint64) *Request {
	r := &Request{client: c, room: backend.NewAdmission(c.dev.Arenas())}
	r.Cmd, r.Off, r.Len, r.Sink = cmd, off, length, c
	c.mu.Lock()
	r.Tag = uint32(len(c.reqs))
	c.reqs = append(c.reqs, r)
	c.mu.Unlock()
	return r
}

// admit takes the room that r needs, or fails the test if that takes too long.
func (c *Client) admit(r *Request) {
	c.t.Helper()
	stop := make(chan struct{})
	timer := time.AfterFunc(patience, func() { close(stop) })
	defer timer.Stop()
	require.NoError(c.t, r.room.Admit(&r.Op, stop), "%v of %d bytes at %d", r.Cmd, r.Len, r.Off)
}

// spans gets chunks for n bytes and returns the spans of those bytes.
func (c *Client) spans(get func([]*backend.Chunk, int, <-chan struct{}) ([]*backend.Chunk, error), n, lead int) []backend.Span {
	c.t.Helper()
	lead = min(lead, n)
	chunks := (n - lead + backend.ChunkSize - 1) / backend.ChunkSize
	if lead > 0 {
		chunks++
	}
	stop := make(chan struct{})
	timer := time.AfterFunc(patience, func() { close(stop) })
	defer timer.Stop()
	got, err := get(nil, chunks, stop)
	require.NoError(c.t, err, "%d chunks", chunks)
	var spans []backend.Span
	for _, ch := range got {
		s := backend.Span{Chunk: ch, Len: uint32(min(n, backend.ChunkSize))}
		if lead > 0 {
			s.Off, s.Len = uint32(backend.ChunkSize-lead), uint32(lead)
			lead = 0
		}
		n -= int(s.Len)
		spans = append(spans, s)
	}
	return spans
}

// Completed reports whether the device has given r back.
func (r *Request) Completed() bool {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	return r.completed > 0
}

// Unpin drops the pins of r. Submit calls it. A test that gives r to the device in
// another way calls it, too.
func (r *Request) Unpin() { r.room.Unpin() }

// Submit hands reqs to the device in one batch as a server does: it calls Submit, Kick
// and Post. It does not wait.
func (c *Client) Submit(reqs ...*Request) {
	ops := make([]*backend.Op, len(reqs))
	for i, r := range reqs {
		ops[i] = &r.Op
	}
	c.mu.Lock()
	c.open += len(reqs)
	c.mu.Unlock()
	c.dev.Submit(ops)
	for _, r := range reqs {
		r.Unpin()
	}
	c.Kick()
	c.dev.Post()
}

// Wait waits until reqs are completed, and returns the first error among them. Without
// arguments it waits for everything that was submitted, and returns nil.
func (c *Client) Wait(reqs ...*Request) error {
	c.t.Helper()
	timer := time.AfterFunc(patience, func() {
		c.mu.Lock()
		c.late = true
		c.cond.Broadcast()
		c.mu.Unlock()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range reqs {
		for r.completed == 0 && !c.late {
			c.cond.Wait()
		}
		require.NotZero(c.t, r.completed, "%v at %d was not completed", r.Cmd, r.Off)
	}
	for len(reqs) == 0 && c.open > 0 && !c.late {
		c.cond.Wait()
	}
	require.False(c.t, c.late, "%d requests were not completed", c.open)
	for _, r := range reqs {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// Do is Submit and Wait.
func (c *Client) Do(reqs ...*Request) error {
	c.t.Helper()
	c.Submit(reqs...)
	return c.Wait(reqs...)
}

// Complete implements backend.Sink. It keeps the data of a READ and releases the spans.
func (c *Client) Complete(op *backend.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.reqs[op.Tag]
	if r.completed++; r.completed > 1 || &r.Op != op {
		c.t.Errorf("%v at %d was completed %d times", op.Cmd, op.Off, r.completed)
		return
	}
	if op.Cmd == backend.Read {
		r.Got = make([]byte, 0, op.Len)
	}
	for _, s := range op.Data {
		if op.Cmd == backend.Read {
			r.Got = append(r.Got, s.Bytes()...)
		}
		s.Chunk.Release()
	}
	op.Data = nil
	c.open--
	c.cond.Broadcast()
}

// Kick does nothing: a Client holds back no replies.
func (c *Client) Kick() {}

// Gone implements backend.Sink. It reports whether HangUp was called.
func (c *Client) Gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// HangUp makes Gone report true from now on.
func (c *Client) HangUp() {
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
}

// AllBack waits until nobody holds a chunk, a pin or an entry of dev. The caller has no
// requests outstanding. A device may free spans just after it has completed a FLUSH. So
// AllBack takes all units of each budget, which it gets when the last one is back.
func AllBack(t testing.TB, dev backend.Device) {
	t.Helper()
	a := dev.Arenas()
	budgets := map[string]*backend.Budget{"write": a.Write.Budget(), "pins": a.Write.Pins(), "read": a.Read.Budget()}
	if a.Entries != nil {
		budgets["entries"] = a.Entries.Budget
	}
	for name, b := range budgets {
		if b == nil {
			continue
		}
		stop := make(chan struct{})
		timer := time.AfterFunc(patience, func() { close(stop) })
		err := b.Take(b.Total(), stop)
		timer.Stop()
		require.NoError(t, err, "%s: %d of %d are free", name, b.Free(), b.Total())
		b.Give(b.Total())
	}
}

// Pattern returns n bytes that identify a write: each word of 8 bytes has the number of
// the writer and the place of the word, and no byte is 0.
func Pattern(n int, writer uint32) []byte {
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.BigEndian.PutUint64(b[i:], uint64(writer+1)<<32|uint64(i/8)|0x8080808080808080)
	}
	return b[:n]
}
