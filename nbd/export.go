package nbd

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"pmnbd/backend"
)

// An export is a device and the state that its connections share.
type export struct {
	name     string
	dev      backend.Device
	info     backend.Info
	arenas   *backend.Arenas
	readOnly bool
	// maxZero is the length in bytes of the longest zero that is submitted as one Op.
	maxZero uint64
	*memory
	// sinkCap is how many chunks of the read arena a connection may hold. A single READ
	// may take more.
	sinkCap int

	mu      sync.Mutex
	live    map[*conn]struct{} // connections in transmission
	entered uint64             // counts all that ever were
	// withdrawn: no client may enter any more.
	withdrawn bool
	past      Commands  // of connections that have left
	took      Latencies // likewise

	flush background
}

// memory is shared by the connections of all exports of a device.
type memory struct {
	// reservations counts the chunks that are reserved for incomplete payloads: at most
	// half of the window (design §4.8).
	reservations *backend.Budget
	// common counts the common chunks of the read arena. The others are the connections'
	// own parts, of ownSinks chunks each.
	common *backend.Budget
	// short counts how often a READ, or a part of one, had to do without common chunks.
	short atomic.Uint64

	// turns counts all connections that have ever entered transmission, through any export of the
	// device: a client may come back through another one. See conn.Gone.
	turns   atomic.Uint64
	turning sync.Mutex // after export.mu; turns grows and present changes under it
	present int        // connections in transmission
}

// newExport makes an export, and checks that the arenas of e are large enough. A client can
// make its connection hold one chunk to receive into and its own part of the read arena for
// as long as it likes. Incomplete payloads can hold half of the window. And while one client
// does not read its replies, there should be room for the largest READ of another.
func newExport(e Export, log *slog.Logger, maxConns int, memories map[*backend.Arenas]*memory) (*export, error) {
	x := &export{
		name:     e.Name,
		dev:      e.Device,
		info:     e.Device.Info(),
		arenas:   e.Device.Arenas(),
		readOnly: e.ReadOnly,
		maxZero:  e.Device.Arenas().MaxZero(),
	}
	if x.info.MaxRequest > maxPayload {
		return nil, fmt.Errorf("the device takes requests of %d bytes, more than the %d that the server can receive", x.info.MaxRequest, maxPayload)
	}
	largest := chunksFor(int(x.info.MaxRequest))
	write := x.arenas.Write
	chunks := write.Budget().Total()
	window := chunks - maxConns
	if pins := write.Pins(); pins != nil {
		window = pins.Total()
	}
	if window/2 < largest+1 || window > chunks-maxConns { // +1: a payload begins in the chunk of its header
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
	x.flush.dev, x.flush.log = e.Device, log.With(slog.String("export", e.Name))
	return x, nil
}

// chunksFor returns how many chunks n bytes fill.
func chunksFor(n int) int { return (n + backend.ChunkSize - 1) / backend.ChunkSize }

// enter adds a connection before it reads its first request. It gives the connection its numbers,
// and notes whether the device has no other. The export may have been withdrawn since the client chose it.
func (x *export) enter(c *conn) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.withdrawn {
		return errWithdrawn
	}
	x.live[c] = struct{}{}
	x.entered++
	c.number = x.entered
	x.turning.Lock()
	defer x.turning.Unlock()
	x.present++
	c.turn, c.alone = x.turns.Add(1), x.present == 1
	return nil
}

var errWithdrawn = errors.New("the export is served no more")

// leave removes a connection, which has no ops outstanding. It reports whether that was the
// last one.
func (x *export) leave(c *conn) (last bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.live, c)
	x.turning.Lock()
	x.present--
	x.turning.Unlock()
	gone := c.counted()
	x.past.add(gone.Commands)
	x.took.Add(&gone.Latency)
	return len(x.live) == 0
}

// background flushes the device when clients have left, though nobody asks for it. It is the
// Sink of its FLUSH. Nobody waits for the FLUSH, because a target that is away must not hold
// up Shutdown. The device completes it when it is closed at the latest.
type background struct {
	dev backend.Device
	log *slog.Logger

	op backend.Op // belongs to the goroutine that has set busy, and then to the device

	mu        sync.Mutex
	busy      bool // a FLUSH is outstanding, or Kick has not seen its completion yet
	completed bool // the device has completed the FLUSH
	again     bool // another FLUSH must follow
}

// start begins a FLUSH, or lets one follow the FLUSH that is outstanding.
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
	b.Kick() // the device may have completed it inside Submit
}

// Complete implements backend.Sink.
func (b *background) Complete(op *backend.Op) {
	if op.Err != nil && !errors.Is(op.Err, backend.ErrClosed) { // Close flushes as well, and reports what fails
		b.log.Warn("the flush after a client left failed", slog.Any("error", op.Err))
	}
	b.mu.Lock()
	b.completed = true
	b.mu.Unlock()
}

// Kick implements backend.Sink. It begins the next FLUSH if one must follow.
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

// Gone implements backend.Sink. No client has asked for the FLUSH, so none is gone.
func (b *background) Gone() bool { return false }
