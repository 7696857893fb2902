package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// A mirror begins without its arbiter only if an operator says so in words (mirror §4.8). A life that began
// so goes on without it after a kill, whatever the arbiter holds, and the next one tells it.
func TestBegunWithoutTheArbiter(t *testing.T) {
	h, a := newMirrorHost(t, 3), newFakeArbiter()
	h.cfg.Arbiter, h.cfg.LegTimeout = a, 1
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	h.network(1).Down()
	h.network(2).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	require.NoError(t, d.Close())
	held := a.holds()
	require.Equal(t, persist.Members(1), held.F)
	h.network(0).Down()
	h.network(1).Up()
	h.network(2).Up()

	h.cfg.Arbiter, h.cfg.Degraded = nil, true
	_, err := Dial(context.Background(), h.cfg)
	require.ErrorAs(t, err, new(*MirrorError))
	require.ErrorContains(t, err, "--without-arbiter")
	h.cfg.WithoutArbiter = true
	d, c = h.run()
	require.Eventually(t, func() bool { return d.equal() == 6 }, patience, tick)
	require.Equal(t, held, a.holds())
	require.False(t, h.record(1).Arbiter)
	h.paused(func() {
		require.NoError(t, c.Do(c.Write(stripe, backendtest.Pattern(block, 3), 0)))
		h.kill(d)
	})
	h.network(2).Down() // so the life that goes on has to begin a generation

	h.cfg.Arbiter, h.cfg.Degraded, h.cfg.WithoutArbiter = a, false, false
	d, c = h.run()
	for off, want := range map[uint64]uint32{0: 1, stripe: 3} {
		read := c.Read(off, block, 0)
		require.NoError(t, c.Do(read))
		require.Equal(t, backendtest.Pattern(block, want), read.Got)
	}
	require.Equal(t, persist.Members(2), h.record(1).F)
	require.True(t, h.record(1).Arbiter)
	require.Equal(t, h.record(1).Ancestor, a.holds().Ancestor)
	require.NoError(t, d.Close())
	h.network(0).Up()
	h.network(2).Up()
}

// parted has A go on with the arbiter, and B without it. Both are closed, and reached.
func (a *arbitrated) parted(t *testing.T) {
	d, c := a.dial(t)
	a.network(1).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, d.Close())
	a.network(0).Down()
	a.network(1).Up()
	alone := a.cfg
	alone.Arbiter, alone.Degraded, alone.WithoutArbiter = nil, true, true
	d, err := Dial(context.Background(), alone)
	require.NoError(t, err)
	c = backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	require.NoError(t, d.Close())
	a.network(0).Up()
}

// Either side of a split brain can be given up in a mirror with an arbiter, whichever the arbiter knows.
func TestDiscardWithAnArbiter(t *testing.T) {
	for gone, name := range []string{"the side that the arbiter knows", "the side that it does not know"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newArbitrated(t)
				a.parted(t)
				_, err := Dial(context.Background(), a.cfg)
				require.ErrorAs(t, err, new(*MirrorError))
				require.ErrorContains(t, err, "split brain")
				x, err := FindDiscard(context.Background(), a.cfg, gone+1)
				require.NoError(t, err)
				require.NoError(t, x.Do(context.Background()))
				require.NoError(t, x.Close())
				d, c := a.dial(t)
				read := c.Read(0, block, 0)
				require.NoError(t, c.Do(read))
				require.Equal(t, backendtest.Pattern(block, uint32(2-gone)), read.Got)
				require.Equal(t, a.pairs.record(1-gone).Ancestor, a.holds().Ancestor)
				require.Eventually(t, func() bool { return d.equal() == 3 }, time.Hour, time.Second)
				require.True(t, string(a.pairs[0].region.Data()) == string(a.pairs[1].region.Data()))
				require.NoError(t, d.Close())
			})
		})
	}
}

// What the arbiter holds can be forgotten by somebody who has the mirror there. Then it begins with what an
// operator chooses, and the arbiter learns that.
func TestForget(t *testing.T) { synctest.Test(t, testForget) }

func testForget(t *testing.T) {
	a := newArbitrated(t)
	d, c := a.dial(t)
	a.network(1).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	active := a.cfg
	active.StateDir, active.ID = t.TempDir(), [16]byte{7}
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	_, err := FindForgetting(soon, active)
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded, "a pmnbd has the mirror")
	require.NoError(t, d.Close())
	a.network(0).Down() // for good
	a.network(1).Up()

	a.cfg.Degraded = true
	_, err = Dial(context.Background(), a.cfg)
	require.ErrorAs(t, err, new(*MirrorError))
	require.ErrorContains(t, err, "pmnbd mirror forget")
	x, err := FindForgetting(context.Background(), a.cfg)
	require.NoError(t, err)
	require.Equal(t, []string{"2.2", "A", "2.1", "AB"}, []string{x.Held, x.F, x.Newest, x.NewestF})
	require.NoError(t, x.Close())
	require.Equal(t, persist.Members(1), a.holds().F, "it was only looked at")
	for _, held := range []string{"2.2", ""} {
		x, err = FindForgetting(context.Background(), a.cfg)
		require.NoError(t, err)
		require.Equal(t, held, x.Held)
		require.NoError(t, x.Do(context.Background()))
		require.NoError(t, x.Close())
		require.Zero(t, a.holds())
	}

	a.cfg.Degraded = false
	_, err = Dial(context.Background(), a.cfg)
	require.ErrorContains(t, err, "knows nothing")
	a.cfg.Degraded = true
	d, _ = a.dial(t)
	require.Equal(t, persist.Members(2), a.holds().F)
	require.NoError(t, d.Close())
	a.network(0).Up()
}

// A member that follows is promoted in a mirror with an arbiter: the arbiter learns of it, and the life that
// it followed lets no member go any more (mirror §7.6).
func TestPromotionWithAnArbiter(t *testing.T) { synctest.Test(t, testPromotionWithAnArbiter) }

func testPromotionWithAnArbiter(t *testing.T) {
	s, a := followed(t, 2, rdmafake.Config{}), newFakeArbiter()
	old := s.dialAsync(t, 1, func(cfg *Config) { cfg.Arbiter, cfg.LegTimeout = a, time.Second })
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.follows(t, old, 2)
	s.has(t, old, 2)
	time.Sleep(2 * tellEvery)
	a.cutOff(true)

	cfg := s.config(t)
	cfg.ID, cfg.StateDir, cfg.Members = [16]byte{7}, t.TempDir(), cfg.Members[2:]
	cfg.Degraded, cfg.WithoutArbiter = true, false
	_, err := Dial(context.Background(), cfg)
	require.ErrorContains(t, err, "--without-arbiter")
	cfg.Arbiter = a
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	n := backendtest.NewClient(t, d)
	read := n.Read(0, block, 0)
	require.NoError(t, n.Do(read, n.Write(stripe, backendtest.Pattern(block, 2), 0), n.Flush()))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	require.Equal(t, persist.Members(4), a.holds().F)
	require.True(t, s.record(2).Arbiter)

	s.network(1).Down()
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 3), 0), flush)
	time.Sleep(time.Minute)
	require.False(t, flush.Completed(), "it let a member go")
	abandon(old)
	require.NoError(t, d.Close())
	s.network(1).Up()

	cfg.Members, cfg.Degraded = s.config(t).Members, false
	_, err = Dial(context.Background(), cfg)
	require.ErrorAs(t, err, new(*MirrorError))
	require.ErrorContains(t, err, "split brain")
}

// A life that waits because it does not hold all of F serves as soon as it does.
func TestQuietEndsWithTheMember(t *testing.T) { synctest.Test(t, testQuietEndsWithTheMember) }

func testQuietEndsWithTheMember(t *testing.T) {
	a := newArbitrated(t)
	old, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	a.cutOff(true)
	a.network(0).Down()
	a.network(1).Down()
	abandon(old)
	a.network(1).Up()
	a.mu.Lock()
	a.terms[0].over = false // a process that was killed tells nobody
	a.mu.Unlock()
	time.AfterFunc(a.lease+2*time.Second, a.network(0).Up)
	began := time.Now()
	d, _ := a.standby(t, 0, 1)
	require.Less(t, time.Since(began), a.lease+usualLease)
	held, _ := d.core.copies.holds(3)
	require.True(t, held)
	require.NoError(t, d.Close())
}
