// Package remote is a block device on a region of another machine. It turns writes into RDMA
// Writes, reads into RDMA Reads, and FLUSH and FUA into one barrier for all that wait.
//
// Open opens a region of a target and returns a Device that is ready:
//
//	dev, err := remote.Open(ctx, "iwarp://192.0.2.1:7204/log", remote.WithStateDir("/var/lib/mylog"))
//
// Package gonbd makes it an io.ReaderAt and io.WriterAt; package nbd serves it to NBD clients. Dial
// is Open for a program that sets every field of Config itself. A region has one writer: while a
// Device is open, nobody else can open its region.
//
// Config.Members makes a mirror of several regions: every write goes to all of them, and a FLUSH
// succeeds when all that are in sync have it. CreateMirror prepares the regions.
//
// A write is acknowledged when it is in the Device's window, a bounded memory of this host. It is
// durable once a FLUSH that was submitted later has succeeded (Device.Sync). The Device sends
// unflushed writes again when a connection breaks. If the process is killed, the next one does, if
// Config.WindowDir names a directory for the window.
//
// While the target is away writes are taken until the window is full, and READs and FLUSHes wait.
// Sync and Shutdown take a context for that. A Device fails for good, and its ops then wrap
// backend.ErrFailed, only if writes may be lost (BarrierError, TakenError) or if
// Config.LossTimeout is over.
//
// All sizes and offsets are in bytes. This package is stable: later releases keep what a program
// can use of it.
//
// # Inside
//
// The package keeps the initiator's half of the promises of design §3, §4 and §6. Only Open knows a
// transport.
//
// A Device has three parts. The core is what does not depend on a target: the window, the
// streams that order all requests, and the group commit over them. A leg is all that belongs to one
// target: the RDMA device, the session and its lanes, heartbeats, and the keeper that brings a
// lost session back. The window file is what the next run finds. The device of a mirror has a leg for
// each member, and copies, which keeps book of who has every flushed write.
//
// A Device is in one of these phases. An event in the top line takes it to the phase below; where
// there is none the event cannot happen.
//
//	           opened   lost       back      drain     leave      end
//	opening    open     waiting                       departing  failed
//	open                waiting              draining  leaving    failed
//	waiting             waiting    open      stranded  departing  failed
//	draining            stranded                       leaving    failed
//	stranded            stranded   draining            departing  failed
//	leaving             departing                      leaving    closed
//	departing           departing  leaving             departing  closed
//	failed     failed   failed     failed    failed    failed     failed
//	closed     closed   closed     closed    closed    closed     closed
//
// The session is up while a Device is open, draining or leaving. It is lost while the Device is
// waiting, stranded or departing: READ, FLUSH and FUA writes wait for it to come back. In a mirror that
// holds for the sessions of all legs together, and READs come from another leg meanwhile. Writes are
// taken until Close begins (drain). Close flushes, gives the session back (leave), and ends.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"pmnbd/backend"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// Defaults and limits.
const (
	// DefaultWindow is 64 MiB: a second of writes at the pace of a 500 MB/s log,
	// and small against the memory of any host that has RDMA.
	DefaultWindow = 64 << 20
	// DefaultAsyncLag and DefaultAsyncLagTime are how far an asynchronous member may be behind: a
	// quarter of the default window, and what one can bear to lose with a site.
	DefaultAsyncLag     = 16 << 20
	DefaultAsyncLagTime = 5 * time.Second
	// MinWindow is the smallest window that works: sixteen chunks, so that the
	// largest request is 1 MiB.
	MinWindow = 16 * backend.ChunkSize
	// MaxWindow catches typing errors: nobody wants to lose, or to replay, more than that.
	MaxWindow = 64 << 30
	// DefaultLanes is 1. More help where one queue pair does not fill the adapter or the
	// network. Each costs a message per barrier.
	DefaultLanes = 1
	// MaxLanes is what a target allows.
	MaxLanes = 16
	// DefaultConnections is the number of receive chunks: 16 MiB in all.
	DefaultConnections = 64
	// maxRequest is the largest request that any window allows (design §4.8).
	maxRequest = 32 << 20
	// stripe is how many consecutive bytes of the device one stream orders. It is at least
	// backend.ChunkSize, so that at most one stripe ends inside a chunk.
	stripe = 1 << 20
	// maxMessages is how many messages of the target a lane can receive before it
	// looks: answers to all that the target's credits allow, and a few more.
	maxMessages = 32
	// recvSize is a lane's memory for receives, in bytes. controlSize is that, the sink of
	// Reads and the memory for sends, one behind the other.
	recvSize    = maxMessages * wire.MaxMessage
	controlSize = 2*recvSize + sinkSize
	// reservedCredits is how many of a lane's credits are for a heartbeat and CLOSE, mirrorCredits how
	// many more those of a mirror has for a call and for digests.
	reservedCredits = 2
	mirrorCredits   = 1 + wire.MaxDigests
)

// A Device is a session with a target, as a backend.Device.
type Device struct {
	cfg     Config // set once, like all up to lineage
	log     *slog.Logger
	info    backend.Info
	arenas  backend.Arenas
	core    *core          // once there is a window
	legs    []*leg         // of the targets that the start names
	spares  []*leg         // of a mirror: places for members that are added
	file    *windowFile    // nil if the window is anonymous memory
	noted   bool           // this start wrote the record of the region's name
	legacy  *legacy        // of a mirror with a window file: what the previous run left
	behind  bool           // the previous run ended before it served anybody, and may have opened something
	term    Term           // nil: the mirror has no arbiter, or this start waits for its turn
	set     [16]byte       // of the mirror, with an arbiter
	yields  bool           // nothing is left here that another initiator would miss
	served  atomic.Bool    // a mirror's clients are served, or were
	ending  sync.WaitGroup // of the term, after the device failed
	quiet   time.Time      // the device serves nobody before: another one may still answer READs, unless this one holds quietBy
	quietBy persist.Members
	lineage uuid.UUID

	claiming sync.Mutex // guards claims: the keepers of a mirror's legs take some
	claims   []*claim   // of the mirror, if it has a window file, and of the legs' regions as far as they are taken

	closing   context.Context         // ends when Shutdown gives up
	giveUp    context.CancelCauseFunc // ends closing
	closeOnce sync.Once
	closeErr  error // set by closeOnce
}

// Dial opens a session. Its error is a *RefusedError if the target refuses, a *LossError if
// something would be lost, and one of rdma's if nothing can reach the target. Once Dial has
// reached the target it asks again until ctx ends, if the connection is lost or if the target is
// granting the region to somebody else.
func Dial(ctx context.Context, cfg Config) (*Device, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	for n := 0; ; n++ {
		d, err := dial(ctx, cfg)
		if !errors.Is(err, errAgain) || ctx.Err() != nil {
			return d, err
		}
		cfg.Log.Info("the mirror begins again: a member has come back that knows a newer generation, or the one that was copied from is lost")
		select {
		case <-time.After(backoff(n, cfg.Jitter())):
		case <-ctx.Done():
			return nil, fmt.Errorf("the mirror does not begin: %w", context.Cause(ctx))
		}
	}
}

// dial makes one attempt. Its error is errAgain if a mirror that copied first is to decide again.
func dial(ctx context.Context, cfg Config) (_ *Device, err error) {
	d := &Device{cfg: cfg, log: cfg.Log, lineage: uuid.New()}
	d.closing, d.giveUp = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, d.release())
		}
	}()
	if err := d.makeLegs(); err != nil {
		return nil, err
	}
	if cfg.WindowDir != "" {
		inherit := d.inherit
		if len(cfg.Members) > 0 {
			inherit = d.inheritMirror
		}
		if err := inherit(ctx); err != nil {
			return nil, err
		}
	}
	if err := d.allocate(); err != nil {
		return nil, err
	}
	if err := d.makeSpares(); err != nil {
		return nil, err
	}
	for _, g := range slices.Concat(d.legs, d.spares) {
		g.attach(d.core, &d.arenas)
	}
	if len(cfg.Members) > 0 {
		d.core.copies = newCopies(d.core, cfg, d.noteMirror, d.fail)
		err = d.beginMirror(ctx)
	} else {
		err = d.open(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, g := range d.core.legs {
		if g.up.Load() {
			g.complete()
		}
		g.serve()
	}
	if len(cfg.Members) > 0 {
		if err := d.awaitMirror(ctx); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// makeLegs makes a leg for each member, or one for the region alone.
func (d *Device) makeLegs() error {
	for slot, cfg := range d.cfg.ofLegs() {
		g, err := newLeg(cfg, slot, d)
		if err != nil {
			return err
		}
		d.legs = append(d.legs, g)
	}
	return nil
}

// open obtains the session of a region alone.
func (d *Device) open(ctx context.Context) error {
	g := d.legs[0]
	o, conns, err := g.open(ctx)
	if err != nil {
		return err
	}
	if err := d.noteGrant(&o); err != nil {
		for _, c := range conns {
			err = errors.Join(err, c.conn.Close())
		}
		return err
	}
	g.begin(&o, conns)
	g.warn(&o)
	d.describe()
	d.core.life.step(eventOpened, nil).say(d.opened()...)
	return nil
}

// opened is what the log says of a device that was just opened.
func (d *Device) opened() []slog.Attr {
	g := d.legs[0]
	if i := slices.IndexFunc(d.legs, func(g *leg) bool { return g.up.Load() }); i >= 0 {
		g = d.legs[i] // of a mirror, the first member that is there
	}
	o := &g.granted
	return []slog.Attr{slog.String("region", d.cfg.Region), slog.String("target", d.cfg.Addr),
		slog.String("class", o.Class.String()), slog.Uint64("size", o.Size), slog.Uint64("epoch", o.Epoch), slog.Int("lanes", d.cfg.Lanes),
		slog.String("method", o.Method.String()), slog.String("why", g.methodWhy()),
		slog.String("key", cmp.Or(g.key, "none")), slog.String("cipher", cmp.Or(g.cipher, "not encrypted"))}
}

// warn tells the log what the operator has to know of what o grants.
func (g *leg) warn(o *wire.Opened) {
	region := slog.String("region", g.cfg.Region)
	if g.opening.unclean {
		g.log.Warn("the region's former session did not close: what it had acknowledged and not flushed is lost", region)
	}
	if o.Class == persist.ClassVolatile {
		g.log.Warn("the region is volatile: FLUSH means visible at the target, not durable", region)
	}
}

// entries is how many pieces the window's index holds. Writes of 2 KiB and more run out of bytes
// first, smaller ones out of entries. Zeroes take an entry for each stripe: there is room for 8 GiB.
func (d *Device) entries() int { return max(int(d.cfg.Window/2048), 2*(1<<32)/stripe) }

// allocate maps the arenas and the window's index.
func (d *Device) allocate() (err error) {
	request := min(d.cfg.Window/4, maxRequest) &^ 4095
	d.info.MaxRequest = uint32(request)
	if d.file != nil {
		arena, window := d.file.window(int(d.file.header().Window))
		d.arenas.Write, d.core = arena, newCore(newLife(d.log), window, d.cfg.Lanes)
	} else {
		chunks := int(d.cfg.Window / backend.ChunkSize)
		if d.arenas.Write, err = backend.NewArena(chunks + d.cfg.Connections); err != nil {
			return err
		}
		window, err := backend.NewWindow(d.arenas.Write, chunks, d.cfg.Lanes, d.entries())
		if err != nil {
			return err
		}
		d.core = newCore(newLife(d.log), window, d.cfg.Lanes)
	}
	// Two of the largest reads, and a chunk for each connection's small ones.
	largest := int(request+backend.ChunkSize-1) / backend.ChunkSize
	if d.arenas.Read, err = backend.NewArena(2*largest + d.cfg.Connections); err != nil {
		return err
	}
	d.ready()
	return nil
}

// ready makes whoever waits for room in the window start a barrier.
func (d *Device) ready() {
	d.arenas.Entries = backend.NewEntries(d.core.window.Entries(), stripe)
	d.arenas.Write.Pins().Pressure = d.core.commit.relieve
	d.arenas.Entries.Pressure = d.core.commit.relieve
}

// Info implements backend.Device.
func (d *Device) Info() backend.Info { return d.info }

// Arenas implements backend.Device.
func (d *Device) Arenas() *backend.Arenas { return &d.arenas }

// Barriers is how many barriers have succeeded.
func (d *Device) Barriers() uint64 { return d.core.commit.succeeded() }

// Unflushed is how many bytes of acknowledged writes no successful barrier covers.
func (d *Device) Unflushed() uint64 { return d.core.unflushed() }

// describe says what clients are told of the device. FLUSH means on each leg that is up what it means
// for that one's class.
func (d *Device) describe() {
	var copies []string
	for _, g := range d.legs {
		if !g.up.Load() {
			continue
		}
		d.info.Size = g.granted.Size
		if g.granted.Class == persist.ClassVolatile {
			copies = append(copies, fmt.Sprintf("region %s, VOLATILE: FLUSH means visible at the target, and its contents are lost with the target's power", g.cfg.Region))
		} else {
			copies = append(copies, fmt.Sprintf("region %s, class %s: FLUSH means durable at the target", g.cfg.Region, g.granted.Class))
		}
	}
	d.info.BlockMin, d.info.BlockPreferred, d.info.CanZero = 1, 4096, true
	d.info.Description = strings.Join(copies, "; ")
}

// takeClaim implements device.
func (d *Device) takeClaim(region [16]byte) error {
	d.claiming.Lock()
	defer d.claiming.Unlock()
	if d.hasClaimLocked(region) {
		return nil
	}
	c, err := claimRegion(d.cfg.StateDir, d.cfg.ID, region)
	if err == nil {
		d.claims = append(d.claims, c)
	}
	return err
}

// dropClaim implements device.
func (d *Device) dropClaim(region [16]byte) error {
	d.claiming.Lock()
	defer d.claiming.Unlock()
	i := slices.IndexFunc(d.claims, func(c *claim) bool { return c.region == region })
	if i < 0 {
		return nil
	}
	c := d.claims[i]
	d.claims = slices.Delete(d.claims, i, i+1)
	return c.Close()
}

// hasClaim implements device.
func (d *Device) hasClaim(region [16]byte) bool {
	d.claiming.Lock()
	defer d.claiming.Unlock()
	return d.hasClaimLocked(region)
}

func (d *Device) hasClaimLocked(region [16]byte) bool {
	return slices.ContainsFunc(d.claims, func(c *claim) bool { return c.region == region })
}

// noteSession implements device.
func (d *Device) noteSession(g *leg, o *wire.Opened) {
	switch {
	case d.file == nil:
	case len(d.cfg.Members) > 0:
		d.file.update(func(h *header) { h.noteSession(g, o) })
	default:
		d.file.update(func(h *header) { h.Epoch = o.Epoch })
	}
}

// noteMark implements device.
func (d *Device) noteMark(g *leg, mark uint64) {
	switch {
	case d.file == nil:
	case len(d.cfg.Members) > 0:
		d.file.update(func(h *header) { h.Sessions[g.slot].Mark = max(h.Sessions[g.slot].Mark, mark) })
	default:
		d.file.update(func(h *header) { h.Mark = max(h.Mark, mark) })
	}
}
