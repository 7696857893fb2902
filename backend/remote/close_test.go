package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// An attempts is a provider that tells of each attempt to connect anew.
type attempts struct {
	*rdmafake.Provider
	began func()
}

func (a *attempts) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	a.began()
	return a.Provider.OpenDomain(ctx, addr)
}

// A session that is lost while the device closes is given back, even if the target is
// still busy with the keeper's last RESUME.
func TestCloseAsksAgain(t *testing.T) {
	var hold atomic.Bool
	var tries atomic.Int64
	began, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	network := &attempts{rdmafake.New(rdmafake.Config{}), func() {
		if tries.Add(1) == 4 { // Dial, the keeper, once while the target is busy
			release()
		}
	}}
	p := newPairOn(t, network, "", inMemory(t), target.Config{}, regiontest.Medium{
		PMem: region.DomainMemory, Data: regiontest.Discard, Header: func(_, _ uint64) {
			if hold.Swap(false) {
				close(began)
				<-released
			}
		},
	})
	t.Cleanup(release)
	d := p.dialPatient(t, 1)
	hold.Store(true)
	network.Cut()
	<-began
	require.NoError(t, d.leave(t.Context(), true))
	require.NoError(t, d.release())
	require.True(t, p.region.Superblock().Clean)
	require.GreaterOrEqual(t, tries.Load(), int64(4))
}

// A CLOSE that was carried out is one, even if its answer was lost.
func TestCloseIsNotAnswered(t *testing.T) {
	var steps atomic.Int64 // that updates of the superblock have left
	network := rdmafake.New(rdmafake.Config{})
	p := newPairOn(t, network, "", inMemory(t), target.Config{}, regiontest.Medium{
		PMem: region.DomainMemory, Data: regiontest.Discard, Header: func(_, _ uint64) {
			if steps.Add(-1) == 0 {
				network.Cut()
			}
		},
	})
	d := p.dialPatient(t, 2)
	steps.Store(3)
	require.NoError(t, d.Close())
	require.LessOrEqual(t, steps.Load(), int64(0))
	require.True(t, p.region.Superblock().Clean)
}

// Of what the target says to a RESUME after CLOSE, only this means that it heard it.
func TestGivenBack(t *testing.T) {
	g := &leg{granted: wire.Opened{Epoch: 5}}
	for _, tt := range []struct {
		name string
		says wire.Refused
		want bool
	}{
		{"clean, in our epoch", wire.Refused{Code: wire.CodeNotOwner, Epoch: 5}, true},
		{"clean, in another epoch", wire.Refused{Code: wire.CodeNotOwner, Epoch: 6}, false},
		{"not clean", wire.Refused{Code: wire.CodeNotOwner, Epoch: 5, Flags: wire.OpenedUnclean}, false},
		{"failed", wire.Refused{Code: wire.CodeFailed, Epoch: 5}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, g.givenBack(g.refusal(&tt.says)))
		})
	}
	require.False(t, g.givenBack(nil))
	require.False(t, g.givenBack(rdma.ErrLost))
}

// A connection that was cut may hold chunks for a moment after all that it asked for is
// answered: their memory is there until it has given them back.
func TestCloseWaitsForChunks(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	held, ok := d.Arenas().Read.TryGet(nil, 1)
	require.True(t, ok)
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	require.Eventually(t, d.Arenas().Read.Waiting, patience, tick)
	held[0].Bytes()[0] = 1
	held[0].Release()
	require.NoError(t, <-closed)
}

// A device whose target is away waits for it only if something depends on that.
func TestCloseWithTheTargetAway(t *testing.T) {
	for _, tt := range []struct {
		name string
		ask  func(c *backendtest.Client) []*backendtest.Request // before Close; READs and FLUSHes of those who left
		lost bool                                               // only in Close
	}{
		{"before", func(*backendtest.Client) []*backendtest.Request { return nil }, false},
		{"with a READ", func(c *backendtest.Client) []*backendtest.Request {
			return []*backendtest.Request{c.Read(0, block, 0), c.Flush()}
		}, false},
		{"since, with a READ", func(c *backendtest.Client) []*backendtest.Request {
			return []*backendtest.Request{c.Read(0, block, 0)}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			d, c := h.run()
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			var asked []*backendtest.Request
			closed := make(chan error, 1)
			if tt.lost {
				h.provider.Pause()
				asked = tt.ask(c)
				c.Submit(asked...)
				go func() { closed <- d.Close() }()
				require.Eventually(t, func() bool { return d.core.life.refusal() != nil }, patience, tick)
				h.stop()
				h.provider.Resume()
			} else {
				h.stop()
				require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
				asked = tt.ask(c)
				c.Submit(asked...)
				go func() { closed <- d.Close() }()
			}
			require.ErrorIs(t, <-closed, ErrAway)
			for _, r := range asked {
				require.ErrorIs(t, c.Wait(r), backend.ErrClosed)
			}
			h.start(h.path, asPMem)
			d, c = h.run()
			require.False(t, d.Snapshot().Unclean)
			r := c.Read(0, block, 0)
			require.NoError(t, c.Do(r))
			require.Equal(t, backendtest.Pattern(block, 1), r.Got)
			require.NoError(t, d.Close())
		})
	}
}

// What no FLUSH covered is waited for.
func TestCloseWaitsForTheTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		d, c := h.run()
		h.provider.Pause()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
		h.stop()
		h.provider.Resume()
		require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
		closed := make(chan error, 1)
		go func() { closed <- d.Close() }()
		time.Sleep(10 * departAfter)
		synctest.Wait()
		require.Empty(t, closed, "longer than for a target that nothing depends on")
		h.start(h.path, asPMem)
		require.NoError(t, <-closed)
		require.Equal(t, backendtest.Pattern(block, 1), h.region.Data()[:block])
	})
}

// A device that fails for good while READs keep Close waiting has flushed everything, and has failed all the same: the
// next start must find that.
func TestCloseOfADeviceThatFails(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	h.provider.Pause()
	read := c.Read(0, block, 0)
	c.Submit(read)
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	require.Eventually(t, func() bool { return d.core.life.refusal() != nil }, patience, tick)
	d.legs[0].lanes[0].abort(&lastingError{errors.New("for a test")})
	h.provider.Resume()
	err := <-closed
	require.ErrorContains(t, err, "for a test")
	require.NotContains(t, err.Error(), "nothing is lost")
	require.Error(t, c.Wait(read))
	h.refused("the device failed in the previous run")
}

// An interruption that is over soon costs no clean end.
func TestCloseInAnInterruption(t *testing.T) {
	h := newHost(t)
	d, _ := h.run()
	h.provider.Cut()
	require.NoError(t, d.Close())
	require.True(t, h.region.Superblock().Clean)
}

// A target at which every CLOSE breaks the connection, and which grants every RESUME, is
// asked for as long as Close has patience, with a pause before each attempt.
func TestCloseThatAlwaysBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fake(t, rdmafake.Config{})
		var tries atomic.Int64
		p.provider = wrapped{&attempts{p.provider.(*rdmafake.Provider), func() { tries.Add(1) }}, func(c rdma.Conn) rdma.Conn { return closeless{c} }}
		d := p.dialPatient(t, 1)
		began := time.Now()
		err := d.Close()
		require.ErrorIs(t, err, rdma.ErrLost)
		require.ErrorContains(t, err, "give the lease back: ")
		require.ErrorIs(t, err, ErrAway)
		require.Less(t, time.Since(began), closeTimeout+time.Second)
		require.Less(t, tries.Load(), int64(closeTimeout/maxBackoff)*2+10)
	})
}

// What became of the region while it was given back is not called harmless.
func TestCloseFindsAnotherRegion(t *testing.T) {
	for name, change := range map[string]func(*region.Superblock){
		"contents were lost":   func(sb *region.Superblock) { sb.Contents[0]++ },
		"another initiator":    func(sb *region.Superblock) { sb.Epoch++; sb.Owner.ID[0]++ },
		"restored from a copy": func(sb *region.Superblock) { sb.Epoch -= 2 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.cfg.Provider = wrapped{h.cfg.Provider, func(c rdma.Conn) rdma.Conn { return lossy{c, h.region, change} }}
			d, c := h.run()
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			err := d.Close()
			require.ErrorContains(t, err, "give the lease back: ")
			require.NotContains(t, err.Error(), "nothing is lost")
		})
	}
	t.Run("no member has its contents", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := fakesOf(t, 2, 1, rdmafake.Config{})
			cfg := s.config(t)
			for i, p := range s {
				cfg.Members[i].Provider = wrapped{p.provider, func(c rdma.Conn) rdma.Conn {
					return lossy{c, p.region, func(sb *region.Superblock) { sb.Contents[0]++ }}
				}}
			}
			d, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			err = d.Close()
			require.ErrorIs(t, err, errContents)
			require.NotContains(t, err.Error(), "nothing is lost")
		})
	})
}

// lossy is a connection that ends where CLOSE is posted, as its target ends. The region is another one then.
type lossy struct {
	rdma.Conn
	region *region.Region
	change func(*region.Superblock)
}

func (c lossy) Post(wrs []rdma.WorkRequest) (int, error) {
	n, err := closeless{c.Conn}.Post(wrs)
	if err != nil {
		err = errors.Join(err, c.region.Update(func(sb *region.Superblock) error { c.change(sb); return nil }))
	}
	return n, err
}

// These errors of giving the lease back say nothing of what the region has.
func TestSilent(t *testing.T) {
	refused := func(r wire.Refused) error { return &RefusedError{Region: "log", said: r} }
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"not reached", fmt.Errorf("nobody listens: %w", rdma.ErrLost), true},
		{"no answer", fmt.Errorf("RESUME: %w", rdma.ErrTimeout), true},
		{"given up", errStopped, true},
		{"halted for a save", refused(wire.Refused{Code: wire.CodeBusy}), true},
		{"held", refused(wire.Refused{Code: wire.CodeBusy, Holder: [16]byte{1}}), false},
		{"unknown", refused(wire.Refused{Code: wire.CodeUnknownRegion}), false},
		{"for good", &lastingError{rdma.ErrLost}, false},
		{"contents", errContents, false},
		{"another region", new(leg).elsewhere([16]byte{1}), false},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, silent(fmt.Errorf("give the lease back: %w", tt.err))) })
	}
}

// closeless is a connection that ends where CLOSE is posted.
type closeless struct{ rdma.Conn }

func (c closeless) Post(wrs []rdma.WorkRequest) (int, error) {
	for _, wr := range wrs {
		if t, err := wire.TypeOf(wr.Inline); err == nil && t == wire.TypeClose {
			return 0, rdma.ErrLost
		}
	}
	return c.Conn.Post(wrs)
}
