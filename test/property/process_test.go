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

	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/backend/remote"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A process is a run of pmnbd, which can be killed at each step that it takes: at a call
// of the transport, and when it asks for its client or answers it. What others see of a
// process that was killed is that nothing comes from it any more, but for what was on its
// way, and its window file, copied at that moment.
//
//	alive ──kill──► dead: it waits for a connection ──bury──► one that comes back too late
//
// The goroutines of a dead one go on, as far as they come. They are buried when somebody
// else has the region: then the target must refuse what they ask for, which ends them.
//
// The copy is of one moment, though it takes time, as long as nobody takes memory of the
// window meanwhile. So who kills at a step has allocated before.
type process struct {
	t       testing.TB
	network *rdmafake.Provider
	turns   turns
	number  int
	id      byte
	dir     string // its state and its window
	left    string // what it leaves: a directory, the next one's dir
	ctx     context.Context
	cancel  context.CancelFunc

	kills  sync.Once
	killed chan struct{} // closed when left is there
	rites  sync.Once
	buried chan struct{} // closed when it may connect again
	opened chan struct{} // closed when dial has returned
	dev    *remote.Device
	err    error
	ended  sync.WaitGroup

	abandoned atomic.Bool
	slept     atomic.Uint64
	closes    sync.Once
	closed    chan struct{} // closed when dev is, with closeErr
	closeErr  error

	mu    sync.Mutex
	dead  bool
	trap  int  // steps until it is killed; 0: it is not
	holds bool // what is on its way when it is killed is held, and else lost
}

// process makes a process that finds what is in dir.
func (s *station) process(id byte, dir string) *process {
	s.processes++
	p := &process{
		t: s.t, network: s.network, turns: s.turns, number: s.processes, id: id, dir: dir, left: filepath.Join(s.dir, fmt.Sprintf("left-%d", s.processes)),
		killed: make(chan struct{}), buried: make(chan struct{}), opened: make(chan struct{}), closed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	s.all = append(s.all, p)
	return p
}

// start has it open the region, no matter whose lease runs: p.opened tells when it has,
// p.dev and p.err, how.
func (p *process) start(lanes int, acceptLoss bool) {
	cfg := remote.Config{
		Provider: device{p.network, p}, Addr: "target", Region: "r", ID: [16]byte{p.id}, StateDir: p.dir, WindowDir: p.dir,
		Window: 16 << 20, Lanes: lanes, Connections: 4, AcceptLoss: acceptLoss, Takeover: true, Jitter: p.turns.jitter(p.number),
	}
	p.ended.Go(func() {
		p.turn()
		p.dev, p.err = remote.Dial(p.ctx, cfg)
		close(p.opened)
	})
}

// dial is start, and waits.
func (p *process) dial(lanes int, acceptLoss bool) error {
	p.start(lanes, acceptLoss)
	<-p.opened
	return p.err
}

// turn waits for the turn of a goroutine that the test has just started, or let go on.
func (p *process) turn() { p.turns.sleep(1<<24|uint64(p.number), p.slept.Add(1)) }

// close closes the device, once. Device.Close is the same, but whoever comes while it lasts
// waits for a mutex, and as long as somebody does the clock of a bubble stands still.
func (p *process) close() error {
	p.closes.Do(func() {
		p.ended.Go(func() {
			p.turn()
			p.closeErr = p.dev.Close()
			close(p.closed)
		})
	})
	<-p.closed
	return p.closeErr
}

// trapAt has it killed at its nth step from now, and not before if that is 0. holds is as
// in process.
func (p *process) trapAt(n int, holds bool) {
	p.mu.Lock()
	if !p.dead {
		p.trap, p.holds = n, holds
	}
	p.mu.Unlock()
}

// step is taken wherever it can be killed. It reports whether the process lives.
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

// spared removes the trap, and reports whether it has not sprung.
func (p *process) spared() bool {
	p.trapAt(0, false)
	if p.step() {
		return true
	}
	<-p.killed
	return false
}

// kill kills it, once. When it returns left is there.
func (p *process) kill() {
	p.kills.Do(func() {
		crashed.Add(1)
		p.mu.Lock()
		p.dead = true
		holds := p.holds
		p.mu.Unlock()
		if holds {
			p.network.Freeze()
		} else {
			p.network.Cut()
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

// duplicate copies a file, from its start to its end, but for what nobody has written to.
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
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err == nil {
			hole, err = src.Seek(data, unix.SEEK_HOLE)
		}
		if err == nil {
			_, err = io.Copy(io.NewOffsetWriter(dst, data), io.NewSectionReader(src, data, hole-data))
		}
		if err != nil {
			return err
		}
	}
}

// abandon has the device fail for good, so that it can be closed whatever it waits for. A
// heartbeat posts, if nothing else does. RESUME is the first that is posted on its connection.
func (p *process) abandon() { p.abandoned.Store(true) }

// bury lets a dead process end.
func (p *process) bury() {
	p.rites.Do(func() {
		p.cancel()
		close(p.buried)
		p.ended.Go(func() {
			p.turn()
			<-p.opened
			if p.dev != nil {
				_ = p.close() // somebody else has the region
			}
		})
	})
}

// A device is the RDMA device of a process.
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

// Dial waits if the process is dead, until it is buried.
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
	}
	c, err := d.Domain.Dial(ctx, addr, cfg, recvs)
	if err != nil {
		return nil, err
	}
	return conn{c, d.p, !alive, new(atomic.Int32)}, nil
}

type conn struct {
	rdma.Conn
	p      *process
	beyond bool          // it was made after the end
	posts  *atomic.Int32 // how often something was posted
}

func (c conn) Post(wrs []rdma.WorkRequest) (int, error) {
	if first := c.posts.Add(1) == 1; c.p.abandoned.Load() && !first {
		return 0, fmt.Errorf("abandoned: %w", rdma.ErrLocalAccess)
	}
	if !c.p.step() && !c.beyond {
		return 0, fmt.Errorf("killed: %w", rdma.ErrLost)
	}
	return c.Conn.Post(wrs)
}

// A reply is the sink of one request: whether a client heard of it before the process was
// killed.
type reply struct {
	backend.Sink
	p     *process
	done  chan struct{} // closed when it is completed
	heard bool          // guarded by p.mu
}

// listens puts a reply before op's sink.
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
