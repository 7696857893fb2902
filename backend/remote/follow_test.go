package remote

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// followed makes a mirror of n members that are in sync, and one more that follows them.
func followed(t testing.TB, n int, cfg rdmafake.Config) (s pairs) {
	for range n + 1 {
		s = append(s, fake(t, cfg))
	}
	s.joinFollowed(t, 1)
	return s
}

// joinFollowed makes the regions the members of a mirror, the last of which follow.
func (s pairs) joinFollowed(t testing.TB, follow int) {
	n := len(s) - follow
	r := persist.Record{Set: [16]byte{0xee}, MinCopies: 1, Async: persist.Member(len(s)) - persist.Member(n)}
	r.Generation, r.F = persist.Generation{Life: 1, Count: 1, Nonce: [16]byte{1}}, persist.Member(n)-1
	for slot, p := range s {
		sb := p.region.Superblock()
		r.Members[slot] = persist.Membership{UUID: p.region.UUID(), Contents: sb.Contents, Epoch: sb.Epoch}
	}
	for slot, p := range s {
		r.Slot, r.Torn = uint8(slot), slot >= n
		require.NoError(t, p.region.SetRecord(r, r.Async&^persist.Member(slot)))
	}
}

// dialAsync opens a device on s with a bound for what its follower lacks.
func (s pairs) dialAsync(t testing.TB, lanes int, change func(*Config)) *Device {
	cfg := s.config(t)
	cfg.Lanes, cfg.LegTimeout, cfg.AsyncLag = lanes, 10*time.Second, 1<<20
	if change != nil {
		change(&cfg)
	}
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return d
}

// follows waits until leg i follows, and its record says so.
func (s pairs) follows(t testing.TB, d *Device, i int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.state(d, i) == LegFollows && !s.record(i).Torn }, patience, 10*time.Millisecond)
}

func (s pairs) state(d *Device, i int) LegState { return d.Snapshot().Mirror.Legs[i].State }

// has waits until leg i has what the first one has.
func (s pairs) has(t testing.TB, d *Device, i int) {
	t.Helper()
	for range 3000 {
		if string(s[0].region.Data()) == string(s[i].region.Data()) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Fail(t, "it does not get everything", "%+v", d.Snapshot().Mirror.Legs[i])
}

// A member that follows gets everything, is in no F, and its record says how far it is. What the others
// noted of it is cleared again.
func TestFollows(t *testing.T) { synctest.Test(t, testFollows) }

func testFollows(t *testing.T) {
	s := followed(t, 2, rdmafake.Config{})
	d := s.dialAsync(t, 2, nil)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.follows(t, d, 2)
	for i := range 20 {
		require.NoError(t, c.Do(c.Write(uint64(i)*stripe/3, backendtest.Pattern(3*block, uint32(i)), 0), c.Flush()))
	}
	s.has(t, d, 2)
	require.Eventually(t, func() bool {
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 99), 0), c.Write(stripe, backendtest.Pattern(block, 99), 0), c.Flush()))
		return s[0].region.BitsSet(2) <= 2 && s[1].region.BitsSet(2) <= 2
	}, patience, 10*time.Millisecond, "bits are kept for what it has")
	time.Sleep(2 * tellEvery)
	r := s.record(2)
	require.Equal(t, persist.Members(3), r.F)
	require.Equal(t, d.legs[2].follow.point, r.Follows)
	require.NotZero(t, r.Follows.Barrier)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
	s.has(t, d, 2)
	require.True(t, s[2].region.Superblock().Clean)
}

// FLUSH does not wait for a member that follows, and that gets no write of a later barrier before it has
// made the one before durable.
func TestFollowerWaitsForItsBarrier(t *testing.T) { synctest.Test(t, testFollowerWaits) }

func testFollowerWaits(t *testing.T) {
	s := followed(t, 2, rdmafake.Config{})
	d := s.dialAsync(t, 2, func(cfg *Config) { cfg.AsyncLagTime = time.Hour })
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.follows(t, d, 2)
	s.has(t, d, 2)
	release := s[2].sync.blockData()
	for i := 1; i < 5; i++ {
		require.NoError(t, c.Do(c.Write(uint64(i)*stripe, backendtest.Pattern(block, uint32(i)), 0), c.Flush()))
	}
	defer func() { release() }()
	data := s[2].region.Data()
	for n := 1; n < 5; n++ {
		synctest.Wait()
		for i := 1; i < 5; i++ {
			require.Equal(t, i <= n, data[i*stripe] != 0, "barrier %d is under way, and write %d", n, i)
		}
		next := s[2].sync.blockData()
		release()
		release = next
	}
	release()
	s.has(t, d, 2)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A follower that was away for a while goes on where it was: nothing is copied, and it is never torn.
func TestFollowerComesBack(t *testing.T) { synctest.Test(t, testFollowerComesBack) }

func testFollowerComesBack(t *testing.T) {
	s := followed(t, 2, rdmafake.Config{})
	d := s.dialAsync(t, 2, nil)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.follows(t, d, 2)
	for round := range 5 {
		s.network(2).Down()
		for i := range 4 {
			require.NoError(t, c.Do(c.Write(uint64(i)*stripe+uint64(round)*block, backendtest.Pattern(block, uint32(round)), 0), c.Flush()))
		}
		require.False(t, s.record(2).Torn)
		require.True(t, d.legs[2].following.Load())
		s.network(2).Up()
		s.has(t, d, 2)
	}
	require.Nil(t, d.resyncing(2))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// At the bound FLUSHes wait for a follower that lives. One that is away is waited for no longer than for
// a member in F. With AsyncDrop it is let go at once. Then all that it lacks is copied.
func TestFollowerAtTheBound(t *testing.T) {
	for name, tt := range map[string]struct {
		drop, away bool
		waits      time.Duration
	}{
		"waits":               {},
		"away":                {away: true, waits: 10 * time.Second},
		"drops":               {drop: true, waits: 1},
		"drops one that left": {drop: true, away: true, waits: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFollowerBound(t, tt.drop, tt.away, tt.waits) })
		})
	}
}

func testFollowerBound(t *testing.T, drop, away bool, waits time.Duration) {
	s := followed(t, 2, rdmafake.Config{})
	d := s.dialAsync(t, 1, func(cfg *Config) { cfg.AsyncDrop, cfg.LegTimeout = drop, 10*time.Second })
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	s.follows(t, d, 2)
	s.has(t, d, 2)
	release := func() {}
	defer func() { release() }()
	if away {
		s.network(2).Down()
	} else {
		release = s[2].sync.blockData()
	}
	n := 0
	for ; n < 4; n++ { // 1 MiB is the bound
		require.NoError(t, c.Do(c.Write(uint64(n)*stripe, backendtest.Pattern(256<<10, uint32(n)), 0), c.Flush()))
	}
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
	synctest.Wait()
	if waits == 0 {
		time.Sleep(5 * time.Second)
		require.False(t, flush.Completed(), "it does not wait at the bound")
		release()
		require.NoError(t, c.Wait(flush))
	} else {
		time.Sleep(waits + 2*time.Second)
		synctest.Wait()
		require.True(t, flush.Completed())
		require.False(t, d.legs[2].following.Load())
		release()
	}
	s.network(2).Up()
	s.follows(t, d, 2)
	s.has(t, d, 2)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// TestFollowerIsNotStuck has one barrier reach the bound, behind a long pause. The follower had nothing to
// take in that, and is not let go.
func TestFollowerIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 2, rdmafake.Config{})
		d := s.dialAsync(t, 1, nil)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		s.follows(t, d, 2)
		s.has(t, d, 2)
		for range 8 { // which goroutine comes first differs
			time.Sleep(time.Minute)
			release := s[2].sync.blockData()
			for n := range uint64(5) { // 1 MiB is the bound
				require.NoError(t, c.Do(c.Write(n*stripe, backendtest.Pattern(256<<10, uint32(n)), 0)))
			}
			require.NoError(t, c.Do(c.Flush()))
			time.Sleep(2 * time.Second)
			synctest.Wait()
			assert.True(t, d.legs[2].following.Load())
			release()
			s.follows(t, d, 2)
			s.has(t, d, 2)
		}
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
}

// A journal is a log of numbered blocks, with what a client knows of its FLUSHes. An image of a disk with a
// write cache that crashed has, if it has any write, all that a FLUSH had made durable before that one was
// sent.
type journal struct {
	client  *backendtest.Client
	rng     *rand.Rand
	number  uint64
	flushed uint64   // numbers up to here are durable
	before  []uint64 // flushed when each number was sent
	places  []uint64 // where each is
}

const journalBlock = 4 << 10

func newJournal(t testing.TB, d *Device, seed uint64) *journal {
	return &journal{client: backendtest.NewClient(t, d), rng: rand.New(rand.NewPCG(seed, 7)), before: []uint64{0}, places: []uint64{0}}
}

// step writes some blocks, and flushes now and then.
func (j *journal) step(t testing.TB) {
	for range 1 + j.rng.IntN(6) {
		j.number++
		at := uint64(j.rng.IntN(regionSize/journalBlock)) * journalBlock
		j.before, j.places = append(j.before, j.flushed), append(j.places, at)
		b := make([]byte, journalBlock)
		for i := 0; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], j.number)
		}
		require.NoError(t, j.client.Do(j.client.Write(at, b, 0)))
	}
	if j.rng.IntN(2) == 0 {
		upTo := j.number
		require.NoError(t, j.client.Do(j.client.Flush()))
		j.flushed = upTo
	}
}

// check returns an error if a crash can leave what no crash of a disk leaves: each block is as it was made
// durable last, or as it is now.
func (j *journal) check(rng *rand.Rand, durable, visible []byte) error {
	newest, at := uint64(0), 0
	for i := 0; i < regionSize; i += journalBlock {
		if n := binary.LittleEndian.Uint64(visible[i:]); n > newest {
			newest, at = n, i
		}
	}
	for trial := range 4 {
		image := append([]byte(nil), durable...)
		for i := 0; i < regionSize; i += journalBlock {
			if i == at || trial > 0 && rng.IntN(4) < trial { // at first only the newest block has reached the medium
				copy(image[i:i+journalBlock], visible[i:])
			}
		}
		if err := j.checkImage(image); err != nil {
			return err
		}
	}
	return nil
}

// checkImage returns an error if no crash of a disk could leave image. The race detector would look at each
// of a million words, which are the test's own and nobody changes meanwhile.
//
//go:norace
func (j *journal) checkImage(image []byte) error {
	newest, least := uint64(0), make(map[uint64]uint64) // by place
	for at := uint64(0); at < regionSize; at += journalBlock {
		low := uint64(math.MaxUint64)
		for i := at; i < at+journalBlock; i += 8 {
			has := binary.LittleEndian.Uint64(image[i:])
			newest, low = max(newest, has), min(low, has)
		}
		least[at] = low
	}
	for n := uint64(1); n <= j.before[newest]; n++ {
		if at := j.places[n]; least[at] < n {
			return fmt.Errorf("it has write %d, before which write %d was flushed, and at %d it has %d", newest, n, at, least[at])
		}
	}
	return nil
}

// A follower that comes back while no member is there that it could follow does so soon after one is: the
// attempts until then say nothing against it.
func TestFollowerWaitsForAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 1, rdmafake.Config{})
		d := s.dialAsync(t, 1, func(cfg *Config) { cfg.AsyncLagTime = 2 * time.Second })
		c := backendtest.NewClient(t, d)
		s.follows(t, d, 1)
		release := s[1].sync.blockData()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		s.network(0).Down()
		synctest.Wait() // so the follower comes back when the last member is known to be away
		s.network(1).Cut()
		release()
		time.Sleep(3*maxSparePause + 15*time.Second)
		require.NotEqual(t, LegFollows, s.state(d, 1))
		s.network(0).Up()
		s.follows(t, d, 1)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
		s.has(t, d, 1)
		require.NoError(t, d.Close())
	})
}

// Whatever happens to the network of any member, a follower that is not torn is a disk that crashed at some
// barrier, at each moment.
func TestFollowerIsACrashedDisk(t *testing.T) {
	for name, tt := range map[string]struct {
		lanes int
		drop  bool
		cfg   rdmafake.Config
	}{
		"one lane":    {lanes: 1},
		"three lanes": {lanes: 3},
		"drops":       {lanes: 2, drop: true},
		"tiny queues": {lanes: 2, cfg: rdmafake.Config{MaxSendWR: 2, MaxReads: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFollowerIsACrashedDisk(t, tt.lanes, tt.drop, tt.cfg, rand.Uint64()) })
		})
	}
}

func testFollowerIsACrashedDisk(t *testing.T, lanes int, drop bool, cfg rdmafake.Config, seed uint64) {
	t.Logf("seed %d", seed)
	s := followed(t, 2, cfg)
	d := s.dialAsync(t, lanes, func(cfg *Config) { cfg.AsyncDrop, cfg.LegTimeout, cfg.AsyncLagTime = drop, time.Second, 2*time.Second })
	j := newJournal(t, d, seed)
	durable := make([]byte, regionSize)
	s[2].sync.mu.Lock()
	s[2].sync.synced = func() { copy(durable, s[2].region.Data()) }
	s[2].sync.mu.Unlock()
	rng := rand.New(rand.NewPCG(seed, 8))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(j.rng.IntN(20)) * time.Millisecond):
				j.step(t)
			}
		}
	}()
	looked := 0
	look := func() {
		s.network(2).Pause()
		synctest.Wait()
		if !s.record(2).Torn {
			looked++
			s[2].sync.mu.Lock()
			assert.NoError(t, j.check(rng, durable, s[2].region.Data()))
			s[2].sync.mu.Unlock()
		}
		s.network(2).Resume()
	}
	for round := 0; looked < 10 && round < 60; round++ {
		time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
		i := rng.IntN(4)
		if i > 1 {
			i = 2
		}
		switch rng.IntN(4) {
		case 0:
			s.network(i).Cut()
		case 1:
			s.network(i).Down()
			time.Sleep(time.Duration(rng.IntN(2500)) * time.Millisecond)
			s.network(i).Up()
		case 2:
			release := s[i].sync.blockData()
			time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
			release()
		default: // it falls behind, and catches up barrier by barrier
			release := s[2].sync.blockData()
			for range 4 {
				time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
				next := s[2].sync.blockData()
				release()
				release = next
				look()
			}
			release()
		}
		look()
		if t.Failed() {
			break
		}
	}
	close(stop)
	<-ended
	s[2].sync.mu.Lock()
	s[2].sync.synced = nil
	s[2].sync.mu.Unlock()
	t.Logf("looked %d times at %d writes", looked, j.number)
	require.Greater(t, looked, 5)
	require.NoError(t, j.client.Do(j.client.Flush()))
	s.follows(t, d, 2)
	s.has(t, d, 2)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}
