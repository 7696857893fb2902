package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma/rdmafake"
)

// A bit is not cleared for a barrier that the follower has if it lacks a later one that wrote there.
func TestBitsOfAFollower(t *testing.T) { synctest.Test(t, testBitsOfAFollower) }

func testBitsOfAFollower(t *testing.T) {
	s := followed(t, 1, rdmafake.Config{})
	d := s.dialAsync(t, 1, func(cfg *Config) { cfg.AsyncLagTime = time.Hour })
	c := backendtest.NewClient(t, d)
	write := func(chunk, seed int) {
		t.Helper()
		require.NoError(t, c.Do(c.Write(uint64(chunk)*chunkSize, backendtest.Pattern(block, uint32(seed)), 0), c.Flush()))
		synctest.Wait()
	}
	s.follows(t, d, 1)
	time.Sleep(2 * tellEvery) // what was set before is known
	for range 2*regionSize/chunkSize/maxTold + 2 {
		write(0, 1)
	}
	require.LessOrEqual(t, s[0].region.BitsSet(1), uint64(1))
	release := s[1].sync.blockData()
	defer func() { release() }()
	write(3, 1)
	write(3, 2)
	next := s[1].sync.blockData()
	release() // it has the first of these
	release = next
	synctest.Wait()
	write(5, 3)
	write(5, 4) // these barriers clear what may be cleared
	require.EqualValues(t, 2, s[0].region.BitsSet(1), "it lacks the newer write to chunk 3, and chunk 5")
	release()
	s.has(t, d, 1)
	write(7, 5)
	s.has(t, d, 1)
	write(7, 6)
	require.LessOrEqual(t, s[0].region.BitsSet(1), uint64(1))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A member to which all was copied follows from the end of a barrier on: it is not clear what it has of one
// that is in flight.
func TestFollowsBetweenBarriers(t *testing.T) { synctest.Test(t, testFollowsBetweenBarriers) }

func testFollowsBetweenBarriers(t *testing.T) {
	s := followed(t, 1, rdmafake.Config{})
	s.network(1).Down()
	d := s.dialAsync(t, 1, nil)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	releases := [2]func(){s[0].sync.blockData(), s[1].sync.blockData()}
	release := func() {
		for _, r := range releases {
			r()
		}
	}
	defer release()
	pass := func() { // one sync of each
		for i, r := range releases {
			releases[i] = s[i].sync.blockData()
			r()
		}
		synctest.Wait()
	}
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)))
	s.network(1).Up()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	require.NotNil(t, d.resyncing(1), "its copies wait for a barrier")
	var flushes []*backendtest.Request
	for n := 0; !d.legs[1].following.Load(); n++ {
		require.Less(t, n, 10, "it never follows")
		flushes = append(flushes, c.Flush()) // one waits behind each barrier
		c.Submit(c.Write(stripe, backendtest.Pattern(block, uint32(n)), 0), flushes[n])
		pass()
		d.core.commit.mu.Lock()
		waits := false
		if b := d.core.commit.current; b != nil {
			waits = b.owed(1) > 0
		}
		follows := d.legs[1].follow.on
		d.core.commit.mu.Unlock()
		require.False(t, waits && follows, "it follows, and a barrier waits for it")
	}
	release()
	require.NoError(t, c.Wait(flushes...))
	s.follows(t, d, 1)
	s.has(t, d, 1)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// While no member is there that a follower could follow it stays as it is. It can be promoted.
func TestFollowerIsNotTornForNothing(t *testing.T) { synctest.Test(t, testFollowerIsNotTorn) }

func testFollowerIsNotTorn(t *testing.T) {
	s := followed(t, 1, rdmafake.Config{})
	d := s.dialAsync(t, 1, nil)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.follows(t, d, 1)
	require.NoError(t, d.Close())
	s.network(1).Down()
	d = s.dialAsync(t, 1, nil)
	s.network(0).Down()
	s.network(1).Up()
	time.Sleep(30 * time.Second)
	require.False(t, s.record(1).Torn)
	s.network(0).Up()
	s.follows(t, d, 1)
	require.NoError(t, d.Close())
}

// A run that was killed leaves a follower as it is. The next one copies to it what it lacks.
func TestFollowerOfAKilledRun(t *testing.T) {
	s := followed(t, 1, rdmafake.Config{})
	cfg := s.config(t)
	cfg.WindowDir, cfg.AsyncLag = inMemory(t), 1<<20
	h := &mirrorHost{&host{&farm{t: t}, cfg}, s, make([]byte, regionSize), 0}
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	s.follows(t, d, 1)
	s.has(t, d, 1)
	release := s[1].sync.blockData()
	for i := range 8 {
		h.write(c, i*100_000, block)
		require.NoError(t, c.Do(c.Flush()))
	}
	h.write(c, 5<<20, block) // not flushed
	h.kill(d)
	release()
	require.False(t, s.record(1).Torn)
	d, _ = h.run()
	s.follows(t, d, 1)
	require.NoError(t, d.Sync(t.Context()))
	s.has(t, d, 1)
	h.has(1)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// Nobody waits for a follower, neither does the end of a device: if its disk hangs, it is not told how far it
// is. The others are told of the end.
func TestCloseWithAFollowerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 1, rdmafake.Config{})
		d := s.dialAsync(t, 1, nil)
		c := backendtest.NewClient(t, d)
		s.follows(t, d, 1)
		time.Sleep(2 * tellEvery)
		for i := range uint32(2) { // its record has the first of these
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, i), 0), c.Flush()))
			synctest.Wait()
		}
		release := s[1].sync.block()
		defer release()
		<-s[1].sync.began
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, d.Shutdown(ctx))
		require.NoError(t, ctx.Err(), "it waited for the follower")
		require.True(t, s[0].region.Superblock().Clean)
	})
}

// A follower whose disk hangs while it persists how far it is does not hold up the others.
func TestFollowersPersistApart(t *testing.T) { synctest.Test(t, testFollowersPersistApart) }

func testFollowersPersistApart(t *testing.T) {
	var s pairs
	for range 3 {
		s = append(s, fake(t, rdmafake.Config{}))
	}
	s.joinFollowed(t, 2)
	d := s.dialAsync(t, 1, nil)
	c := backendtest.NewClient(t, d)
	s.follows(t, d, 1)
	s.follows(t, d, 2)
	time.Sleep(2 * tellEvery)
	for i := range uint32(2) { // the records have the first of these
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, i), 0), c.Flush()))
		synctest.Wait()
	}
	release := s[1].sync.block()
	defer release()
	<-s[1].sync.began
	for i := range uint32(3) {
		was := s.record(2).Follows.Barrier
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, i), 0), c.Flush()))
		require.Eventually(t, func() bool { return s.record(2).Follows.Barrier > was }, 2*tellEvery, tick)
	}
	release()
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A follower whose RECORD was lost with its session persists how far it is in the next one, also if nobody
// writes any more.
func TestFollowerPersistsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 1, rdmafake.Config{})
		d := s.dialAsync(t, 1, nil)
		c := backendtest.NewClient(t, d)
		s.follows(t, d, 1)
		s.has(t, d, 1)
		time.Sleep(2 * tellEvery)
		was, turn := s.record(1).Follows.Barrier, d.legs[1].calls.turn
		turn <- struct{}{}
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		synctest.Wait() // its record waits for its turn
		session := d.legs[1].generation.Load()
		s.network(1).Cut()
		require.Eventually(t, func() bool { return d.legs[1].generation.Load() != session }, patience, tick)
		<-turn
		require.Eventually(t, func() bool { return s.record(1).Follows.Barrier > was }, patience, tick)
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
}

// Nor is it forgotten while a generation is pending, which no follower is told of.
func TestFollowerPersistsAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 2, rdmafake.Config{})
		d := s.dialAsync(t, 1, func(cfg *Config) { cfg.LegTimeout = 1 })
		c := backendtest.NewClient(t, d)
		s.follows(t, d, 2)
		time.Sleep(2 * tellEvery)
		for i := range uint32(2) { // the record has the first of these
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, i), 0), c.Flush()))
			synctest.Wait()
		}
		was := s.record(2).Follows.Barrier
		release := s[1].sync.block()
		defer release()
		s.network(0).Down()
		require.Eventually(t, func() bool { return d.Snapshot().Mirror.Pending }, patience, tick)
		time.Sleep(3 * tellEvery) // its teller has looked
		require.Equal(t, was, s.record(2).Follows.Barrier)
		release()
		require.Eventually(t, func() bool { return s.record(2).Follows.Barrier > was }, patience, tick)
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
}

// FLUSHes that wait for a follower at its bound go on once it is back without its contents, also if it is lost
// before it is copied to.
func TestNobodyWaitsForAFollowerWithoutContents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 1, rdmafake.Config{})
		d := s.dialAsync(t, 1, func(cfg *Config) { cfg.LegTimeout = time.Hour })
		c := backendtest.NewClient(t, d)
		s.follows(t, d, 1)
		s.network(1).Down()
		var flush *backendtest.Request
		for i := range uint64(6) { // more than the bound
			flush = c.Flush()
			c.Submit(c.Write(i*stripe, backendtest.Pattern(256<<10, 1), 0), flush)
			synctest.Wait()
		}
		require.False(t, flush.Completed())
		s.loseContents(t, 1)
		release := s[0].sync.block()
		defer release()
		s.network(1).Up()
		<-s[0].sync.began // it is back
		s.network(1).Down()
		release()
		require.NoError(t, c.Wait(flush))
		s.network(1).Up()
		s.has(t, d, 1)
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
}

// A record that says that a follower is not torn is for the session in which it followed. In the next one it may
// be half copied.
func TestRecordOfAFollowerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 1, rdmafake.Config{})
		d := s.dialAsync(t, 1, func(cfg *Config) { cfg.AsyncDrop, cfg.ResyncRate = true, 1<<20 })
		c := backendtest.NewClient(t, d)
		s.follows(t, d, 1)
		s.has(t, d, 1)
		time.Sleep(2 * tellEvery)
		turn := d.legs[1].calls.turn
		turn <- struct{}{}
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		time.Sleep(tellEvery) // its record waits for its turn
		s.network(1).Down()
		for i := range uint64(5) { // more than the bound
			require.NoError(t, c.Do(c.Write(i*stripe, backendtest.Pattern(256<<10, 1), 0), c.Flush()))
		}
		require.Eventually(t, func() bool { return !d.legs[1].following.Load() }, patience, tick)
		s.network(1).Up()
		require.Eventually(t, func() bool { return d.legs[1].up.Load() && s.record(1).Torn }, patience, tick)
		<-turn
		synctest.Wait()
		require.NotNil(t, d.resyncing(1), "the test is too slow")
		require.True(t, s.record(1).Torn, "it can be promoted")
		s.follows(t, d, 1)
		s.has(t, d, 1)
		require.NoError(t, d.Close())
	})
}
