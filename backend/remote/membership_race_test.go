package remote

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A member that comes back while it is removed does not come in: the others would be asked for bits that
// they keep for nobody, and each such question ends their session (mirror §4.9).
func TestRemovedWhileItComesBack(t *testing.T) {
	s := fakesOf(t, 3, 2, rdmafake.Config{})
	network := s.network(2)
	var armed atomic.Bool
	var once sync.Once
	comes, goes := make(chan struct{}), make(chan struct{})
	s.tap(2, func(wr *rdma.WorkRequest) {
		if !armed.Load() || wr.Op != rdma.OpSend || wr.Local.Region == nil {
			return
		}
		if typ, err := wire.TypeOf(wr.Local.Region.Mem[:wr.Local.Len]); err == nil && typ == wire.TypeRecord {
			once.Do(func() {
				close(comes)
				<-goes
			})
		}
	})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	network.Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	armed.Store(true)
	network.Up()
	<-comes
	epoch := s[0].region.Superblock().Epoch
	type answer struct{ told, err error }
	removed := make(chan answer, 1)
	go func() {
		told, err := d.RemoveMember(t.Context(), 2)
		removed <- answer{told, err}
	}()
	require.Eventually(t, func() bool { m := d.Snapshot().Mirror; return m.Members == "AB" && !m.Pending }, patience, tick)
	close(goes)
	require.Equal(t, answer{}, <-removed)
	require.Zero(t, s[2].region.Superblock().Record)
	require.False(t, d.legs[2].up.Load())
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	require.Equal(t, persist.Members(3), d.equal())
	require.NoError(t, d.Close())
	require.Equal(t, epoch, s[0].region.Superblock().Epoch, "its session was lost")
}

// The mirror decides that a member goes on where it was, and gives the member up before its lanes are connected. The
// member must not go on: it lacks writes, and its record does not say so.
func TestGivenUpWhileItComesBack(t *testing.T) {
	for name, tt := range map[string]struct {
		s    func(t *testing.T) pairs
		left func(k *copies, g *leg)
	}{
		"a member in F": {func(t *testing.T) pairs { return fakes(t, 3, rdmafake.Config{}) }, func(k *copies, g *leg) {
			next, err := k.view.LetGo(g.slot, false)
			require.NoError(t, err)
			k.changeLocked(next)
		}},
		"a follower": {func(t *testing.T) pairs { return followed(t, 2, rdmafake.Config{}) }, func(k *copies, g *leg) { k.unfollowLocked(g) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tt.s(t)
				d := s.dialAsync(t, 1, nil)
				c := backendtest.NewClient(t, d)
				g, k := d.legs[2], d.core.copies
				require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
				require.Eventually(t, func() bool { return s.state(d, 2) == LegInSync || s.state(d, 2) == LegFollows }, patience, tick)
				s.network(2).Down()
				synctest.Wait() // its keeper waits for its next attempt
				s.network(2).Up()
				o, conns, err := g.tryResume(t.Context())
				require.NoError(t, err)
				require.NoError(t, k.meet(t.Context(), g, &o, &conns[0]))
				k.core.commit.mu.Lock()
				tt.left(k, g)
				k.core.commit.mu.Unlock()
				_, _, err = g.revive(&o, conns)
				require.ErrorIs(t, err, errGivenUp)
				require.False(t, g.up.Load())
				for _, c := range conns {
					require.NoError(t, c.conn.Close())
				}
				require.Eventually(t, func() bool { return s.state(d, 2) == LegInSync || s.state(d, 2) == LegFollows }, patience, tick)
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}

// The next run forgets the session of the member that was removed, and not that of one that gets its slot while its target
// is told.
func TestForgetsTheSessionOfTheRemoved(t *testing.T) {
	s := fakesOf(t, 3, 1, rdmafake.Config{})
	fresh := pairs{newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{})}
	other := fresh.config(t)
	p, err := PrepareMember(t.Context(), other, uuid.UUID{0xee}, regionSize, false)
	require.NoError(t, err)
	cfg := s.config(t)
	cfg.WindowDir = inMemory(t)
	var removes func()
	cfg.Members[2].Provider = lateProvider{cfg.Members[2].Provider, func() {
		if f := removes; f != nil {
			removes = nil
			f()
		}
	}}
	d, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	removes = func() {
		require.Equal(t, s[2].region.UUID(), d.file.header().Sessions[2].UUID)
		slot, err := d.AddMember(t.Context(), other.Members[0], p)
		require.NoError(t, err)
		require.Equal(t, 2, slot)
		require.Eventually(t, func() bool { return d.equal() == 7 }, patience, tick)
	}
	told, err := d.RemoveMember(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, told)
	require.Equal(t, fresh[0].region.UUID(), d.file.header().Sessions[2].UUID)
	require.NoError(t, d.Close())
}

// A smaller M replaces a change of M that is pending. SetMinCopies of the other M reports that (mirror §4.9).
func TestMinCopiesIsReplaced(t *testing.T) {
	s := fakesOf(t, 3, 1, rdmafake.Config{})
	d := s.dial(t, 1)
	release := s[1].sync.block()
	ended := [2]chan error{make(chan error, 1), make(chan error, 1)}
	sets := func(i, m int) {
		go func() { ended[i] <- d.SetMinCopies(t.Context(), m) }()
		require.Eventually(t, func() bool { return d.Snapshot().Mirror.MinCopies == m }, patience, tick)
	}
	sets(0, 3)
	<-s[1].sync.began
	sets(1, 2)
	require.True(t, d.Snapshot().Mirror.Pending)
	release()
	require.NoError(t, <-ended[1])
	require.ErrorContains(t, <-ended[0], "somebody set the least number of copies to 2 meanwhile, and that counts")
	require.EqualValues(t, 2, s.record(0).MinCopies)
	require.NoError(t, d.Close())
}
