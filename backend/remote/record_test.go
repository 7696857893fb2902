package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

var asPMem = regiontest.ADR

// If somebody creates a region again between two runs, or the name leads to another one, a start
// does not serve it silently while the old region's window may hold something.
func TestAnotherRegionBetweenRuns(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(h *host)
		why    string // the loss; "" if there is none
	}{
		{"nothing", func(*host) {}, ""},
		{"a kill", killedDirty, "is live"},
		{"a clean end", closed, "is of a clean end"},
		{"a device that failed", failed, "is failed: the target could not make barrier"},
		{"a kill, and the header damaged", func(h *host) {
			killed(h)
			h.scribble(func(half []byte) { half[headerPrefix] ^= 1 })
		}, "is damaged"},
		{"a clean end, and a start that was killed before OPEN", func(h *host) {
			closed(h)
			h.rewrite(unsent)
		}, "is of a clean end"},
		{"a start that was killed before OPEN", func(h *host) {
			killed(h)
			h.rewrite(func(hd *header) { hd.Opened, hd.ContentsID = 0, [16]byte{} })
		}, ""},
		{"a kill, and a boot since", func(h *host) {
			killed(h)
			records, err := filepath.Glob(filepath.Join(h.cfg.WindowDir, "*.region"))
			require.NoError(h.t, err)
			require.Len(h.t, records, 1)
			r := record{uuid.New(), h.region.UUID()}
			require.NoError(h.t, os.WriteFile(records[0], []byte(r.String()), 0o600))
			h.boot()
		}, ""},
		{"a record that cannot be read", func(h *host) {
			closed(h)
			records, err := filepath.Glob(filepath.Join(h.cfg.WindowDir, "*.region"))
			require.NoError(h.t, err)
			require.NoError(h.t, os.Truncate(records[0], 3))
		}, "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			tt.before(h)
			old := h.region.UUID()
			h.stop()
			h.start(inMemory(t), asPMem)
			if tt.why != "" {
				for range 2 { // a second start finds the same
					h.refused(tt.why)
				}
				_, err := Dial(context.Background(), h.cfg)
				if tt.why != "cannot be read" {
					require.ErrorContains(t, err, uuid.UUID(old).String())
					require.ErrorContains(t, err, uuid.UUID(h.region.UUID()).String())
					require.ErrorContains(t, err, h.cfg.WindowDir)
				}
				h.cfg.AcceptLoss = true
			}
			d, _ := h.run()
			if tt.why != "cannot be read" && tt.name != "a kill, and a boot since" {
				require.Contains(t, h.file(), uuid.UUID(h.region.UUID()).String(), "the old window is gone")
			}
			require.NoError(t, d.Close())
			h.cfg.AcceptLoss = false
			d, _ = h.run()
			require.NoError(t, d.Close())
		})
	}
}

// When the right region is there again, a start finds what the previous run left.
func TestRegionComesBackBetweenRuns(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	h.provider.Pause()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	h.kill(d)
	h.provider.Resume()
	h.stop()
	h.start(inMemory(t), asPMem)
	h.refused("is live")
	h.stop()
	h.start(h.path, asPMem)
	d, c = h.run()
	r := c.Read(0, block, 0)
	require.NoError(t, c.Do(r))
	require.Equal(t, backendtest.Pattern(block, 1), r.Got)
	require.NoError(t, d.Close())
}

// A region is the same under another spelling of its address, and so is its window.
func TestAddressesHaveRecordsOfTheirOwn(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	h.provider.Pause()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	h.kill(d)
	h.provider.Resume()
	h.cfg.Provider, h.cfg.Addr = spelled{h.provider}, "TARGET"
	d, c = h.run()
	r := c.Read(0, block, 0)
	require.NoError(t, c.Do(r))
	require.Equal(t, backendtest.Pattern(block, 1), r.Got)
	require.NoError(t, d.Close())
	h.cfg.Provider, h.cfg.Addr = h.provider, "target"
	d, _ = h.run()
	require.NoError(t, d.Close())
}

// spelled is a provider that knows its target's address in any spelling.
type spelled struct{ rdma.Provider }

func (s spelled) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	d, err := s.Provider.OpenDomain(ctx, addr)
	return spelledDomain{d}, err
}

type spelledDomain struct{ rdma.Domain }

func (d spelledDomain) Dial(ctx context.Context, _ string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	return d.Domain.Dial(ctx, "target", cfg, recvs)
}

// A target that names a new region at each start, and refuses it, cannot fill this host with files. Nor
// can one that hangs until the process is killed.
func TestRefusedStartsLeaveNothing(t *testing.T) {
	h := newHost(t)
	h.cfg.Method = persist.MethodAPM // which is not sound there
	files := func() (windows, state []string) {
		windows, err := filepath.Glob(filepath.Join(h.cfg.WindowDir, "*"))
		require.NoError(t, err)
		state, err = filepath.Glob(filepath.Join(h.cfg.StateDir, "*"))
		require.NoError(t, err)
		return windows, state
	}
	for range 3 {
		h.stop()
		h.start(inMemory(t), asPMem)
		_, err := Dial(context.Background(), h.cfg)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		windows, state := files()
		require.Empty(t, windows)
		require.Empty(t, state)
	}
	h.cfg.Method = 0
	for range 3 {
		h.stop()
		h.start(inMemory(t), asPMem)
		d, _ := h.run()
		h.kill(d)
		h.rewrite(func(hd *header) { hd.Opened, hd.ContentsID = 0, [16]byte{} })
		windows, _ := files()
		require.Len(t, windows, 2, "a window and a record")
	}
}

// An OPEN may have been granted though its answer never came. So the window's header stays for
// the next start. The window's memory does not.
func TestUnansweredOpenKeepsItsHeader(t *testing.T) {
	h := newHost(t)
	ctx, stop := context.WithCancel(context.Background())
	h.cfg.Provider = wrapped{h.provider, func(c rdma.Conn) rdma.Conn { return deaf{c, h, stop} }}
	_, err := Dial(ctx, h.cfg)
	require.ErrorIs(t, err, context.Canceled)
	info, err := os.Stat(h.file())
	require.NoError(t, err)
	require.EqualValues(t, headerPage, info.Size())
	require.False(t, h.region.Superblock().Clean, "it was granted")
	h.cfg.Provider = h.provider
	d, _ := h.run()
	require.False(t, d.Snapshot().Unclean)
	require.NoError(t, d.Close())
}

// A deaf connection ends once the target has granted the region, before the initiator hears of it.
type deaf struct {
	rdma.Conn
	h    *host
	stop func()
}

func (c deaf) Poll(cs []rdma.Completion) (int, error) {
	n, err := c.Conn.Poll(cs)
	for _, done := range cs[:n] {
		if done.Op == rdma.OpRecv && !c.h.region.Superblock().Clean && c.h.region.Superblock().Owner != (persist.Owner{}) {
			c.stop()
			_ = c.Close()
			return 0, rdma.ErrLost
		}
	}
	return n, err
}

// A target persists the owner before it registers the region with its RDMA device. If that fails the start is refused, and
// its owner has the region all the same. The next start is that owner, and none of the starts loses anything.
func TestHeldInVain(t *testing.T) {
	for _, had := range []bool{false, true} {
		network := &tight{Provider: rdmafake.New(rdmafake.Config{})}
		p := newPair(t, network, "", "", target.Config{})
		cfg := p.config(t)
		cfg.WindowDir, cfg.LossTimeout = inMemory(t), 0
		h := &host{&farm{t: t, region: p.region}, cfg}
		if had {
			closed(h)
		}
		for range 2 {
			network.full.Store(true)
			_, err := Dial(t.Context(), h.cfg)
			require.ErrorContains(t, err, "register the region: "+errFull.Error())
			require.NotErrorAs(t, err, new(*LossError))
			require.False(t, p.region.Superblock().Clean)
		}
		network.full.Store(false)
		d, _ := h.run()
		require.False(t, d.Snapshot().Unclean, "nobody can have read what is not durable")
		require.NoError(t, d.Close())
	}
}

// A life whose mirror does without such a member tries again, and says what is wrong there each time: not that another life
// has opened it, because that was this one. When the target can register the region the member comes in.
func TestMemberHeldInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &tight{Provider: rdmafake.New(rdmafake.Config{})}
		s := pairs{fake(t, rdmafake.Config{}), fake(t, rdmafake.Config{}), newPair(t, network, "", "", target.Config{})}
		s.join(t, 2)
		network.full.Store(true)
		d, c := s.dialWritten(t, s.config(t))
		require.Equal(t, persist.Members(3), s.record(0).F)
		time.Sleep(ages)
		d.core.commit.mu.Lock()
		cause := d.legs[2].lostBy
		d.core.commit.mu.Unlock()
		require.ErrorContains(t, cause, "register the region: "+errFull.Error())
		network.full.Store(false)
		time.Sleep(ages)
		require.Equal(t, persist.Members(7), s.record(0).F)
		backendtest.AllBack(t, d)
		require.NoError(t, c.Do(c.Flush()))
		require.NoError(t, d.Close())
	})
}

// A tight network has targets whose RDMA device registers no region while full is set.
type tight struct {
	rdma.Provider
	full atomic.Bool
}

var errFull = errors.New("the device has no room for it")

func (p *tight) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	l, err := p.Provider.Listen(ctx, addr)
	return tightListener{l, p}, err
}

type tightListener struct {
	rdma.Listener
	p *tight
}

func (l tightListener) Accept() (rdma.Request, error) {
	r, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tightRequest{r, l.p}, nil
}

type tightRequest struct {
	rdma.Request
	p *tight
}

func (r tightRequest) OpenDomain() (rdma.Domain, error) {
	d, err := r.Request.OpenDomain()
	return tightDomain{d, r.p}, err
}

func (r tightRequest) Accept(d rdma.Domain, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	return r.Request.Accept(d.(tightDomain).Domain, cfg, recvs)
}

type tightDomain struct {
	rdma.Domain
	p *tight
}

func (d tightDomain) Register(mem []byte, a rdma.Access) (*rdma.MemoryRegion, error) {
	if d.p.full.Load() && a&rdma.RemoteWrite != 0 {
		return nil, errFull
	}
	return d.Domain.Register(mem, a)
}

// A start that looks for the window in another directory says so. It does not take itself for
// somebody else.
func TestWindowInAnotherDirectory(t *testing.T) {
	h := newHost(t)
	d, _ := h.run()
	require.NoError(t, d.Close())
	here := h.cfg.WindowDir
	h.cfg.WindowDir = inMemory(t)
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	require.NoError(t, d.Close())
	there := h.cfg.WindowDir
	h.cfg.WindowDir = here
	h.refused("in directory " + there + ", and this start looks in " + here)
	h.cfg.WindowDir = there
	d, _ = h.run()
	h.kill(d)
	h.cfg.WindowDir = here
	h.refused("in directory " + there)
	h.cfg.WindowDir = inMemory(t)
	h.refused("in directory " + there)
	h.cfg.WindowDir = there
	d, _ = h.run()
	require.NoError(t, d.Close())
}
