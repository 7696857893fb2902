package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/logtest"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A tracer is a listener that records what the target does with its connections, and can
// hold the target up. It counts connections from 0.
type tracer struct {
	rdma.Listener

	mu     sync.Mutex
	events []string
	more   chan struct{} // closed by the next event if somebody waits
	conns  int
	caps   func(conn int) // unless nil, called when the target asks for a connection's capabilities
	stays  map[int]error  // the queue pairs that cannot be destroyed, with the errors
	used   error          // why protection domains cannot be closed, or nil
	lacks  rdma.Access    // the access rights with which the device refuses to register memory
	// disorderly are the connections whose device places Writes in any order.
	disorderly map[int]bool
}

func (r *tracer) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
}

// reset returns the events and forgets them.
func (r *tracer) reset() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// stay makes the target fail to destroy the queue pair of a connection.
func (r *tracer) stay(conn int, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stays == nil {
		r.stays = make(map[int]error)
	}
	r.stays[conn] = why
}

// wait waits for an event.
func (r *tracer) wait(t *testing.T, event string) {
	t.Helper()
	giveUp := time.After(30 * time.Second)
	for {
		r.mu.Lock()
		there := slices.Contains(r.events, event)
		if r.more == nil {
			r.more = make(chan struct{})
		}
		more := r.more
		r.mu.Unlock()
		if there {
			return
		}
		select {
		case <-more:
		case <-giveUp:
			require.FailNow(t, "no event "+event, "%q", r.reset())
		}
	}
}

func (r *tracer) Accept() (rdma.Request, error) {
	req, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	n := r.conns
	r.conns++
	r.mu.Unlock()
	return &tracedRequest{req, r, n}, nil
}

type tracedRequest struct {
	rdma.Request
	r *tracer
	n int
}

func (q *tracedRequest) OpenDomain() (rdma.Domain, error) {
	d, err := q.Request.OpenDomain()
	return &tracedDomain{d, q.r, q.n}, err
}

func (q *tracedRequest) Accept(d rdma.Domain, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	c, err := q.Request.Accept(d.(*tracedDomain).Domain, cfg, recvs)
	if err != nil {
		return nil, err
	}
	return &tracedConn{Conn: c, r: q.r, n: q.n}, nil
}

type tracedDomain struct {
	rdma.Domain
	r *tracer
	n int // the connection for which it was made
}

func (d *tracedDomain) Register(mem []byte, a rdma.Access) (*rdma.MemoryRegion, error) {
	d.r.mu.Lock()
	lacks := a & d.r.lacks
	d.r.mu.Unlock()
	if lacks != 0 {
		return nil, rdma.ErrNotSupported
	}
	if a&rdma.RemoteWrite != 0 {
		d.r.note("register for %d", d.n)
	}
	return d.Domain.Register(mem, a)
}

func (d *tracedDomain) Close() error {
	err := d.Domain.Close()
	d.r.note("key of %d ends", d.n)
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	return errors.Join(err, d.r.used)
}

type tracedConn struct {
	rdma.Conn
	r    *tracer
	n    int
	once sync.Once
}

func (c *tracedConn) Caps() rdma.Caps {
	c.r.mu.Lock()
	asked, disorderly := c.r.caps, c.r.disorderly[c.n]
	c.r.mu.Unlock()
	if asked != nil {
		asked(c.n)
	}
	caps := c.Conn.Caps()
	caps.OrderedPlacement = !disorderly
	return caps
}

func (c *tracedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.r.note("destroy %d", c.n) })
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	return errors.Join(err, c.r.stays[c.n])
}

func (c *tracedConn) Post(wrs []rdma.WorkRequest) (int, error) {
	for _, wr := range wrs {
		msg := wr.Inline
		if msg == nil {
			msg = wr.Local.Region.Mem[wr.Local.Off:][:wr.Local.Len]
		}
		if t, err := wire.TypeOf(msg); err == nil {
			c.r.note("%v to %d", t, c.n)
		}
	}
	return c.Conn.Post(wrs)
}

// A tracedSite serves a region of class pmem with method flush, so the target flushes
// zeroes as they arrive.
type tracedSite struct {
	*site
	trace *tracer
	began chan struct{} // gets one for each flush that finds hold set
	mu    sync.Mutex
	hold  chan struct{} // a flush waits until it is closed
}

func newTracedSite(t *testing.T, cfg Config) *tracedSite {
	dir := testhost.Memory(t)
	path := filepath.Join(dir, "region")
	s := &tracedSite{began: make(chan struct{}, 16)}
	cfg.Log = logtest.New(t)
	p := rdmafake.New(rdmafake.Config{PersistentFlush: true})
	l, err := p.Listen(context.Background(), "")
	require.NoError(t, err)
	s.trace = &tracer{Listener: l}
	epoch, record := uint64(1), persist.Record{}
	m := regiontest.Medium{
		PMem: region.DomainMemory,
		Data: func(_, _ uint64) {
			s.mu.Lock()
			hold := s.hold
			s.mu.Unlock()
			if hold != nil {
				s.began <- struct{}{}
				<-hold
				s.trace.note("the zero ends")
			}
		},
		Header: func(_, _ uint64) {
			info, err := region.Inspect(path)
			if err == nil && info.Superblock.Epoch != epoch {
				epoch = info.Superblock.Epoch
				s.trace.note("persist")
			}
			if err == nil && info.Superblock.Record != record {
				record = info.Superblock.Record
				s.trace.note("persist record")
			}
		},
	}
	r, err := region.Open(path, region.OpenOptions{Name: "log", CreateSize: size, AllowVolatile: true, Wrap: m.Wrap})
	require.NoError(t, err)
	s.site = &site{p: p, region: r, path: path, server: New(cfg, []*region.Region{r}), addr: l.Addr()}
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(s.trace) }()
	t.Cleanup(func() {
		require.NoError(t, s.server.Close())
		require.NoError(t, <-served)
		require.NoError(t, r.Close())
	})
	return s
}

// pause makes flushes of data wait until resume is called.
func (s *tracedSite) pause() (resume func()) {
	hold := make(chan struct{})
	s.mu.Lock()
	s.hold = hold
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.hold = nil
		s.mu.Unlock()
		close(hold)
	})
}

// TestGrantOrder checks the order of design §5 while the largest zero of the old session
// is still being stored.
func TestGrantOrder(t *testing.T) {
	s := newTracedSite(t, Config{})
	old := s.connect(t) // connection 0
	o := old.open(alice)
	lane, err := s.connectLane(t, o, 1, nil) // connection 1
	require.NoError(t, err)
	var joined wire.Joined
	lane.send(signed(&o.Token, &wire.Join{Epoch: o.Epoch, Lane: 1}))
	require.NoError(t, lane.decode(&joined))
	resume := s.pause()
	defer resume()
	lane.send((&wire.Zero{Seq: 1, Len: wire.MaxZero}).Append(nil))
	<-s.began

	p, busy := s.connect(t), s.connect(t) // connections 2 and 3
	next := alice
	next.Nonce[0]++
	s.trace.reset()
	t.Run("it checks the lease before it destroys anything", func(t *testing.T) {
		require.Equal(t, wire.CodeBusy, p.refused(bob, o.Epoch).Code)
		require.Equal(t, []string{"REFUSED to 2"}, s.trace.reset())
	})
	t.Run("it checks the epoch before it destroys anything", func(t *testing.T) {
		require.Equal(t, wire.CodeEpoch, p.refused(next, o.Epoch-1).Code)
		require.Equal(t, []string{"REFUSED to 2"}, s.trace.reset())
	})
	p.send((&wire.Open{Methods: everyMethod, Owner: next, Epoch: o.Epoch, Region: "log"}).Append(nil))
	s.trace.wait(t, "destroy 0")
	s.trace.wait(t, "destroy 1")
	t.Run("the target is busy while it joins", func(t *testing.T) {
		require.Equal(t, wire.CodeBusy, busy.refused(next, o.Epoch).Code)
	})
	t.Run("it grants nothing while a zero is being stored", func(t *testing.T) {
		require.ElementsMatch(t, []string{"destroy 0", "destroy 1", "REFUSED to 3"}, s.trace.events)
		require.Equal(t, o.Epoch, s.region.Superblock().Epoch)
	})
	resume()
	var n wire.Opened
	require.NoError(t, p.decode(&n))
	events := s.trace.reset()
	for _, c := range []struct{ name, before, after string }{
		{"lane 0 is destroyed before its key ends", "destroy 0", "key of 0 ends"},
		{"lane 1 is destroyed before the key ends", "destroy 1", "key of 0 ends"},
		{"the zero ends before the key", "the zero ends", "key of 0 ends"},
		{"the zero ends before the grant is persisted", "the zero ends", "persist"},
		{"the old key ends before the grant is persisted", "key of 0 ends", "persist"},
		{"the grant is persisted before a key is made", "persist", "register for 2"},
		{"the key is made before the reply", "register for 2", "OPENED to 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, after := slices.Index(events, c.before), slices.Index(events, c.after)
			require.NotEqual(t, -1, before, "%q", events)
			require.Less(t, before, after, "%q", events)
		})
	}
	t.Run("a fresh key, in a domain of its own", func(t *testing.T) {
		require.NotEqual(t, o.Key, n.Key)
		require.NoError(t, p.write(n, 1, 0, []byte("new")))
		require.Error(t, busy.write(n, 1, 0, []byte("not theirs")))
		require.Error(t, p.write(o, 2, 0, []byte("the old key")))
	})
}

// What an old queue pair still places would overwrite the next owner's data. So nobody
// gets the region while one exists.
func TestQueuePairThatStays(t *testing.T) {
	for name, lane := range map[string]int{"of lane 0": 0, "of another lane": 1} {
		t.Run(name, func(t *testing.T) {
			s := newTracedSite(t, Config{})
			old := s.connect(t)
			o := old.open(alice)
			join, err := s.connectLane(t, o, 1, nil)
			require.NoError(t, err)
			var joined wire.Joined
			join.send(signed(&o.Token, &wire.Join{Epoch: o.Epoch, Lane: 1}))
			require.NoError(t, join.decode(&joined))
			s.trace.stay(lane, unix.EBUSY)
			require.NoError(t, old.conn.Close())
			require.NoError(t, join.conn.Close())
			for range 2 {
				r := s.connect(t).refused(alice, o.Epoch)
				require.Equal(t, wire.CodeBusy, r.Code)
				require.Contains(t, r.Text, "restart pmnbd-target: "+unix.EBUSY.Error())
				s.connect(t).ask(&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log"}, &r)
				require.Equal(t, wire.CodeBusy, r.Code)
			}
			require.Equal(t, o.Epoch, s.region.Superblock().Epoch)
			s.trace.stay(lane, nil)
		})
	}
	t.Run("known only by its protection domain", func(t *testing.T) {
		s := newTracedSite(t, Config{})
		old := s.connect(t)
		o := old.open(alice)
		s.trace.mu.Lock()
		s.trace.used = unix.EBUSY
		s.trace.mu.Unlock()
		require.NoError(t, old.conn.Close())
		require.Equal(t, wire.CodeBusy, s.connect(t).refused(alice, o.Epoch).Code)
	})
	t.Run("when the owner closes its session", func(t *testing.T) {
		s := newTracedSite(t, Config{})
		old := s.connect(t)
		o := old.open(alice)
		_, err := s.connectLane(t, o, 1, nil)
		require.NoError(t, err)
		s.trace.stay(1, unix.EBUSY)
		old.send((&wire.Close{Epoch: o.Epoch}).Append(nil))
		require.Error(t, old.decode(&wire.Closed{}))
		require.False(t, s.region.Superblock().Clean)
		require.Equal(t, wire.CodeBusy, s.connect(t).refused(alice, o.Epoch).Code)
	})
}

// Two OPENs of the same epoch pass the first check together. One is granted. The other is
// refused under the lock, before it destroys anything.
func TestGrantLooksAgainUnderTheLock(t *testing.T) {
	for name, flags := range map[string]wire.OpenFlags{"OPEN": 0, "takeover": wire.OpenTakeover} {
		t.Run(name, func(t *testing.T) {
			s := newTracedSite(t, Config{})
			late, p := s.connect(t), s.connect(t) // connections 0 and 1
			looked, proceed := make(chan struct{}), make(chan struct{})
			once := sync.OnceFunc(func() { close(looked); <-proceed })
			s.trace.mu.Lock()
			s.trace.caps = func(conn int) {
				if conn == 0 {
					once()
				}
			}
			s.trace.mu.Unlock()
			late.send((&wire.Open{Methods: everyMethod, Owner: bob, Epoch: 1, Flags: flags, Region: "log"}).Append(nil))
			<-looked
			o := p.open(alice)
			s.trace.reset()
			close(proceed)
			var r wire.Refused
			require.NoError(t, late.decode(&r))
			if flags == 0 {
				require.Equal(t, wire.CodeBusy, r.Code)
			} else {
				require.Equal(t, wire.CodeEpoch, r.Code)
			}
			require.Equal(t, []string{"REFUSED to 0"}, s.trace.reset())
			require.NoError(t, p.write(o, 1, 0, []byte("fine")))
		})
	}
}

// A takeover ends the lease of another id, only in the persisted epoch, and the former
// owner can never resume.
func TestTakeover(t *testing.T) {
	takeover := func(p *peer, epoch uint64, answer message) {
		p.ask(&wire.Open{Methods: everyMethod, Owner: bob, Epoch: epoch, Region: "log", Flags: wire.OpenTakeover | wire.OpenAllowVolatile}, answer)
	}
	t.Run("of a live session", func(t *testing.T) {
		s := newSite(t)
		old := s.connect(t)
		o := old.open(alice)
		p := s.connect(t)
		var r wire.Refused
		for _, epoch := range []uint64{0, o.Epoch - 1, o.Epoch + 1} {
			takeover(p, epoch, &r)
			require.Equal(t, wire.CodeEpoch, r.Code)
			require.Equal(t, o.Epoch, r.Epoch)
			require.Equal(t, alice.ID, r.Holder, "the owner that is about to lose it")
			require.NotZero(t, r.Seconds)
		}
		require.NoError(t, old.write(o, 1, 0, []byte("still hers")))
		var n wire.Opened
		takeover(p, o.Epoch, &n)
		require.Equal(t, o.Epoch+1, n.Epoch)
		require.Equal(t, wire.OpenedUnclean|wire.OpenedDoubt, n.Flags)
		require.Error(t, old.write(o, 2, 0, []byte("not any more")))

		back := s.connect(t)
		for _, epoch := range []uint64{o.Epoch, n.Epoch} {
			back.ask(&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: epoch, Region: "log"}, &r)
			require.Equal(t, wire.CodeNotOwner, r.Code)
		}
		require.NoError(t, p.write(n, 1, 0, []byte("his")))
		var closed wire.Closed
		p.ask(&wire.Close{Epoch: n.Epoch}, &closed)
		back.ask(&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log"}, &r)
		require.Equal(t, wire.CodeNotOwner, r.Code, "not after bob has closed either")
	})
	t.Run("in the grace after a start", func(t *testing.T) {
		path := onDisk(t)
		s := serveRegion(t, path, nil, Config{})
		o := s.connect(t).open(alice)
		s.stop()
		s = serveRegion(t, path, nil, Config{})
		p := s.connect(t)
		require.Equal(t, wire.CodeBusy, p.refused(bob, 0).Code)
		var n wire.Opened
		takeover(p, o.Epoch, &n)
		require.Equal(t, o.Epoch+1, n.Epoch)
	})
	t.Run("not by an initiator that is not allowed", func(t *testing.T) {
		s := serveRegion(t, onDisk(t), nil, Config{Allow: map[string][][16]byte{"log": {alice.ID}}})
		old := s.connect(t)
		o := old.open(alice)
		var r wire.Refused
		takeover(s.connect(t), o.Epoch, &r)
		require.Equal(t, wire.CodeNotAllowed, r.Code)
		require.NoError(t, old.write(o, 1, 0, []byte("hers")))
	})
	t.Run("not of a failed region", func(t *testing.T) {
		s := newSite(t)
		o := s.connect(t).open(alice)
		_ = s.region.Fail(os.ErrDeadlineExceeded)
		var r wire.Refused
		takeover(s.connect(t), o.Epoch, &r)
		require.Equal(t, wire.CodeFailed, r.Code)
	})
}
