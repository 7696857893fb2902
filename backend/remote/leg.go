package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/internal/latency"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A leg is the device's side of one target: the RDMA device that leads there, the session, its
// lanes, the heartbeats, and the keeper that brings a lost session back. A lane carries what the
// stream of the same index orders.
//
// Goroutines: the lanes' completers, the heartbeats and the keeper. serve starts them, and
// leave and hangUp wait for their ends.
type leg struct {
	cfg    Config // set once, like slot; Provider, Addr and Region are the leg's
	slot   int    // the number of its member; of a leg that was never up it can change
	log    *slog.Logger
	device device

	// Set by attach, before the session is opened.
	core   *core
	arenas *backend.Arenas
	lanes  []*lane

	// Of whoever connects: the start, then the keeper, at last Close.
	domain            rdma.Domain
	writeMem, readMem *rdma.MemoryRegion
	copyMem           *rdma.MemoryRegion // of copies; nil without a mirror
	control           []byte             // receives and barrier messages
	owner             persist.Owner
	life              uint64 // that OPEN names; 0 without a mirror
	joins             bool   // its region is about to become a member
	restored          bool   // its region was put back from a copy, or strays: OPEN has the target draw a new contents id
	arbitrated        bool   // this life has the lease at the arbiter, and the life that last had the region asks the same arbiter
	opening           opening
	telling           chan struct{} // holds a token when the record of a follower may be out of date; set once

	// Written under commit.mu, and while no lane is connected: lanes read them without.
	granted wire.Opened
	method  persist.Method

	// Guarded by commit.mu.
	key       string         // the fingerprint of the key that has proven the session
	cipher    string         // what encrypts it
	silentAt  time.Time      // when the target of a leg that is not up last gave a sign of life
	backAt    time.Time      // when its session came back
	lostBy    error          // why it is not up
	bad       error          // why it is of no use for the mirror, although it may come back
	hung      error          // why its session was ended, although its target lives; nil once it is back
	sits      sitting        // how long it stays out after that
	recording bool           // its target is asked to persist a record
	vacant    bool           // it has no member: it is spare, or its member was removed
	leaver    *leaver        // its member was removed, and the keeper has not told its target; or nil
	met       mirror.Meeting // what the mirror did with it when it was up last
	goesOn    bool           // meet decided that it follows from where it was
	record    persist.Record // what its region keeps, as far as is known
	copying   *resync        // or nil
	follow    follower       // of an asynchronous member
	outages   latency.Histogram
	fills     uint8 // RECORDs of the session that set all bits of a member, modulo 256

	following  atomic.Bool   // follow.on; changed under commit.mu
	up         atomic.Bool   // the session is there; changed under commit.mu
	touches    atomic.Bool   // its connections may still touch memory; set under commit.mu
	mark       atomic.Uint64 // the highest mark of the region that the target has told
	generation atomic.Uint64 // counts the session's returns: which connection lane 0 has
	late       atomic.Int64  // for how long others have waited for it alone, in nanoseconds
	pulse      pulse
	calls      calls
	badPlaces  atomic.Pointer[badLeg] // nil: nothing of the region is bad
	progress   advance
	beat       chan struct{} // ends the heartbeats
	beatEnded  chan struct{}

	keeping context.Context // ends with the keeper's work
	die     context.CancelFunc
	broke   chan struct{} // holds one token once a lane ended
	kept    chan struct{} // the keeper has ended
	// Of the keeper.
	accused bool      // the last loss was an access or operation error, and no session has lasted since
	owes    debt      // what waited when the session came back last
	faulty  bool      // it was of no use, and no session has lasted since
	vain    int       // sessions in a row that soon ended, or that the mirror had no use for
	lostAt  time.Time // when the outage began that is not over, or the last one
}

// A device is what a leg asks of the Device around it, and tells it.
type device interface {
	// takeClaim takes the lock by which one process of this host has region, unless the device
	// has it already.
	takeClaim(region [16]byte) error
	// dropClaim gives that lock back.
	dropClaim(region [16]byte) error
	// hasClaim reports whether the device has that lock.
	hasClaim(region [16]byte) bool
	// noteSession and noteMark keep what the target of a leg told for the next run. They are called
	// before anything is acknowledged that depends on it.
	noteSession(g *leg, o *wire.Opened)
	noteMark(g *leg, mark uint64)
	// forgetSession has the next run know nothing of the member with that region, which was removed.
	forgetSession(region [16]byte)
	// fail ends the device for good.
	fail(cause error)
}

// newLeg makes leg number slot, which is not connected.
func newLeg(cfg Config, slot int, d device) (*leg, error) {
	g := &leg{
		cfg: cfg, slot: slot, log: cfg.Log, device: d, pulse: pulse{epoch: time.Now()},
		beat: make(chan struct{}), beatEnded: make(chan struct{}),
		broke: make(chan struct{}, 1), kept: make(chan struct{}), telling: make(chan struct{}, 1), calls: calls{turn: make(chan struct{}, 1)},
	}
	size := cfg.Lanes * controlSize
	var err error
	if g.control, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return nil, fmt.Errorf("map %d bytes for control messages: %w", size, err)
	}
	g.keeping, g.die = context.WithCancel(context.Background())
	return g, nil
}

// attach makes g the next leg of x, whose payloads lie in arenas.
func (g *leg) attach(x *core, arenas *backend.Arenas) {
	g.core, g.arenas = x, arenas
	x.legs = append(x.legs, g)
	for _, s := range x.streams {
		g.lanes = append(g.lanes, newLane(g, s))
	}
}

// close gives back what newLeg and openDomain took. No lane is connected.
func (g *leg) close() (err error) {
	g.die()
	if g.domain != nil {
		err = g.domain.Close()
	}
	return errors.Join(err, unix.Munmap(g.control))
}

// openDomain opens the RDMA device by which the target is reached, anew if it is open,
// and registers the arenas with it.
func (g *leg) openDomain(ctx context.Context) (err error) {
	if g.domain != nil {
		err := g.domain.Close()
		g.domain = nil
		if err != nil {
			return fmt.Errorf("close the RDMA device: %w", err)
		}
	}
	if g.domain, err = g.cfg.Provider.OpenDomain(ctx, g.cfg.Addr); err != nil {
		g.domain = nil
		return fmt.Errorf("open the RDMA device towards %s: %w", g.cfg.Addr, err)
	}
	if g.arenas == nil {
		return nil // the target is only asked
	}
	if g.writeMem, err = g.domain.Register(g.arenas.Write.Mem(), 0); err != nil {
		return fmt.Errorf("register the window's memory: %w", err)
	}
	if g.readMem, err = g.domain.Register(g.arenas.Read.Mem(), rdma.LocalWrite); err != nil {
		return fmt.Errorf("register the read memory: %w", err)
	}
	if k := g.core.copies; k != nil {
		if g.copyMem, err = k.register(g.domain); err != nil {
			return err
		}
	}
	return nil
}

// begin makes the connections of a session that was just granted the lanes'.
func (g *leg) begin(o *wire.Opened, conns []dialed) {
	c := &g.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	g.granted, g.method, g.fills = *o, o.Method, 0
	g.knowBad(conns[0].bad)
	g.trustLocked(&conns[0])
	g.mark.Store(o.Mark)
	if o.Flags&wire.OpenedDoubt != 0 {
		c.doubts |= persist.Member(g.slot)
	}
	g.pulse.proves(int64(conns[0].asked.Sub(g.pulse.epoch)))
	for i, l := range g.lanes {
		l.connect(conns[i], g.core.servesLocked(g))
	}
	g.up.Store(true)
	g.touches.Store(true)
}

// trustLocked notes what proves and encrypts the session whose first lane is c. The caller holds
// commit.mu.
func (g *leg) trustLocked(c *dialed) {
	g.key, g.cipher = c.key, ""
	if channel := c.conn.Caps().Channel; channel != nil {
		g.cipher = channel.Cipher
	}
}

// complete starts the completers of lanes that are connected.
func (g *leg) complete() {
	for _, l := range g.lanes {
		go l.complete()
	}
}

// serve starts the heartbeats and the keeper. The keeper first reaches the target of a leg that is not
// up.
func (g *leg) serve() {
	g.pulse.hear()
	interval, lease := usualHeartbeat, usualLease
	if g.granted.Heartbeat != 0 {
		interval, lease = time.Duration(g.granted.Heartbeat)*time.Millisecond, time.Duration(g.granted.Lease)*time.Millisecond
	}
	if !g.up.Load() && (!g.vacant || g.leaver != nil) {
		g.broke <- struct{}{}
	}
	go g.heartbeats(interval, lease)
	go g.keep()
}

// lease is how long the target keeps the region for a silent owner. The caller holds commit.mu.
func (g *leg) lease() time.Duration {
	if g.granted.Lease == 0 {
		return usualLease
	}
	return time.Duration(g.granted.Lease) * time.Millisecond
}

// usualHeartbeat and usualLease are those of a leg whose target has not said its own.
const (
	usualHeartbeat = time.Second
	usualLease     = 10 * time.Second
)

// hangUp ends the connections. When it returns nothing of them touches memory.
func (g *leg) hangUp() {
	for _, l := range g.lanes {
		if l.conn == nil {
			continue // it never had a connection
		}
		l.abort(backend.ErrClosed)
		<-l.done
		l.settle()
	}
}

// cause says why g is not up, or of no use. The caller holds commit.mu.
func (g *leg) cause() error {
	switch {
	case g.bad != nil:
		return g.bad
	case g.hung != nil:
		return g.hung
	case g.lostBy != nil:
		return g.lostBy
	}
	return errNotReached
}

// errNotReached: nobody has reached the target in this life.
var errNotReached = errors.New("it was not reached")

// reserved is how many of a lane's credits are not for barriers.
func (g *leg) reserved() int {
	n := reservedCredits + zeroCredits
	if len(g.cfg.Members) > 0 {
		n += mirrorCredits
	}
	return n
}

// marked keeps the mark that the target told, for the run that adopts the window, too.
func (g *leg) marked(mark uint64) {
	for old := g.mark.Load(); mark > old; old = g.mark.Load() {
		g.device.noteMark(g, mark) // first: who sees the mark can rely on the next run
		if g.mark.CompareAndSwap(old, mark) {
			return
		}
	}
}
