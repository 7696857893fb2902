package remote

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// dialImpatient opens a device that lets a leg go as soon as it is lost.
func (s pairs) dialImpatient(t testing.TB, lanes int) *Device {
	cfg := s.config(t)
	cfg.Lanes, cfg.LegTimeout = lanes, 1
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return d
}

// record is what the region of leg i persists of the mirror.
func (s pairs) record(i int) persist.Record { return s[i].region.Superblock().Record }

// A leg that stays away is let go: the record of the others says so before a FLUSH succeeds that it
// lacks, and they note what it lacks (mirror §3.3, §3.4).
func TestLegIsLetGo(t *testing.T) {
	for _, lost := range []int{0, 1} {
		t.Run(persist.Member(lost).String(), func(t *testing.T) {
			s := fakes(t, 2, rdmafake.Config{})
			d := s.dialImpatient(t, 2)
			other := 1 - lost
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			require.Equal(t, persist.Members(3), s.record(other).F)
			require.Zero(t, s[other].region.BitsSet(lost))
			s.network(lost).Down()
			flush := c.Flush()
			c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
			require.NoError(t, c.Wait(flush))
			require.Equal(t, persist.Member(other), s.record(other).F)
			require.Equal(t, persist.Members(3), s.record(lost).F, "nobody could tell it")
			require.EqualValues(t, 1, s[other].region.BitsSet(lost))
			read := c.Read(stripe, block, 0)
			require.NoError(t, c.Do(read))
			require.Equal(t, backendtest.Pattern(block, 2), read.Got)
			require.Equal(t, StateOpen, d.Snapshot().State)
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
			require.True(t, s[other].region.Superblock().Clean)
			s.network(lost).Up()
		})
	}
}

// No generation begins with fewer copies than the mirror must have: FLUSH waits, READ goes on
// (mirror §3.3).
func TestMinCopies(t *testing.T) { synctest.Test(t, testMinCopies) }

func testMinCopies(t *testing.T) {
	s := fakesOf(t, 2, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.network(0).Down()
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
	read := c.Read(0, block, 0)
	require.NoError(t, c.Do(read))
	require.Equal(t, backendtest.Pattern(block, 2), read.Got)
	time.Sleep(time.Minute)
	require.False(t, flush.Completed())
	require.Equal(t, persist.Members(3), s.record(1).F)
	s.network(0).Up()
	require.NoError(t, c.Wait(flush))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// READs go on behind the replay of the member that is there, though its barriers wait for the other
// one: those that wait when its session comes back, and those that come later.
func TestReadsWithoutABarrier(t *testing.T) {
	const n, size = 20, 8 << 10 // pieces of each of two stripes; each lane has several slices
	for _, lanes := range []int{1, 2} {
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := beating(t, 2, 2)
				d := s.dialImpatient(t, lanes)
				c := backendtest.NewClient(t, d)
				s.network(0).Down()
				synctest.Wait() // the loss is known
				data := [][]byte{backendtest.Pattern(n*size, 1), backendtest.Pattern(n*size, 2)}
				for at := 0; at < n*size; at += size {
					for i := range data {
						c.Submit(c.Write(uint64(i*stripe+at), data[i][at:at+size], 0))
					}
				}
				flush, early := c.Flush(), []*backendtest.Request{c.Read(0, n*size, 0), c.Read(stripe, n*size, 0)}
				s.network(1).Down()
				c.Submit(append(early, flush)...)
				synctest.Wait()
				s.network(1).Up()
				require.NoError(t, c.Wait(early...))
				session := d.legs[1].generation.Load()
				s.network(1).Cut()
				require.Eventually(t, func() bool { return d.legs[1].generation.Load() != session }, patience, tick)
				late := []*backendtest.Request{c.Read(0, n*size, 0), c.Read(stripe, n*size, 0)}
				require.NoError(t, c.Do(late...))
				require.False(t, flush.Completed())
				s.network(0).Up()
				require.NoError(t, c.Wait(flush))
				for i := range data {
					require.Equal(t, data[i], early[i].Got)
					require.Equal(t, data[i], late[i].Got)
					for _, p := range s {
						require.Equal(t, data[i], p.region.Data()[i*stripe:][:n*size])
					}
				}
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}

// bothLost opens a mirror of two with M = 2, and has it lose both sessions after a while without a request. The window
// then has data at 0 that a lane replays in two slices.
func bothLost(t *testing.T) (s pairs, d *Device, c *backendtest.Client, data []byte) {
	s = beating(t, 2, 2)
	d = s.dialImpatient(t, 1)
	c = backendtest.NewClient(t, d)
	time.Sleep(2 * pullAfter)
	s.network(0).Down()
	s.network(1).Down()
	synctest.Wait() // the losses are known
	const size = 8 << 10
	data = backendtest.Pattern(20*size, 1)
	for at := 0; at < len(data); at += size {
		c.Submit(c.Write(uint64(at), data[at:at+size], 0))
	}
	return s, d, c, data
}

// READs wait for the other member's disk no longer than for pullAfter, if that one hangs in the barrier of a slice.
// They do wait for the barrier at the member that they come from.
func TestReadsBesideAHungDisk(t *testing.T) {
	for _, hangs := range []int{0, 1} {
		t.Run(persist.Member(hangs).String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d, c, data := bothLost(t)
				var release [2]func()
				for i := range s {
					release[i] = s[i].sync.blockData()
					defer release[i]()
					s.network(i).Up()
				}
				<-s[0].sync.began
				<-s[1].sync.began
				read := c.Read(0, len(data), 0)
				c.Submit(read)
				time.Sleep(3 * pullAfter)
				require.False(t, read.Completed(), "both owe the barrier")
				release[1-hangs]()
				require.NoError(t, c.Wait(read))
				require.Equal(t, data, read.Got)
				again := c.Read(0, len(data), 0)
				require.NoError(t, c.Do(again))
				require.Equal(t, data, again.Got)
				require.NotZero(t, d.Unflushed())
				release[hangs]()
				require.NoError(t, c.Do(c.Flush()))
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}

// READs wait for a barrier that takes less than pullAfter: the replay stays in slices.
func TestReadsBesideASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, c, data := bothLost(t)
		s[1].sync.takes(pullAfter - time.Second)
		read := c.Read(0, len(data), 0)
		c.Submit(read)
		s.network(0).Up()
		s.network(1).Up()
		require.Eventually(t, func() bool { return d.legs[0].up.Load() && d.legs[1].up.Load() }, patience, tick)
		time.Sleep(pullAfter - 2*time.Second)
		require.False(t, read.Completed())
		require.NoError(t, c.Wait(read))
		require.NoError(t, c.Do(c.Flush()))
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
}

// The replay stays in slices, too, while only the first of two sessions is back. Else the first barrier would come
// behind all of that member's replay, and a network that breaks again would bring no slice to the end.
func TestReadsBeforeTheOtherIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, c, data := bothLost(t)
		read := c.Read(0, len(data), 0)
		c.Submit(read)
		l := d.legs[0].lanes[0]
		behind := func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.connected && l.behind && l.queued == l.ring.Covered()
		}
		s.network(0).Up()
		time.Sleep(pullAfter - time.Second) // and ticks of heartbeats
		require.True(t, behind())
		require.False(t, read.Completed())
		s.network(1).Up()
		require.NoError(t, c.Wait(read))
		require.NoError(t, c.Do(c.Flush()))
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
}

// And the replay stays in slices if the other member is away for a moment.
func TestReadsWhileTheOtherIsAwayForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d, c, data := bothLost(t)
		release := s[0].sync.blockData()
		defer release()
		s.network(0).Up()
		s.network(1).Up()
		<-s[0].sync.began
		time.Sleep(2 * pullAfter)
		read := c.Read(0, len(data), 0)
		c.Submit(read)
		s.network(1).Down()
		time.Sleep(pullAfter - time.Second) // and ticks of heartbeats
		require.False(t, read.Completed())
		s.network(1).Up()
		release()
		require.NoError(t, c.Wait(read))
		require.NoError(t, c.Do(c.Flush()))
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
}

// The last equal leg is never let go, however long it is away.
func TestLastLegIsNotLetGo(t *testing.T) { synctest.Test(t, testLastLegIsNotLetGo) }

func testLastLegIsNotLetGo(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 2)
	c := backendtest.NewClient(t, d)
	s.network(1).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.network(0).Down()
	flush, read := c.Flush(), c.Read(0, block, 0)
	c.Submit(c.Write(100, backendtest.Pattern(block, 2), 0), flush, read)
	require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
	s.network(1).Up() // it is stale
	time.Sleep(time.Minute)
	require.False(t, flush.Completed())
	require.False(t, read.Completed())
	s.network(0).Up()
	require.NoError(t, c.Wait(flush, read))
	require.Equal(t, append(backendtest.Pattern(block, 1)[:100:100], backendtest.Pattern(block, 2)[:block-100]...), read.Got)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A mirror that fails ends the connections of all legs before it lets go of what they may still touch.
func TestMirrorFailsOnAllLegs(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	cfg := s.config(t)
	cfg.LossTimeout = 1
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	s.network(0).Pause()
	read := c.Read(0, block, 0)
	c.Submit(read)
	s.network(1).Down()
	require.ErrorIs(t, c.Wait(read), backend.ErrFailed)
	requireFailed(t, c)
	s.network(0).Resume()
	require.Eventually(t, d.core.down, patience, tick)
	backendtest.AllBack(t, d)
	require.Error(t, d.Close())
}

// Another life that has begun ends this one for good, if any leg of F says so (mirror §4.5).
func TestAnotherLife(t *testing.T) {
	for _, both := range []bool{true, false} {
		t.Run(map[bool]string{true: "on all legs", false: "on one leg"}[both], func(t *testing.T) {
			s := fakes(t, 2, rdmafake.Config{})
			old := s.dialImpatient(t, 1)
			c := backendtest.NewClient(t, old)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			cfg := s.config(t)
			cfg.StateDir = t.TempDir()
			if !both {
				s.network(1).Down()
				require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
				require.Equal(t, persist.Member(0), s.record(0).F)
			}
			d, err := Dial(context.Background(), cfg)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return old.Snapshot().State == StateFailed }, patience, tick)
			requireFailed(t, c)
			require.Error(t, old.Close())
			n := backendtest.NewClient(t, d)
			read := n.Read(0, block, 0)
			require.NoError(t, n.Do(read))
			require.Equal(t, backendtest.Pattern(block, 1), read.Got)
			require.NoError(t, d.Close())
		})
	}
}

// After an end that was not clean, and without the window, what was not flushed may differ. A mirror
// that needs two copies begins with both, and reads from one alone (mirror §4.4).
func TestUncleanBeginning(t *testing.T) {
	s := fakesOf(t, 2, 2, rdmafake.Config{})
	old := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.network(1).Pause()
	w := c.Write(0, backendtest.Pattern(block, 2), 0)
	require.NoError(t, c.Do(w)) // it reaches the first member alone
	flush := c.Flush()
	c.Submit(flush)
	require.Eventually(t, func() bool { return string(s[0].region.Data()[:block]) == string(backendtest.Pattern(block, 2)) }, patience, tick)
	cfg := s.config(t)
	cfg.StateDir, cfg.ResyncRate = t.TempDir(), 1 // it is not through before this test is
	s.network(1).Resume()
	s[1].region.Data()[0] ^= 1 // as if the second had got something else
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.Error(t, old.Close())
	n := backendtest.NewClient(t, d)
	for range 10 {
		read := n.Read(0, block, 0)
		require.NoError(t, n.Do(read))
		require.Equal(t, backendtest.Pattern(block, 2), read.Got)
	}
	for i := range s {
		require.Equal(t, persist.Members(3), s.record(i).F)
	}
	for _, g := range d.legs {
		for _, l := range g.lanes {
			l.mu.Lock()
			require.Equal(t, g.slot == 0, l.readable)
			l.mu.Unlock()
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Shutdown(ctx) // it mostly fails: the members are unequal
}

// A life that finds fewer members with every flushed write than it needs copies to others first, and
// serves when there are enough (mirror §4.4).
func TestCopiesFirst(t *testing.T) {
	s := fakesOf(t, 3, 2, rdmafake.Config{})
	old := s.dialImpatient(t, 2)
	c := backendtest.NewClient(t, old)
	s.network(2).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Write(3<<20, backendtest.Pattern(block, 2), 0), c.Flush()))
	require.Equal(t, persist.Members(3), s.record(0).F)
	s.network(0).Down() // F is A and B: A is destroyed, and C is stale
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Error(t, old.Shutdown(ctx))
	s.network(2).Up() // not before: the old life would copy to C, and could end clean
	d := s.dialImpatient(t, 2)
	require.Equal(t, persist.Members(6), s.record(1).F)
	require.Equal(t, persist.Members(6), s.record(2).F)
	require.True(t, string(s[1].region.Data()) == string(s[2].region.Data()))
	n := backendtest.NewClient(t, d)
	read := n.Read(0, block, 0)
	require.NoError(t, n.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 3), 0), n.Flush()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
	s.network(0).Up()
}

// A device that ends in the middle of a change closes its sessions all the same, as soon as the change
// is through.
func TestCloseInAChange(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dial(t, 1)
	k := d.core.copies
	d.core.commit.mu.Lock()
	next, err := k.view.LetGo(1, false)
	require.NoError(t, err)
	k.changeLocked(next)
	d.core.commit.mu.Unlock()
	d.core.life.step(eventDrain, nil)
	require.NoError(t, d.leave(context.Background(), true))
	require.NoError(t, d.release())
	require.Equal(t, persist.Member(0), s.record(0).F)
	require.True(t, s[0].region.Superblock().Clean)
}

// The end of a device waits for no record of a member whose disk hangs.
func TestCloseInAChangeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakes(t, 2, rdmafake.Config{})
		d := s.dial(t, 1)
		k := d.core.copies
		defer s[0].sync.block()()
		d.core.commit.mu.Lock()
		next, err := k.view.LetGo(1, false)
		require.NoError(t, err)
		k.changeLocked(next)
		d.core.commit.mu.Unlock()
		k.rouse()
		<-s[0].sync.began
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		d.core.life.step(eventDrain, nil)
		require.ErrorIs(t, d.leave(ctx, true), ErrAway)
		require.NoError(t, d.release())
		require.NoError(t, ctx.Err(), "it waited for the record")
	})
}

// An end of which no member heard says so: the one that would have been told did not answer a resync.
func TestCloseWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakes(t, 2, rdmafake.Config{})
		d := s.dialImpatient(t, 1)
		c := backendtest.NewClient(t, d)
		s.network(1).Down()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		s.network(0).Pause()
		defer s.network(0).Resume()
		s.network(1).Up()
		require.Eventually(t, d.legs[1].up.Load, patience, tick)
		require.ErrorIs(t, d.Close(), ErrAway)
		require.False(t, s[0].region.Superblock().Clean)
	})
}

// A member that has everything only when the device ends stays out.
func TestNoChangeBeginsAtTheEnd(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	k := d.core.copies
	k.settle(context.Background())
	s.network(1).Down()
	require.Eventually(t, func() bool { return !d.legs[1].up.Load() }, patience, tick)
	d.core.commit.mu.Lock()
	_, leaves, _ := k.leaverLocked()
	d.core.commit.mu.Unlock()
	require.False(t, leaves)
	d.core.life.step(eventDrain, nil)
	require.NoError(t, d.leave(context.Background(), true))
	require.NoError(t, d.release())
	require.Equal(t, persist.Members(3), s.record(0).F)
	require.True(t, s[0].region.Superblock().Clean)
	s.network(1).Up()
}

// A leg that is lost in the moment in which its session is given back makes no failure of a Close that
// the others heard of.
func TestCloseLosesALeg(t *testing.T) { synctest.Test(t, testCloseLosesALeg) }

func testCloseLosesALeg(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dial(t, 1)
	s.network(1).Pause()
	require.NoError(t, d.Close())
	require.True(t, s[0].region.Superblock().Clean)
	require.False(t, s[1].region.Superblock().Clean)
	s.network(1).Resume()
	d = s.dial(t, 1)
	require.Equal(t, persist.Members(3), s.record(0).F)
	require.Equal(t, 2, d.Snapshot().Mirror.Copies, "the end was clean")
	require.NoError(t, d.Close())
}
