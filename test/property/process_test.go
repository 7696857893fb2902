package property

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/backend/remote"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A process is one run of pmnbd. It can be killed at each of its steps: when it calls the
// transport, when it asks whether a client has gone, and when it completes an op. After its
// death others see nothing of it but the messages that were on the wire and a copy of its
// window file, taken at that moment.
//
//	alive ──kill──► dead: it waits for a connection ──bury──► it connects, too late
//
// The goroutines of a dead process run on until they need a connection. The test buries the
// process once somebody else has the region. The target must then refuse whatever they ask for,
// which ends them. Those of a mirror's process get no connection then, and end.
//
// Copying takes time, but the copy shows one moment as long as nobody takes memory of the
// window meanwhile. So a goroutine that kills at a step has allocated before that step.
type process struct {
	t      testing.TB
	in     *troupe
	turns  turns
	number int
	id     byte
	dir    string // its state and its window
	left   string // what it leaves behind: the dir of the next process
	listed []int  // see troupe
	ctx    context.Context
	cancel context.CancelFunc

	kills  sync.Once
	killed chan struct{} // closed when left is complete
	rites  sync.Once
	buried chan struct{} // closed when it may connect again
	opened chan struct{} // closed when dial has returned
	dev    *remote.Device
	err    error
	ended  sync.WaitGroup

	slept    atomic.Uint64
	closes   sync.Once
	closed   chan struct{} // closed when dev is, with closeErr
	given    context.Context
	giveUp   context.CancelFunc // ends a close, whatever that waits for
	closeErr error

	mu    sync.Mutex
	dead  bool
	trap  int  // steps left until it is killed; 0: no trap is set
	holds bool // when it is killed, what it sent is held on the wire instead of lost
}

// A troupe is the processes of a check, which reach the same targets.
type troupe struct {
	t        testing.TB
	turns    turns
	dir      string               // of all that they leave
	networks []*rdmafake.Provider // one to each target
	mirror   *remote.Config       // what a process of a mirror has beside its members; nil: one region
	listed   []int                // the targets of a mirror that the next process names
	made     int
	all      []*process
}

// state returns a fresh directory for a process without a past.
func (s *troupe) state() string { return filepath.Join(s.dir, fmt.Sprintf("state-%d", s.made)) }

// sweep buries all dead processes and removes the directories of every process but now: nobody
// will look at them again.
func (s *troupe) sweep(now *process) {
	for _, p := range s.all {
		if !p.step() {
			p.bury()
		}
		for _, dir := range []string{p.dir, p.left} {
			if now == nil || dir != now.dir && dir != now.left {
				err := os.RemoveAll(dir)
				// A dead process of a mirror locks the region of each member that it reaches.
				require.True(s.t, err == nil || s.mirror != nil, "%v", err)
			}
		}
	}
}

// end ends what runs of the processes. All living ones have closed, unless a check has failed: a device
// that never closes is given up.
func (s *troupe) end() {
	for _, p := range s.all {
		p.cancel()
		p.giveUp()
		p.ended.Wait()
	}
}

// process makes a process that starts from the contents of dir.
func (s *troupe) process(id byte, dir string) *process {
	s.made++
	p := &process{
		t: s.t, in: s, turns: s.turns, number: s.made, id: id, dir: dir, left: filepath.Join(s.dir, fmt.Sprintf("left-%d", s.made)), listed: s.listed,
		killed: make(chan struct{}), buried: make(chan struct{}), opened: make(chan struct{}), closed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.given, p.giveUp = context.WithCancel(context.Background())
	s.all = append(s.all, p)
	return p
}

// start opens the region without waiting for anybody's lease. p.opened closes when it has
// returned; p.dev and p.err have the result.
func (p *process) start(lanes int, acceptLoss bool) {
	cfg := remote.Config{
		ID: [16]byte{p.id}, StateDir: p.dir, WindowDir: p.dir,
		Window: 16 << 20, Lanes: lanes, Connections: 4, AcceptLoss: acceptLoss, Takeover: true, Jitter: p.turns.jitter(p.number),
	}
	if also := p.in.mirror; also == nil {
		cfg.Provider, cfg.Addr, cfg.Region = device{p.in.networks[0], p}, address(0), "r"
	} else {
		cfg.LegTimeout, cfg.Degraded, cfg.Log = also.LegTimeout, also.Degraded, also.Log.With("process", p.number)
		if also.Arbiter != nil {
			cfg.Arbiter = asked{also.Arbiter, p}
		}
		cfg.AsyncDrop = also.AsyncDrop
		for _, i := range p.listed {
			cfg.Members = append(cfg.Members, p.target(i))
		}
	}
	p.ended.Go(func() {
		p.turn()
		p.dev, p.err = remote.Dial(p.ctx, cfg)
		close(p.opened)
	})
}

// dial calls start and waits for it.
func (p *process) dial(lanes int, acceptLoss bool) error {
	p.start(lanes, acceptLoss)
	<-p.opened
	return p.err
}

// turn makes a goroutine that the test has started or released wait for its turn.
func (p *process) turn() { p.turns.sleep(1<<24|uint64(p.number), p.slept.Add(1)) }

// close closes the device once. Device.Close would do as well, but its second caller waits for
// a mutex, and while a goroutine does that the clock of a bubble stands still.
func (p *process) close() error {
	p.closes.Do(func() {
		p.ended.Go(func() {
			p.turn()
			p.closeErr = p.dev.Shutdown(p.given)
			close(p.closed)
		})
	})
	<-p.closed
	return p.closeErr
}

// trapAt kills the process at its nth step from now; 0 removes the trap. For holds see process.
func (p *process) trapAt(n int, holds bool) {
	p.mu.Lock()
	if !p.dead {
		p.trap, p.holds = n, holds
	}
	p.mu.Unlock()
}

// step is called wherever the process can be killed. It reports whether the process is alive.
func (p *process) step() (alive bool) {
	p.mu.Lock()
	sprung := false
	if p.trap > 0 {
		p.trap--
		sprung = p.trap == 0
		p.dead = p.dead || sprung
	}
	alive = !p.dead
	p.mu.Unlock()
	if sprung {
		p.kill()
	}
	return alive
}

// spared removes the trap and reports whether the process is still alive.
func (p *process) spared() bool {
	p.trapAt(0, false)
	if p.step() {
		return true
	}
	<-p.killed
	return false
}

// isDead reports whether p was killed. It is no step of p.
func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// kill kills the process once. left is complete when it returns.
func (p *process) kill() {
	p.kills.Do(func() {
		crashed.Add(1)
		p.mu.Lock()
		p.dead = true
		holds := p.holds
		p.mu.Unlock()
		for _, n := range p.in.networks {
			if holds {
				n.Freeze()
			} else {
				n.Cut()
			}
		}
		p.leave()
		close(p.killed)
	})
}

// leave copies the window file to left.
func (p *process) leave() {
	if err := os.MkdirAll(p.left, 0o700); err != nil {
		p.t.Error(err)
	}
	found, _ := filepath.Glob(filepath.Join(p.dir, "*.window"))
	for _, name := range found {
		if err := duplicate(name, filepath.Join(p.left, filepath.Base(name))); err != nil {
			p.t.Error(err)
		}
	}
}

// duplicate copies a file from start to end and keeps its holes.
func duplicate(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close() //nolint:errcheck // it was only read
	dst, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	for hole := int64(0); ; {
		data, err := src.Seek(hole, unix.SEEK_DATA)
		if err == nil {
			hole, err = src.Seek(data, unix.SEEK_HOLE)
		}
		if errors.Is(err, unix.ENXIO) { // perhaps it has just become shorter: the process gives a drained window's memory back
			return nil
		}
		if err == nil {
			_, err = io.Copy(io.NewOffsetWriter(dst, data), io.NewSectionReader(src, data, hole-data))
		}
		if err != nil {
			return err
		}
	}
}

// bury lets a dead process connect again, and so end.
func (p *process) bury() {
	p.rites.Do(func() {
		p.cancel()
		close(p.buried)
		p.ended.Go(func() {
			p.turn()
			<-p.opened
			if p.in.mirror != nil {
				p.giveUp() // it reaches nobody any more
			}
			if p.dev != nil {
				_ = p.close() // fails, because somebody else has the region
			}
		})
	})
}

// A device is the RDMA device that a process sees.
type device struct {
	rdma.Provider
	p *process
}

func (d device) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	d.p.step()
	inner, err := d.Provider.OpenDomain(ctx, addr)
	return domain{inner, d.p}, err
}

type domain struct {
	rdma.Domain
	p *process
}

// Dial waits, if the process is dead, until it is buried. Of a mirror it then fails: a member that the
// process after it has not reached would go on with a life that the other process has taken over.
func (d domain) Dial(ctx context.Context, addr string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	alive := d.p.step()
	if !alive {
		select {
		case <-d.p.buried:
		case <-ctx.Done():
		}
		d.p.turn()
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%w: %w", rdma.ErrTimeout, err)
		}
		if d.p.in.mirror != nil {
			return nil, fmt.Errorf("killed: %w", rdma.ErrLost)
		}
	}
	c, err := d.Domain.Dial(ctx, addr, cfg, recvs)
	if err != nil {
		return nil, err
	}
	return conn{c, d.p, !alive}, nil
}

type conn struct {
	rdma.Conn
	p      *process
	beyond bool // made after the process died
}

func (c conn) Post(wrs []rdma.WorkRequest) (int, error) {
	if !c.p.step() && !c.beyond {
		return 0, fmt.Errorf("killed: %w", rdma.ErrLost)
	}
	return c.Conn.Post(wrs)
}

// A reply is the sink of one request. It knows whether the client heard of the completion
// before the process was killed.
type reply struct {
	backend.Sink
	p     *process
	done  chan struct{} // closed when the request has completed
	heard bool          // guarded by p.mu
}

// listens puts a reply in front of op's sink.
func (p *process) listens(op *backend.Op) *reply {
	r := &reply{Sink: op.Sink, p: p, done: make(chan struct{})}
	op.Sink = r
	return r
}

// Gone implements backend.Sink.
func (r *reply) Gone() bool {
	r.p.step()
	return r.Sink.Gone()
}

// Complete implements backend.Sink.
func (r *reply) Complete(op *backend.Op) {
	r.p.step()
	r.p.mu.Lock()
	r.heard = !r.p.dead
	r.p.mu.Unlock()
	r.Sink.Complete(op)
	close(r.done)
}

// Kick implements backend.Sink.
func (r *reply) Kick() {
	r.p.step()
	r.Sink.Kick()
}

// was reports whether the client heard.
func (r *reply) was() bool {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.heard
}
