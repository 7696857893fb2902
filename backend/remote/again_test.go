package remote

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// copyingFirst has a life begin that copies first, and for long: F is A and B, A is away, C is stale. begun
// waits for the life. Before it begins prepare is called.
func (s pairs) copyingFirst(t *testing.T, prepare func(*Config)) (begun func() (*Device, error)) {
	old := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, old)
	s.network(2).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(3*stripe, 1), 0), c.Flush()))
	require.Equal(t, persist.Members(3), s.record(0).F)
	s.network(0).Down()
	s.network(2).Up()
	s.die(t, old)
	cfg := s.config(t)
	cfg.LegTimeout, cfg.ResyncRate = 1, 16<<10 // three minutes
	prepare(&cfg)
	type result struct {
		d   *Device
		err error
	}
	dialed := make(chan result, 1)
	go func() {
		d, err := Dial(t.Context(), cfg)
		dialed <- result{d, err}
	}()
	time.Sleep(time.Minute)
	require.Empty(t, dialed)
	return func() (*Device, error) {
		r := <-dialed
		return r.d, r.err
	}
}

// A life that copies first decides again when a member comes back that knows a newer generation
// (mirror §4.2).
func TestDecidesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 3, 2, rdmafake.Config{})
		begun := s.copyingFirst(t, func(*Config) {})
		r := s.record(0) // a change of the life before reached it alone
		copy(r.Lineage[1:], r.Lineage[:])
		r.Lineage[0] = r.Ancestor
		r.Count++
		require.NoError(t, s[0].region.SetRecord(r, 0))
		began := time.Now()
		s.network(0).Up()
		d, err := begun()
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Minute)
		require.Equal(t, persist.Members(3), s.record(0).F)
		require.Contains(t, s.record(1).Lineage, r.Ancestor)
		c := backendtest.NewClient(t, d)
		read := c.Read(0, block, 0)
		require.NoError(t, c.Do(read))
		require.Equal(t, backendtest.Pattern(3*stripe, 1)[:block], read.Got)
		require.Eventually(t, func() bool { return d.equal() == 7 }, 24*time.Hour, time.Second)
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// A life that copies first decides again when the member that it copies from has lost its contents: nothing of what
// that one has now may count as what the mirror had (mirror §4.4).
func TestSourceOfTheFirstCopiesIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 3, 2, rdmafake.Config{})
		begun := s.copyingFirst(t, func(cfg *Config) { cfg.LegTimeout = time.Hour })
		s.network(1).Down()
		s.loseContents(t, 1)
		s.network(1).Up()
		time.Sleep(time.Minute)
		s.network(0).Up() // it has everything
		d, err := begun()
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		read := c.Read(0, block, 0)
		require.NoError(t, c.Do(read))
		require.Equal(t, backendtest.Pattern(3*stripe, 1)[:block], read.Got)
		require.Eventually(t, func() bool { return d.equal() == 7 }, 24*time.Hour, time.Second)
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// It decides again, too, when that member has been away for too long: another one may have come back that has
// everything (mirror §4.4).
func TestSourceOfTheFirstCopiesIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 3, 2, rdmafake.Config{})
		begun := s.copyingFirst(t, func(cfg *Config) { cfg.LegTimeout = 10 * time.Second })
		life := s[1].region.Superblock().Life
		s.network(1).Down()
		time.Sleep(5 * time.Second)
		s.network(1).Up()
		time.Sleep(5 * time.Second)
		require.Equal(t, life, s[1].region.Superblock().Life, "it does not wait for --leg-timeout")
		s.network(1).Down()
		s.network(0).Up() // it has everything
		time.AfterFunc(time.Hour, s.network(1).Up)
		began := time.Now()
		d, err := begun()
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Hour)
		s.network(1).Up()
		require.Eventually(t, func() bool { return d.equal() == 7 }, 24*time.Hour, time.Second)
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// A member that is away while a life copies first is not one that the life waits for: --loss-timeout does not count.
func TestLossTimeoutAndTheFirstCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 3, 2, rdmafake.Config{})
		d, err := s.copyingFirst(t, func(cfg *Config) { cfg.LossTimeout = 10 * time.Second })()
		require.NoError(t, err)
		require.Equal(t, persist.Members(6), d.equal())
		require.NoError(t, d.Close())
	})
}

// A life that copies first can copy to a member that is half copied in a newer generation, which --degraded passed
// over. If then the others come that have this generation, they copy everything to that member, and not only what
// their bits say: they know nothing of the first copies (mirror §5.1).
func TestFirstCopiesToAStray(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 4, 2, rdmafake.Config{})
		slowly := func(cfg *Config) { cfg.LegTimeout, cfg.ResyncRate = 1, 64<<10 } // two minutes
		cfg := s.config(t)
		slowly(&cfg)
		old, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, old)
		s.network(0).Down()
		want := backendtest.Pattern(stripe, 1)
		require.NoError(t, c.Do(c.Write(0, want, 0), c.Flush())) // which A lacks, and D has
		s.network(3).Down()
		require.NoError(t, c.Do(c.Write(regionSize-2*stripe, backendtest.Pattern(2*stripe, 2), 0), c.Flush()))
		s.network(3).Up()
		require.Eventually(t, func() bool { return s.record(3).Torn }, time.Hour, time.Second)
		require.NoError(t, old.Close())
		require.Equal(t, persist.Members(6), s.record(1).F)

		s.network(1).Down()
		s.network(2).Down()
		s.network(0).Up()
		cfg = s.config(t)
		slowly(&cfg)
		cfg.Degraded = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = Dial(ctx, cfg)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotEqual(t, want, s[3].region.Data()[:stripe], "it was copied to")
		s.network(1).Up()
		s.network(2).Up()
		d := s.dial(t, 1)
		s.inSync(t, d)
		require.Equal(t, want, s[3].region.Data()[:stripe])
		require.NoError(t, d.Close())
	})
}

// An everyOther is a network on which every second attempt to connect fails for a while.
type everyOther struct {
	rdma.Provider
	fails *atomic.Bool
	n     *atomic.Int32
}

func (p everyOther) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	if p.n.Add(1)%2 == 0 && p.fails.Load() {
		return nil, rdma.ErrLost
	}
	return p.Provider.OpenDomain(ctx, addr)
}

// A start may have opened a member, given up, and begun without it. The life that has begun can open the member when
// it comes back: its number is above that of each attempt (mirror §2).
func TestMemberOfAnEarlierAttemptComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 3, 2, rdmafake.Config{})
		cfg := s.config(t)
		s.network(0).Down()
		var fails atomic.Bool
		fails.Store(true)
		cfg.Members[2].Provider = everyOther{s[2].provider, &fails, new(atomic.Int32)} // it is probed, and not opened
		var d *Device
		var err error
		begun := make(chan struct{})
		go func() {
			defer close(begun)
			d, err = Dial(t.Context(), cfg)
		}()
		time.Sleep(time.Second)
		require.NotZero(t, s[1].region.Superblock().Life)
		require.Zero(t, s[2].region.Superblock().Life)
		s.network(1).Down()
		time.Sleep(time.Second)
		fails.Store(false)
		s.network(0).Up()
		<-begun
		require.NoError(t, err)
		s.network(1).Up()
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}
