package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// maxHeld bounds the bytes that a direction holds.
const maxHeld = 16 << 20

// A Link joins a client's connection with the one that the proxy made to the server for it.
//
//	client ─► collect ─► held ─► deliver ─► server      flow ToServer
//	client ◄─ deliver ◄─ held ◄─ collect ◄─ server      flow ToClient
type Link struct {
	client, server *net.TCPConn
	flows          [2]*flow

	mu      sync.Mutex    // guards the flows
	changed chan struct{} // closed by the next change
	dead    bool          // reset by the proxy
}

// A flow is one direction of a link.
type flow struct {
	dir      Direction
	from, to *net.TCPConn
	weather  Weather
	held     []parcel
	bytes    int   // in held
	ended    error // why collect has stopped
	last     time.Time
	record   bool
	recorded bytes.Buffer
}

// A parcel is the result of one read(2).
type parcel struct {
	at time.Time
	b  []byte
}

func newLink(client, server *net.TCPConn) *Link {
	k := &Link{client: client, server: server, changed: make(chan struct{})}
	k.flows[ToServer] = &flow{dir: ToServer, from: client, to: server}
	k.flows[ToClient] = &flow{dir: ToClient, from: server, to: client}
	return k
}

// run copies bytes until both directions have ended.
func (k *Link) run() {
	var all sync.WaitGroup
	for _, f := range k.flows {
		all.Go(func() { k.collect(f) })
		all.Go(func() { k.deliver(f) })
	}
	all.Wait()
	_, _ = k.client.Close(), k.server.Close() // both have ended
}

// changedLocked wakes all waiters.
func (k *Link) changedLocked() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// lockWhen locks k.mu once met is true. It holds the lock when it returns an error, too.
func (k *Link) lockWhen(ctx context.Context, met func() bool) error {
	k.mu.Lock()
	for !met() {
		changed := k.changed
		k.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			k.mu.Lock()
			return context.Cause(ctx)
		}
		k.mu.Lock()
	}
	return nil
}

// Set sets the weather in one direction.
func (k *Link) Set(d Direction, w Weather) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flows[d].weather = w
	k.changedLocked()
}

// Reset resets both ends. Held bytes are lost.
func (k *Link) Reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = true
	reset(k.client)
	reset(k.server)
	k.changedLocked()
}

// DropClient resets the client's end alone. The server still gets what the client had sent,
// when the weather allows it, and then the end of the stream. A reset could overtake bytes that
// the server has not read yet.
func (k *Link) DropClient() {
	k.HalfClose(ToServer)
	reset(k.client)
}

// HalfClose ends one direction. The receiver meets the end of the stream behind what is held.
// The sender does not notice.
func (k *Link) HalfClose(d Direction) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.flows[d]; f.ended == nil {
		f.ended = io.EOF
	}
	k.changedLocked()
}

// Held waits until one direction holds at least n bytes.
func (k *Link) Held(ctx context.Context, d Direction, n int) error {
	f := k.flows[d]
	err := k.lockWhen(ctx, func() bool { return f.bytes >= n })
	defer k.mu.Unlock()
	if err != nil {
		return fmt.Errorf("wait for %d bytes, %d are held: %w", n, f.bytes, err)
	}
	return nil
}

// Delivered waits until one direction holds nothing and has ended.
func (k *Link) Delivered(ctx context.Context, d Direction) error {
	f := k.flows[d]
	err := k.lockWhen(ctx, func() bool { return k.dead || f.ended != nil && f.bytes == 0 })
	defer k.mu.Unlock()
	if err != nil {
		return fmt.Errorf("wait until %d bytes are delivered: %w", f.bytes, err)
	}
	return nil
}

// Recorded returns everything that was sent in one direction so far, undamaged (Proxy.Record).
func (k *Link) Recorded(d Direction) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return bytes.Clone(k.flows[d].recorded.Bytes())
}

// collect reads what the sender sends.
func (k *Link) collect(f *flow) {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.from.Read(buf)
		_ = k.lockWhen(context.Background(), func() bool { return k.dead || f.ended != nil || f.bytes < maxHeld })
		if f.ended == nil {
			f.ended = err
			if n > 0 {
				if f.record {
					f.recorded.Write(buf[:n])
				}
				f.held = append(f.held, parcel{time.Now(), bytes.Clone(buf[:n])})
				f.bytes += n
			}
			k.changedLocked()
		}
		dead := k.dead
		k.mu.Unlock()
		if dead || err != nil {
			return
		}
	}
}

// deliver writes the held bytes to the receiver, and then the end that the sender made.
func (k *Link) deliver(f *flow) {
	gone := false
	for {
		b, damage, end := k.next(f)
		if errors.Is(end, io.EOF) {
			_ = f.to.CloseWrite() // it may have ended
			return
		}
		if end != nil {
			reset(f.to)
			return
		}
		if damage != nil {
			damage(b)
		}
		if !gone {
			// A receiver that is gone sends a reset. The other direction meets that and passes
			// it on.
			_, err := f.to.Write(b)
			gone = err != nil
		}
		k.mu.Lock()
		f.bytes -= len(b)
		f.last = time.Now()
		k.changedLocked()
		k.mu.Unlock()
	}
}

// next waits for something that may be delivered now: bytes, or the end.
func (k *Link) next(f *flow) (b []byte, damage func([]byte), end error) {
	for {
		k.mu.Lock()
		w, changed := f.weather, k.changed
		var wait <-chan time.Time
		switch {
		case k.dead:
			k.mu.Unlock()
			return nil, nil, net.ErrClosed
		case w.Frozen:
		case len(f.held) > 0:
			first := &f.held[0]
			due := first.at.Add(w.Delay)
			if next := f.last.Add(w.Pause); next.After(due) {
				due = next
			}
			if left := time.Until(due); left > 0 {
				wait = time.After(left)
				break
			}
			n := len(first.b)
			if w.Piece > 0 {
				n = min(n, w.Piece)
			}
			b, first.b = first.b[:n], first.b[n:]
			if len(first.b) == 0 {
				f.held[0] = parcel{}
				f.held = f.held[1:]
			}
			k.mu.Unlock()
			return b, w.Damage, nil
		case f.ended != nil:
			defer k.mu.Unlock()
			return nil, nil, f.ended
		}
		k.mu.Unlock()
		select {
		case <-changed:
		case <-wait:
		}
	}
}
