package nbd

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"pmnbd/backend"
)

// An export is a Device and what its connections share.
type export struct {
	name     string
	dev      backend.Device
	info     backend.Info
	arenas   *backend.Arenas
	readOnly bool
	// maxZero is the most that one Op zeroes, in bytes: well within the index.
	maxZero uint64
	*memory
	// sinkCap is how many chunks of the read arena a connection may hold for several READs.
	sinkCap int

	// entered counts the connections that ever entered transmission. See Gone.
	entered atomic.Uint64

	mu   sync.Mutex
	live map[*conn]struct{} // connections in transmission
	past Commands           // of those that left

	flush background
}

// memory is what the connections of all exports of a device share.
type memory struct {
	// reservations counts the chunks that were reserved for payloads that are not
	// complete: half the window at most (design §4.8).
	reservations *backend.Budget
	// common counts the chunks of the read arena that are nobody's own part: each of the
	// server's connections has ownSinks of them.
	common *backend.Budget
	// short counts the times that a READ, or a part of one, had to do without common chunks.
	short atomic.Uint64
}

// newExport checks that e's arenas suffice: every connection may hold one receive
// chunk, and its own part of the read arena, for as long as its client likes, payloads
// that are not complete half of the window, and one client that does not read its
// replies should leave room for the largest READ of another.
func newExport(e Export, log *zap.Logger, maxConns int, memories map[*backend.Arenas]*memory) (*export, error) {
	x := &export{
		name:     e.Name,
		dev:      e.Device,
		info:     e.Device.Info(),
		arenas:   e.Device.Arenas(),
		readOnly: e.ReadOnly,
		maxZero:  e.Device.Arenas().MaxZero(),
	}
	if x.info.MaxRequest > maxPayload {
		return nil, fmt.Errorf("the device takes requests of %d bytes, at most %d are sensible", x.info.MaxRequest, maxPayload)
	}
	largest := chunksFor(int(x.info.MaxRequest))
	write := x.arenas.Write
	chunks := write.Budget().Total()
	window := chunks - maxConns
	if pins := write.Pins(); pins != nil {
		window = pins.Total()
	}
	if window/2 < largest+1 || window > chunks-maxConns { // a payload begins in the chunk of its header
		least := max(window, 2*(largest+1))
		return nil, fmt.Errorf("a write arena of %d chunks, %d for the window, is too small for %d connections and requests of %d chunks: %d are needed, %d for the window",
			chunks, window, maxConns, largest, maxConns+least, least)
	}
	sinks, least := x.arenas.Read.Budget().Total(), maxConns*ownSinks+2*largest
	if sinks < least {
		return nil, fmt.Errorf("a read arena of %d chunks is too small for %d connections and requests of %d chunks: %d are needed",
			sinks, maxConns, largest, least)
	}
	if x.memory = memories[x.arenas]; x.memory == nil {
		x.memory = &memory{
			reservations: backend.NewBudget(window / 2),
			common:       backend.NewBudget(sinks - maxConns*ownSinks),
		}
		memories[x.arenas] = x.memory
	}
	x.sinkCap = ownSinks + x.common.Total()/4
	x.live = make(map[*conn]struct{})
	x.flush.dev, x.flush.log = e.Device, log.With(zap.String("export", e.Name))
	return x, nil
}

// chunksFor is how many chunks n bytes fill.
func chunksFor(n int) int { return (n + backend.ChunkSize - 1) / backend.ChunkSize }

// enter adds a connection that is about to read its first request. It returns the
// connection's number, and whether it is the only one.
func (x *export) enter(c *conn) (number uint64, alone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.live[c] = struct{}{}
	return x.entered.Add(1), len(x.live) == 1
}

// leave takes back an enter, when none of the connection's ops is outstanding. It
// reports whether the connection was the last.
func (x *export) leave(c *conn) (last bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.live, c)
	x.past.add(c.counted())
	return len(x.live) == 0
}

// background makes durable, at nobody's request, what connections left behind. It is the
// Sink of its FLUSH. Nobody waits for that: the device completes it, when it is closed at the
// latest, and a target that is away must not hold up Shutdown.
type background struct {
	dev backend.Device
	log *zap.Logger

	op backend.Op // whoever set busy owns it, and the device while it executes it

	mu sync.Mutex
	// busy: a FLUSH is under way; completed: the device is done with it; again: another
	// one shall follow.
	busy, completed, again bool
}

// start begins a FLUSH. While one is under way, it lets another follow.
func (b *background) start() {
	b.mu.Lock()
	again := b.busy
	b.again = b.again || again
	b.busy = true
	b.mu.Unlock()
	if !again {
		b.submit()
	}
}

func (b *background) submit() {
	b.op = backend.Op{Cmd: backend.Flush, Sink: b}
	b.dev.Submit([]*backend.Op{&b.op})
	b.dev.Post()
	b.Kick() // it may have been completed inside Submit
}

// Complete ends one FLUSH.
func (b *background) Complete(op *backend.Op) {
	if op.Err != nil && !errors.Is(op.Err, backend.ErrClosed) { // its Close flushes, and says what fails
		b.log.Warn("the flush after a client left failed", zap.Error(op.Err))
	}
	b.mu.Lock()
	b.completed = true
	b.mu.Unlock()
}

// Kick has nothing to write, and lets another FLUSH follow.
func (b *background) Kick() {
	b.mu.Lock()
	next := b.completed && b.again
	if b.completed {
		b.completed, b.again, b.busy = false, false, next
	}
	b.mu.Unlock()
	if next {
		b.submit()
	}
}

// Gone is false: nobody's client asks.
func (b *background) Gone() bool { return false }
