// Package target is the target's half of a session, only for this module; it promises
// nothing to other programs. It decides who may write to a region, and makes the writes
// ahead of each barrier durable.
//
// It exists so that an old session can never touch a region again, and that the target
// never acknowledges what is not durable (design §3, §5). It owns the regions' leases,
// the order of a grant, and each lane's goroutine.
//
// Lock order, outermost first: Server.changing → export.granting → syncer.turn → export.mu.
// Nothing that a grant joins waits for the first two.
package target

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/internal/latency"
	"pmnbd/internal/loglimit"
	"pmnbd/internal/source"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// Defaults.
const (
	// Heartbeat is how often an initiator shows that it lives. Lease is how long a silent
	// initiator keeps a region (design §5).
	Heartbeat = 2 * time.Second
	Lease     = 10 * time.Second
	// MarkInterval is the shortest time between two advances of a region's mark in a
	// session. It is short enough that few copies go unnoticed, and long enough that the
	// three syncs of each advance do not matter.
	MarkInterval = time.Minute
	// credits is how many messages a lane can take before its goroutine looks at them: a
	// barrier in 30 parts, which is 7,620 scattered writes.
	credits = 32
	// receives is how many receives a lane has posted. An answer returns a credit before
	// the receive of the request is posted again, for as many messages as are handled at
	// a time.
	receives = 2 * credits
	// OpenTimeout is how long a connection may exist without a session. ProofTimeout is
	// how much of that it has until its first request and, with keys, between the
	// challenge and the proof: time for one lost packet.
	OpenTimeout  = 10 * time.Second
	ProofTimeout = 3 * time.Second
)

// Config says how to serve. Zero values mean the defaults.
type Config struct {
	Heartbeat, Lease, OpenTimeout, ProofTimeout time.Duration
	// MarkInterval is the shortest time between two advances of a region's mark in a
	// session.
	MarkInterval time.Duration
	// DirectWrite and RelaxedOrdering are what the operator declares about the adapters
	// of this machine (see Facts).
	DirectWrite, RelaxedOrdering bool
	// Keys has the keys with which sessions authenticate. If it is nil, they do not, and never will.
	Keys Keys
	// Name is the target's name, which its keys belong to: at most wire.MaxTarget bytes.
	Name string
	// Allow and Encrypted are those of the first Offer, and Keys are its keys.
	Allow     map[string][][16]byte
	Encrypted map[string]bool
	// Battery asks the uninterruptible power supply how it is, and ends with its context. Nil:
	// there is none to ask.
	Battery func(context.Context) (Battery, error)
	// Log gets one line for each change of state. It may be nil.
	Log *slog.Logger

	step, lanePart uint64        // flushStep and lanePart, smaller in tests
	diskAnswers    time.Duration // diskAnswers, shorter in tests
	// image, unless nil, returns what saves the region, nil for one that is not of class
	// protected. Only tests set it.
	image func(*region.Region) protected
}

// A Server grants sessions on regions.
type Server struct {
	cfg   Config
	log   *slog.Logger
	offer atomic.Pointer[offered]
	decoy []wire.Key // a key that nobody has, for ids without a key

	strangers strangers
	// The logs of what strangers do. Anybody who reaches the port can do it as often as
	// they like, so they are limited.
	breaches, refusals *slog.Logger

	changing sync.Mutex       // held by Change, Save and Resume, but not while a Change closes a region or waits for its last save
	left     map[*export]bool // withdrawn by a Change that has not returned; guarded by changing
	leaving  sync.WaitGroup   // counts these, and sessions that a Change ends; added to with changing held, and not after Close

	halted atomic.Bool // no session is granted on protected regions (save.go); stored with changing held
	power  power

	mu        sync.Mutex
	closed    bool
	listeners map[rdma.Listener]struct{}
	conns     map[*conn]struct{}
	running   sync.WaitGroup // listeners' and lanes' goroutines
}

// An export is a region that the server serves.
type export struct {
	s         *Server
	r         *region.Region
	image     protected   // r, nil unless it is of class protected
	disk      disk        // of image
	begins    atomic.Bool // a grant may make all of it dirty
	syncer    *syncer
	settlings settlings
	started   atomic.Int64 // when the lease of an owner began that this run has not heard, by clock

	granting  sync.Mutex // held by a grant or a CLOSE, from the checks to the result
	withdrawn bool       // nobody gets the region any more; guarded by granting

	mu      sync.Mutex
	session *session               // the last session that was granted and did not close
	durable [maxLanes]wire.Durable // the last durable barrier of each lane of the current owner

	// released: the persisted owner has closed in this run of the target. If it closed in
	// doubt, the superblock still says unclean.
	released atomic.Bool

	barriers atomic.Uint64
	wrote    [maxLanes]latency.Stopwatch // by lane
}

// New returns a server of regions, by their names. It does not close the regions.
func New(cfg Config, regions []*region.Region) *Server {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = Heartbeat
	}
	if cfg.Lease == 0 {
		cfg.Lease = Lease
	}
	if cfg.MarkInterval == 0 {
		cfg.MarkInterval = MarkInterval
	}
	if cfg.step == 0 {
		cfg.step = flushStep
	}
	if cfg.diskAnswers == 0 {
		cfg.diskAnswers = diskAnswers
	}
	if cfg.lanePart == 0 {
		cfg.lanePart = min(lanePart, cfg.step)
	}
	if cfg.OpenTimeout == 0 {
		cfg.OpenTimeout = OpenTimeout
	}
	if cfg.ProofTimeout == 0 {
		cfg.ProofTimeout = ProofTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg:       cfg,
		listeners: make(map[rdma.Listener]struct{}), conns: make(map[*conn]struct{}), left: make(map[*export]bool),
	}
	s.logTo(cfg.Log)
	s.power.start(cfg.Battery, lookEvery)
	s.strangers.fewer.L = &s.strangers.mu
	if cfg.Keys != nil {
		decoy := make(wire.Key, wire.MinKey)
		_, _ = rand.Read(decoy) // never fails (crypto/rand)
		s.decoy = []wire.Key{decoy}
	}
	exports := make(map[string]*export)
	for _, r := range regions {
		exports[r.Name()] = s.newExport(r)
	}
	s.offer.Store(&offered{Offer{regions, cfg.Allow, cfg.Encrypted, cfg.Keys}, exports})
	return s
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// quiet is how long the log has no second line of the same kind about strangers. It is
// short enough for somebody who looks for the cause of a refusal, and long enough to
// protect the disk that has the log.
const quiet = 5 * time.Second

func (s *Server) logTo(log *slog.Logger) {
	s.log = log
	s.breaches, s.refusals = loglimit.New(log, 1, quiet), loglimit.New(log, 1, quiet)
}

// Serve accepts connections until Close, or until l fails.
func (s *Server) Serve(l rdma.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return l.Close()
	}
	s.listeners[l] = struct{}{}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	for {
		req, err := l.Accept()
		if errors.Is(err, rdma.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection on %s: %w", l.Addr(), err)
		}
		s.take(req)
	}
}

// take starts a goroutine for a connection request, and gives a stranger its place.
func (s *Server) take(req rdma.Request) {
	c := &conn{
		s: s, req: req, log: s.log.With(slog.String("peer", req.RemoteAddr())), peer: req.RemoteAddr(), source: source.Of(req.RemoteAddr()),
		done: make(chan struct{}), barrier: wire.Barrier{Ranges: make([]persist.Range, 0, wire.MaxRanges(wire.MaxMessage))},
	}
	var hint wire.JoinHint
	lane := hint.Decode(req.PrivateData())
	if lane {
		if err := s.takeIn(c, &hint); err != nil {
			_ = req.Reject(nil) // the log has the reason
			s.breaches.Warn("connection not accepted", slog.String("peer", c.peer), slog.Any("error", err))
			return
		}
	} else {
		s.strangers.wait()
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.conns[c] = struct{}{}
		s.running.Add(1)
	}
	s.mu.Unlock()
	if closed {
		_ = req.Reject(nil) // the server is closing
		c.release()
		return
	}
	if !lane {
		s.stranger(c, silent)
	}
	go c.serve()
}

// Close ends all connections and returns when no goroutine of the server is left. An
// owner that has not closed its session keeps its region. A second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	listeners, conns := s.listeners, s.conns
	s.listeners, s.conns = nil, nil
	s.mu.Unlock()
	var errs []error
	for l := range listeners {
		errs = append(errs, l.Close())
	}
	for c := range conns {
		errs = append(errs, c.interrupt())
	}
	s.running.Wait()
	s.changing.Lock()
	served := s.served()
	s.changing.Unlock()
	s.leaving.Wait() // a Change under way has counted what it closes
	closeAll(slices.Collect(maps.Values(served)))
	s.power.close()
	return errors.Join(errs...)
}

// clock returns CLOCK_BOOTTIME in nanoseconds, which continues while the machine sleeps.
func clock() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail with a valid clock and pointer
	return ts.Nano()
}

// inside reports whether all ranges lie in the first size bytes.
func inside(ranges []persist.Range, size uint64) bool {
	for _, r := range ranges {
		if r.Off > size || r.Len > size-r.Off {
			return false
		}
	}
	return true
}
