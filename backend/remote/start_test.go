package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A cutter is a provider that cuts one connection of the initiator at one event of all that
// there are: a connection that is made, a message that leaves or that left, one that arrives.
type cutter struct {
	rdma.Provider
	mu   sync.Mutex
	at   map[int]bool // the events of the cuts
	seen int
}

// cuts tells whether the next event is one.
func (c *cutter) cuts() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen++
	return c.at[c.seen]
}

func (c *cutter) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	d, err := c.Provider.OpenDomain(ctx, addr)
	return cutDomain{d, c}, err
}

type cutDomain struct {
	rdma.Domain
	c *cutter
}

func (d cutDomain) Dial(ctx context.Context, addr string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	conn, err := d.Domain.Dial(ctx, addr, cfg, recvs)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, c: d.c}, nil
}

type cutConn struct {
	rdma.Conn
	c *cutter
}

func (c *cutConn) cut() error {
	_ = c.Close()
	return fmt.Errorf("cut by the test: %w", rdma.ErrLost)
}

func (c *cutConn) Post(wrs []rdma.WorkRequest) (int, error) {
	if c.c.cuts() {
		return 0, c.cut()
	}
	n, err := c.Conn.Post(wrs)
	if err == nil && c.c.cuts() {
		return 0, c.cut()
	}
	return n, err
}

func (c *cutConn) Poll(cs []rdma.Completion) (int, error) {
	n, err := c.Conn.Poll(cs)
	for _, done := range cs[:n] {
		if done.Op == rdma.OpRecv && c.c.cuts() {
			return 0, c.cut()
		}
	}
	return n, err
}

// A startCase is a start of which every step is cut once.
type startCase struct {
	name          string
	keys, windows bool
	before        func(h *host) // the previous run
}

// start has a run start that is cut at these events, and returns how many there were.
func (tt *startCase) start(t *testing.T, at ...int) (events int) {
	h := newHost(t)
	if tt.keys {
		h.stop()
		h.keys = target.Keys{h.cfg.ID: {secretKey}}
		h.cfg.Target, h.cfg.Key = targetName, func(string) []byte { return secretKey }
		h.start(h.path, regiontest.ADR)
	}
	if !tt.windows {
		h.cfg.WindowDir = ""
	}
	h.cfg.Lanes = 2
	if tt.before != nil {
		tt.before(h)
	}
	cut := &cutter{Provider: h.provider, at: make(map[int]bool)}
	for _, n := range at {
		cut.at[n] = true
	}
	h.cfg.Provider = cut
	d, err := Dial(context.Background(), h.cfg)
	require.NoError(t, err)
	cut.mu.Lock()
	events = cut.seen
	clear(cut.at)
	cut.mu.Unlock()
	require.False(t, d.Snapshot().Unclean, "the start takes itself for somebody else")
	require.False(t, h.region.Superblock().Doubt)
	c := backendtest.NewClient(t, d)
	if tt.before != nil {
		r := c.Read(0, block, 0)
		require.NoError(t, c.Do(r))
		require.Equal(t, backendtest.Pattern(block, 1), r.Got)
	}
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	require.NoError(t, d.Close())
	require.Equal(t, backendtest.Pattern(block, 2), h.region.Data()[:block])
	h.cfg.Provider = h.provider
	d, err = Dial(context.Background(), h.cfg)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	return events
}

// A start that loses its connection tries again, wherever it was: with and without a key or
// a window file, on several lanes, and while it adopts what a run before left. Nothing that
// was acknowledged is lost, nobody is accused of having had the region, and no doubt is set.
func TestStartIsCut(t *testing.T) {
	for _, tt := range []startCase{
		{"no window", false, false, nil},
		{"keys", true, false, nil},
		{"window", false, true, nil},
		{"window and keys", true, true, nil},
		{"after a clean end", false, true, func(h *host) {
			d, c := h.run()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			require.NoError(h.t, d.Close())
		}},
		{"after a kill", true, true, func(h *host) {
			d, c := h.run()
			h.provider.Pause()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			h.kill(d)
			h.provider.Resume()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cut := func(at ...int) (reached bool) {
				t.Run(fmt.Sprint("at ", at), func(t *testing.T) { reached = tt.start(t, at...) >= at[0] })
				return reached
			}
			for at := 1; cut(at); at++ {
			}
			for at := 2; cut(at, at+3, at+7); at += 3 { // and again, when it comes back
			}
		})
	}
}

// Where no target answers at all the start fails at once: the address may be wrong.
func TestStartWithoutATarget(t *testing.T) {
	p := &pair{provider: rdmafake.New(rdmafake.Config{}), addr: "nowhere", stateDir: t.TempDir()}
	_, err := Dial(context.Background(), p.config(t))
	require.ErrorIs(t, err, rdma.ErrLost)
	require.ErrorContains(t, err, "is pmnbd-target serving there?")
}

// A busy host may take longer than the first attempt may. Two attempts without an answer end the
// start: the address may be wrong.
func TestStartOnABusyHost(t *testing.T) {
	for name, silent := range map[string]int{"the first attempt": 1, "both": 2} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			s := &silence{h.provider, silent}
			h.cfg.Provider = s
			d, err := Dial(context.Background(), h.cfg)
			if silent > 1 {
				require.ErrorIs(t, err, rdma.ErrTimeout)
				require.Zero(t, s.left)
				return
			}
			require.NoError(t, err)
			require.NoError(t, d.Close())
		})
	}
}

// A silence is a network on which the first connections get no answer.
type silence struct {
	*rdmafake.Provider
	left int
}

func (s *silence) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	if s.left > 0 {
		s.left--
		return nil, fmt.Errorf("connect to %s: %w", addr, rdma.ErrTimeout)
	}
	return s.Provider.OpenDomain(ctx, addr)
}

// A start ends with its context, while the target that it lost stays away.
func TestStartIsGivenUp(t *testing.T) {
	h := newHost(t)
	ctx, stop := context.WithCancel(context.Background())
	gone := sync.OnceFunc(h.provider.Down)
	tries := 0
	h.cfg.Provider = &attempts{h.provider, func() {
		if tries++; tries == 4 {
			stop()
		}
	}}
	h.cfg.Provider = wrapped{h.cfg.Provider, func(c rdma.Conn) rdma.Conn { gone(); return c }}
	_, err := Dial(ctx, h.cfg)
	require.ErrorIs(t, err, rdma.ErrLost)
	require.Equal(t, 4, tries)
	var loss *LossError
	require.False(t, errors.As(err, &loss))
}

// While the target grants the region to somebody it says that it is busy: that passes.
func TestStartDuringAGrant(t *testing.T) {
	g := &leg{}
	for _, tt := range []struct {
		name string
		err  error
		met  bool
		want bool
	}{
		{"a grant is under way", &RefusedError{said: wire.Refused{Code: wire.CodeBusy}}, true, true},
		{"held by another", &RefusedError{said: wire.Refused{Code: wire.CodeBusy, Holder: [16]byte{7}}}, true, false},
		{"failed", &RefusedError{said: wire.Refused{Code: wire.CodeFailed}}, true, false},
		{"nobody was there ever", rdma.ErrLost, false, false},
		{"nobody is there any more", rdma.ErrLost, true, true},
		{"no answer", rdma.ErrTimeout, true, true},
		{"no answer ever", rdma.ErrTimeout, false, false},
		{"a connection refused", &rdma.RejectError{}, true, true},
		{"no proof", ErrNoProof, true, false},
		{"a loss", loss("all"), true, false},
		{"nonsense", wire.ErrMalformed, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g.opening.met = tt.met
			require.Equal(t, tt.want, g.passes(1, fmt.Errorf("try: %w", tt.err)))
		})
	}
}
