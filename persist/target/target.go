// Package target is the target's half of a session: who may write to a region,
// and the flush behind each barrier.
//
// It exists so that an old session can never touch a region again, and that an
// ack is never sent for what is not durable (design §3, §5). It owns the regions'
// leases, the order of a grant, and the goroutine of each lane. It imports
// persist, persist/wire, persist/region and rdma.
//
// Lock order, outermost first: export.granting → export.mu. Nothing that a grant
// joins waits for either.
package target

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"pmnbd/internal/loglimit"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// Defaults.
const (
	// Heartbeat is how often an initiator shows that it lives; Lease is how long it
	// holds a region without (design §5).
	Heartbeat = 2 * time.Second
	Lease     = 10 * time.Second
	// MarkInterval is how often a session that makes writes durable advances the mark of
	// its region at most: often enough that few copies go unnoticed, and rarely enough
	// that its three syncs cost nothing.
	MarkInterval = time.Minute
	// credits is how many messages of an initiator a lane can take before it looks:
	// a barrier in 30 parts, which is 7,620 scattered writes.
	credits = 32
	// receives are posted for them: an answer brings a credit back before its
	// receive is posted again, for as many as are handled at a time.
	receives = 2 * credits
	// OpenTimeout is how long a connection may live without a session. ProofTimeout is
	// what it has of that until its first request and, where keys are asked for, from
	// the challenge to the proof: time for one packet to be lost.
	OpenTimeout  = 10 * time.Second
	ProofTimeout = 3 * time.Second
)

// Config says how to serve. Zero values take the defaults.
type Config struct {
	Heartbeat, Lease, OpenTimeout, ProofTimeout time.Duration
	// MarkInterval is how often the mark of a region advances in a session at most.
	MarkInterval time.Duration
	// DirectWrite and RelaxedOrdering are the operator's declarations about this
	// machine's adapters (Facts).
	DirectWrite, RelaxedOrdering bool
	// Keys are those by which sessions authenticate; nil: they do not.
	Keys Keys
	// Allow names, by region, the ids of the initiators that may OPEN it. A region
	// that is not in it is everybody's. Without Keys ids are not proven: this then
	// keeps hosts from each other's regions by mistake, not by force.
	Allow map[string][][16]byte
	// Log takes one line for each change of state; nil: none.
	Log *zap.Logger

	step uint64 // flushStep, less in tests
}

// A Server grants sessions on regions.
type Server struct {
	cfg     Config
	log     *zap.Logger
	exports map[string]*export
	keys    atomic.Pointer[Keys] // nil: sessions do not authenticate
	decoy   []wire.Key           // nobody's: for ids that have none

	strangers strangers
	// The log of what strangers do: anybody who reaches the port can do it as often as
	// they like.
	breaches, refusals *zap.Logger

	mu        sync.Mutex
	closed    bool
	listeners map[rdma.Listener]struct{}
	conns     map[*conn]struct{}
	running   sync.WaitGroup // listeners' and lanes' goroutines
}

// An export is a region that is served.
type export struct {
	s       *Server
	r       *region.Region
	syncer  *syncer
	started int64 // by clock

	granting sync.Mutex // held by a grant, or a CLOSE, from its checks to its reply

	mu      sync.Mutex
	session *session               // the last granted one that was not closed
	durable [maxLanes]wire.Durable // of the present owner, by lane: the last barrier that became durable

	// released: the persisted owner has closed in this run of the target. If it closed
	// in doubt, the superblock still says unclean.
	released atomic.Bool

	barriers atomic.Uint64
}

// New makes a server of regions, by their names. It does not close them.
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
	if cfg.OpenTimeout == 0 {
		cfg.OpenTimeout = OpenTimeout
	}
	if cfg.ProofTimeout == 0 {
		cfg.ProofTimeout = ProofTimeout
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	s := &Server{
		cfg: cfg, exports: make(map[string]*export),
		listeners: make(map[rdma.Listener]struct{}), conns: make(map[*conn]struct{}),
	}
	s.logTo(cfg.Log)
	s.strangers.fewer.L = &s.strangers.mu
	if cfg.Keys != nil {
		decoy := make(wire.Key, wire.MinKey)
		_, _ = rand.Read(decoy) // never fails (crypto/rand)
		s.decoy = []wire.Key{decoy}
		s.SetKeys(cfg.Keys)
	}
	for _, r := range regions {
		e := &export{s: s, r: r, started: clock()}
		e.syncer = newSyncer(e)
		s.exports[r.Name()] = e
	}
	return s
}

// quiet is how long the log has no second line of what strangers do: short enough for
// somebody who looks for the cause of a refusal, long enough for a disk that holds the log.
const quiet = 5 * time.Second

func (s *Server) logTo(log *zap.Logger) {
	s.log = log
	s.breaches, s.refusals = loglimit.New(log, 1, quiet), loglimit.New(log, 1, quiet)
}

// Serve takes connections until Close, or until l fails.
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

// take gives a connection request a goroutine, and a place if it is a stranger's.
func (s *Server) take(req rdma.Request) {
	c := &conn{
		s: s, req: req, log: s.log.With(zap.String("peer", req.RemoteAddr())), peer: req.RemoteAddr(), source: rdma.SourceOf(req.RemoteAddr()),
		done: make(chan struct{}), barrier: wire.Barrier{Ranges: make([]persist.Range, 0, wire.MaxRanges(wire.MaxMessage))},
	}
	var hint wire.JoinHint
	lane := hint.Decode(req.PrivateData())
	if lane {
		if err := s.takeIn(c, &hint); err != nil {
			_ = req.Reject(nil) // it is the peer's loss
			s.breaches.Warn("connection not accepted", zap.String("peer", c.peer), zap.Error(err))
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
		_ = req.Reject(nil) // likewise
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
	for _, e := range s.exports {
		e.syncer.close()
	}
	return errors.Join(errs...)
}

// clock is CLOCK_BOOTTIME in nanoseconds: it goes on while the machine sleeps, as
// the rest of the world does.
func clock() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail with a good clock and pointer
	return ts.Nano()
}

// inside reports whether all ranges lie in size bytes.
func inside(ranges []persist.Range, size uint64) bool {
	for _, r := range ranges {
		if r.Off > size || r.Len > size-r.Off {
			return false
		}
	}
	return true
}
