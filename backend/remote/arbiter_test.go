package remote

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

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
	require.Equal(t, persist.Members(3), a.record(0).F)
	require.Equal(t, []string{"2.1{AB}", "2.2{A}", "2.3{AB}"}, told)
	require.True(t, a.record(0).Arbiter)
	held := a.holds()
	require.Equal(t, a.record(0).Ancestor, held.Ancestor)
	require.NoError(t, d.Close())

	plain := a.cfg
	plain.Arbiter = nil
	_, err := Dial(context.Background(), plain)
	require.ErrorAs(t, err, new(*MirrorError))
	require.ErrorContains(t, err, "--arbiter")
}

// While nothing changes nobody asks the arbiter what it holds.
func TestArbiterIsAskedForChangesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArbitrated(t)
		d, c := a.dial(t)
		asked := a.asked
		for range 3 {
			time.Sleep(time.Minute)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			d.core.copies.rouse()
			synctest.Wait()
		}
		require.Equal(t, asked, a.asked)
		require.NoError(t, d.Close())
	})
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
	require.Equal(t, persist.Members(1), a.record(0).F)
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
	require.Equal(t, persist.Members(3), a.record(0).F, "nobody knows whether the arbiter has it")
	require.False(t, flush.Completed())
	a.cutOff(true)
	time.Sleep(time.Minute)
	a.cutOff(false) // with another lease it has to look
	time.Sleep(time.Minute)
	require.False(t, flush.Completed())
	require.NoError(t, d.core.failed())
	a.mu.Lock()
	a.mute = nil
	a.mu.Unlock()
	require.NoError(t, c.Wait(flush))
	require.Equal(t, persist.Members(1), a.record(0).F)
	a.network(1).Up()
	require.NoError(t, d.Close())
}

// A life that finds another one's generation at the arbiter ends for good, and leaves that generation there. The
// other life may have come after the arbiter last answered (mirror §4.8).
func TestArbiterKnowsAnother(t *testing.T) {
	for name, swap := range map[string]int{
		"before the change":               0,
		"after the answer that allows it": 1,
		"after the answer to it was lost": 2,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testArbiterKnowsAnother(t, swap) })
		})
	}
}

// testArbiterKnowsAnother has another life come just before the Swap of that number takes effect, or before the
// change if it is 0. The answers to the Swaps before that one are lost.
func testArbiterKnowsAnother(t *testing.T, swap int) {
	a := newArbitrated(t)
	d, c := a.dial(t)
	var other persist.Record
	if swap == 0 {
		other = a.another()
	}
	swaps := 0
	a.beforeSwap(func(*persist.Record) {
		swaps++
		if a.silent(swaps < swap); swaps == swap {
			other = a.another()
		}
	})
	a.network(1).Down()
	require.Error(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.Equal(t, swap, swaps)
	require.True(t, d.Snapshot().Taken)
	require.Equal(t, other, a.holds())
	require.Equal(t, persist.Members(3), a.record(0).F)
	a.network(1).Up()
	require.Error(t, d.Close())
}

// The arbiter may have kept a change, and its answer was lost. The next change of the same life takes the place of
// that one. It does not take the place of another life's, which has come meanwhile (mirror §4.8).
func TestArbiterAnswerLostAndAnotherChange(t *testing.T) {
	for name, another := range map[string]bool{"the arbiter holds the life's own": false, "another life comes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testArbiterAnswerLostAndAnotherChange(t, another) })
		})
	}
}

func testArbiterAnswerLostAndAnotherChange(t *testing.T, another bool) {
	a := newArbitratedOf(t, 3)
	d, c := a.dial(t)
	a.silent(true)
	a.network(1).Down()
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	time.Sleep(time.Minute)
	require.Equal(t, persist.Members(5), a.holds().F)
	a.network(2).Down()
	time.Sleep(time.Minute)
	require.Equal(t, persist.Members(5), a.holds().F, "the life does not know yet that the arbiter holds this")
	require.Equal(t, persist.Members(7), a.record(0).F)
	synctest.Wait() // it has asked, if it was about to
	var other persist.Record
	swaps := 0
	a.beforeSwap(func(*persist.Record) {
		if swaps++; another && swaps == 2 { // the first one has found the life's own
			other = a.another()
		}
	})
	a.silent(false)
	err := c.Wait(flush)
	require.Equal(t, 2, swaps)
	if another {
		require.Error(t, err)
		require.True(t, d.Snapshot().Taken)
		require.Equal(t, other, a.holds())
		require.Equal(t, persist.Members(7), a.record(0).F)
	} else {
		require.NoError(t, err)
		require.Equal(t, persist.Members(1), a.record(0).F)
		require.Equal(t, a.record(0).Ancestor, a.holds().Ancestor)
	}
	a.network(1).Up()
	a.network(2).Up()
	require.Equal(t, another, d.Close() != nil)
}

// A life that began from what the arbiter held does not go on after somebody had the arbiter forget that.
func TestArbiterForgetsBeforeALifeBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArbitrated(t)
		d, _ := a.dial(t)
		require.NoError(t, d.Close())
		before := a.record(0)
		a.beforeSwap(func(*persist.Record) {
			a.mu.Lock()
			a.held = persist.Record{}
			a.mu.Unlock()
		})
		_, err := Dial(context.Background(), a.cfg)
		require.ErrorAs(t, err, new(*TakenError))
		require.Zero(t, a.holds())
		require.Equal(t, before, a.record(0))
	})
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

// A change that somebody asks for waits for an answer of the arbiter, and fails if there is none.
func TestArbiterAndMembers(t *testing.T) { synctest.Test(t, testArbiterAndMembers) }

func testArbiterAndMembers(t *testing.T) {
	a := newArbitrated(t)
	d, _ := a.dial(t)
	for _, m := range []int{2, 1} {
		time.Sleep(time.Minute)
		require.NoError(t, d.SetMinCopies(context.Background(), m))
		require.Equal(t, a.record(0).Ancestor, a.holds().Ancestor)
		require.Equal(t, uint8(m), a.holds().MinCopies)
	}
	a.cutOff(true)
	for range 2 { // at first its lease lives
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, d.SetMinCopies(context.Background(), 2), errArbiterAway)
		time.Sleep(time.Minute)
	}
	a.cutOff(false)
	time.Sleep(time.Minute)
	require.NoError(t, d.SetMinCopies(context.Background(), 2))
	require.NoError(t, d.Close())
}
