package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// A fakeArbiter is an arbiter in memory, whose leases end by the clock.
type fakeArbiter struct {
	lease time.Duration
	mu    sync.Mutex
	held  persist.Record
	terms []*fakeTerm
	swaps int
	swap  func(next *persist.Record) // is called before a Swap takes effect
	mute  error                      // of each Swap, whether it takes effect or not
}

// A fakeTerm is a Term. Its initiator reaches the arbiter unless it is cut off.
type fakeTerm struct {
	arbiter *fakeArbiter
	id      [16]byte
	cut     time.Time // since when the arbiter hears nothing of it; zero: it does
	over    bool
}

func newFakeArbiter() *fakeArbiter { return &fakeArbiter{lease: 5 * time.Second} }

func (a *fakeArbiter) Join(ctx context.Context, _, id [16]byte, waits func(string)) (Term, error) {
	for {
		a.mu.Lock()
		t := &fakeTerm{arbiter: a, id: id}
		var left time.Duration
		for _, other := range a.terms {
			if l := other.leftLocked(); other.id != id {
				left = max(left, l)
			}
		}
		if left == 0 {
			for _, other := range a.terms {
				other.over = true
			}
			a.terms = append(a.terms, t)
		}
		a.mu.Unlock()
		if left == 0 {
			return t, nil
		}
		waits("another initiator has the mirror")
		select {
		case <-time.After(min(left, time.Second)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// leftLocked is how long the arbiter keeps the mirror for t.
func (t *fakeTerm) leftLocked() time.Duration {
	switch {
	case t.over:
		return 0
	case t.cut.IsZero():
		return t.arbiter.lease
	}
	return max(0, t.arbiter.lease-time.Since(t.cut))
}

func (t *fakeTerm) Until() time.Time {
	t.arbiter.mu.Lock()
	defer t.arbiter.mu.Unlock()
	return time.Now().Add(t.leftLocked() - time.Second)
}

var errUnreachable = errors.New("the test has cut the arbiter off")

func (t *fakeTerm) Held(context.Context) (persist.Record, error) {
	t.arbiter.mu.Lock()
	defer t.arbiter.mu.Unlock()
	if !t.cut.IsZero() {
		return persist.Record{}, errUnreachable
	}
	return t.arbiter.held, nil
}

func (t *fakeTerm) Swap(_ context.Context, old, next persist.Record) (persist.Record, error) {
	a := t.arbiter
	if swap := a.swap; swap != nil {
		swap(&next)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.swaps++
	switch {
	case !t.cut.IsZero():
		return persist.Record{}, errUnreachable
	case a.held == old && !t.over:
		a.held = next
	}
	return a.held, a.mute
}

func (t *fakeTerm) End(context.Context, bool) error {
	t.arbiter.mu.Lock()
	defer t.arbiter.mu.Unlock()
	t.over = true
	return nil
}

// cutOff keeps the arbiter from hearing anything of the initiator that joined last, or ends that.
func (a *fakeArbiter) cutOff(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.terms[len(a.terms)-1]
	if t.cut = (time.Time{}); on {
		t.cut = time.Now()
	}
}

func (a *fakeArbiter) holds() persist.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// An arbitrated is a mirror of two with an arbiter, in a bubble.
type arbitrated struct {
	pairs
	*fakeArbiter
	cfg Config
}

func newArbitrated(t *testing.T) *arbitrated {
	var s pairs
	for range 2 {
		s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second}))
	}
	s.join(t, 1)
	a := &arbitrated{s, newFakeArbiter(), s.config(t)}
	a.cfg.Arbiter, a.cfg.LegTimeout = a.fakeArbiter, time.Second
	return a
}

func (a *arbitrated) dial(t *testing.T) (*Device, *backendtest.Client) {
	t.Helper()
	d, err := Dial(context.Background(), a.cfg)
	require.NoError(t, err)
	return d, backendtest.NewClient(t, d)
}

// standby dials as another initiator does, which knows these members.
func (a *arbitrated) standby(t *testing.T, members ...int) (*Device, *backendtest.Client) {
	t.Helper()
	cfg := a.cfg
	cfg.ID, cfg.StateDir, cfg.WindowDir, cfg.Members = [16]byte{7}, t.TempDir(), "", nil
	for _, i := range members {
		cfg.Members = append(cfg.Members, a.cfg.Members[i])
	}
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return d, backendtest.NewClient(t, d)
}

// abandon ends a device as the death of its process does.
func abandon(d *Device) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Shutdown(ctx) // what it says is about what was lost
}

// The arbiter has each generation before a member does: the first of a life, one that lets a member go,
// and one that takes it in (mirror §4.8).
func TestArbiterKnowsFirst(t *testing.T) { synctest.Test(t, testArbiterKnowsFirst) }

func testArbiterKnowsFirst(t *testing.T) {
	a := newArbitrated(t)
	var told []string
	a.swap = func(next *persist.Record) {
		told = append(told, fmt.Sprintf("%v{%v}", next.Generation, next.F))
		for i := range a.pairs {
			require.True(t, a.pairs.record(i).Before(next.Generation), "member %v knows %v", persist.Member(i), next.Generation)
		}
	}
	d, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	a.network(1).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	a.network(1).Up()
	time.Sleep(time.Minute)
	require.Equal(t, persist.Members(3), a.pairs.record(0).F)
	require.Equal(t, []string{"2.1{AB}", "2.2{A}", "2.3{AB}"}, told)
	require.True(t, a.pairs.record(0).Arbiter)
	held := a.holds()
	require.Equal(t, a.pairs.record(0).Ancestor, held.Ancestor)
	require.NoError(t, d.Close())

	plain := a.cfg
	plain.Arbiter = nil
	_, err := Dial(context.Background(), plain)
	require.ErrorAs(t, err, new(*MirrorError))
	require.ErrorContains(t, err, "--arbiter")
}

// While the arbiter does not answer no generation begins, and everything else goes on. A member that is
// back before the arbiter is not let go (mirror §4.8).
func TestArbiterAway(t *testing.T) { synctest.Test(t, testArbiterAway) }

func testArbiterAway(t *testing.T) {
	a := newArbitrated(t)
	d, c := a.dial(t)
	swaps := a.swaps
	a.cutOff(true)
	for range 3 {
		time.Sleep(time.Minute)
		read := c.Read(0, block, 0)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush(), read), "all members in sync are heard: nobody else has begun")
		require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	}
	a.network(1).Down()
	flush, read := c.Flush(), c.Read(0, block, 0)
	c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
	time.Sleep(time.Minute)
	c.Submit(read)
	time.Sleep(time.Minute)
	require.False(t, flush.Completed(), "the member must not be let go")
	require.False(t, read.Completed(), "another life may have begun with the member that is away")
	require.Equal(t, swaps, a.swaps)
	a.network(1).Up()
	require.NoError(t, c.Wait(flush, read))
	require.Equal(t, backendtest.Pattern(block, 2), read.Got)
	require.Equal(t, swaps, a.swaps, "nothing has changed")

	a.network(1).Down()
	flush = c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 3), 0), flush)
	time.Sleep(time.Minute)
	a.cutOff(false)
	require.NoError(t, c.Wait(flush))
	require.Equal(t, persist.Members(1), a.pairs.record(0).F)
	a.network(1).Up()
	require.NoError(t, d.Close())
}

// An answer of the arbiter that is lost does not make its own generation somebody else's.
func TestArbiterAnswerLost(t *testing.T) { synctest.Test(t, testArbiterAnswerLost) }

func testArbiterAnswerLost(t *testing.T) {
	a := newArbitrated(t)
	d, c := a.dial(t)
	a.mu.Lock()
	a.mute = errUnreachable
	a.mu.Unlock()
	a.network(1).Down()
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	time.Sleep(time.Minute)
	require.Equal(t, persist.Members(1), a.holds().F)
	require.Equal(t, persist.Members(3), a.pairs.record(0).F, "nobody knows whether the arbiter has it")
	require.False(t, flush.Completed())
	a.mu.Lock()
	a.mute = nil
	a.mu.Unlock()
	require.NoError(t, c.Wait(flush))
	require.Equal(t, persist.Members(1), a.pairs.record(0).F)
	a.network(1).Up()
	require.NoError(t, d.Close())
}

// A life that finds another one's generation at the arbiter ends for good (mirror §4.8).
func TestArbiterKnowsAnother(t *testing.T) { synctest.Test(t, testArbiterKnowsAnother) }

func testArbiterKnowsAnother(t *testing.T) {
	a := newArbitrated(t)
	d, c := a.dial(t)
	a.mu.Lock()
	a.held.Life, a.held.Nonce = 9, [16]byte{9}
	a.mu.Unlock()
	a.network(1).Down()
	require.Error(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.True(t, d.Snapshot().Taken)
	require.Equal(t, persist.Members(3), a.pairs.record(0).F)
	a.network(1).Up()
	require.Error(t, d.Close())
}

// A standby begins with one member of two once the lease of the active one is over. Of the active one,
// which reaches only the other member, nothing is read from then on, and its writes land nowhere that
// counts (mirror §4.7, §4.8).
func TestStandby(t *testing.T) { synctest.Test(t, testStandby) }

func testStandby(t *testing.T) {
	a := newArbitrated(t)
	old, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	a.cutOff(true)
	time.AfterFunc(a.lease-100*time.Millisecond, a.network(1).Freeze) // what the active one sends to B never arrives
	began := time.Now()
	d, n := a.standby(t, 1)
	require.GreaterOrEqual(t, time.Since(began), a.lease)
	read := n.Read(0, block, 0)
	require.NoError(t, n.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 2), 0), n.Flush()))

	late, flush := c.Read(0, block, 0), c.Flush()
	c.Submit(late, c.Write(0, backendtest.Pattern(block, 3), 0), flush)
	time.Sleep(10 * time.Minute)
	require.NotEqual(t, backendtest.Pattern(block, 1), late.Got, "it would be stale")
	a.network(1).Thaw()
	require.Error(t, c.Wait(flush))
	require.Error(t, late.Err)
	require.True(t, old.Snapshot().Taken)
	require.Equal(t, backendtest.Pattern(block, 2), a.pairs[1].region.Data()[:block])
	require.Error(t, old.Close())
	require.NoError(t, d.Close())
}

// A standby that reaches all members waits for nothing but the lease at the arbiter.
func TestStandbyWithAllMembers(t *testing.T) { synctest.Test(t, testStandbyWithAllMembers) }

func testStandbyWithAllMembers(t *testing.T) {
	a := newArbitrated(t)
	old, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	a.cutOff(true)
	abandon(old)
	a.mu.Lock()
	a.terms[0].over = false // a process that was killed tells nobody
	a.mu.Unlock()
	began := time.Now()
	d, n := a.standby(t, 0, 1)
	require.LessOrEqual(t, time.Since(began), a.lease+time.Second)
	read := n.Read(0, block, 0)
	require.NoError(t, n.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	require.NoError(t, d.Close())

	began = time.Now()
	d, _ = a.dial(t) // as any initiator: after an orderly end the mirror is free at once
	require.Less(t, time.Since(began), time.Second)
	require.NoError(t, d.Close())
}

// Data that come when the fence has closed are no answer, also if nobody has looked at the clock since:
// the process may have been stopped. The session is taken up anew, and its target would say if it were
// somebody else's.
func TestReadIsFencedWhenItsDataCome(t *testing.T) { synctest.Test(t, testReadIsFencedWhenItsDataCome) }

func testReadIsFencedWhenItsDataCome(t *testing.T) {
	a := newArbitrated(t)
	d, c := a.dial(t)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	recoveries := d.Snapshot().Recoveries
	d.core.copies.fence.until.Store(0)
	read := c.Read(0, block, 0)
	require.NoError(t, c.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	time.Sleep(time.Second)
	require.Greater(t, d.Snapshot().Recoveries, recoveries)
	require.NoError(t, d.Close())
}

// A mirror that is made with an arbiter is known to it from the first generation on.
func TestCreateWithArbiter(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	for _, p := range s {
		require.NoError(t, p.region.SetRecord(persist.Record{}, 0))
	}
	cfg, a := s.config(t), newFakeArbiter()
	cfg.Arbiter = a
	for range 2 { // the second run is as one after an interrupted first
		_, err := CreateMirror(context.Background(), cfg, NewMirror{})
		require.NoError(t, err)
		require.Equal(t, s.record(0).Ancestor, a.holds().Ancestor)
		require.True(t, s.record(1).Arbiter)
	}
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.Equal(t, s.record(0).Ancestor, a.holds().Ancestor)
}
