package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// followers are starts of mirrors with asynchronous members (mirror §7).
var followers = []start{
	{name: "7 a follower counts nothing", n: 3, m: 1, async: "C", legs: []string{"A away", "B away", "C held follows 1.1{AB}"},
		want: Wait, waits: "AB", why: "--degraded with C (c.example) alone as target promotes it"},
	{name: "7 a follower is not waited for", n: 3, m: 1, async: "C", legs: []string{"A held clean 1.1{AB}", "B held 1.1{AB}", "C away"},
		want: Begin, f: "AB", eq: "AB", clean: true},
	{name: "7 it makes no majority", n: 4, m: 2, async: "D", legs: []string{"A held 1.1{ABC}", "B away", "C away", "D held follows 1.1{ABC}"},
		want: Wait, waits: "BC", why: "2 of 3 members would do"},
	{name: "7 it makes no majority smaller", n: 4, m: 2, async: "D", legs: []string{"A held clean 1.1{ABC}", "B held 1.1{ABC}", "C away", "D away"},
		want: Begin, f: "AB", eq: "AB", clean: true, why: "a majority"},
	{name: "7 its generation counts", n: 3, m: 1, async: "C", legs: []string{"A held 1.1{AB}", "B away", "C held follows 1.1{AB} 1.2{B}"},
		want: Wait, waits: "B", why: "C (c.example) follows the others"},
	{name: "7 --degraded copies nothing to it from an older one", n: 3, m: 1, async: "C", degraded: true, legs: []string{"A held 1.1{AB}", "B away", "C held follows 1.1{AB} 1.2{B}"},
		want: Refuse, why: "C (c.example) followed generation 1.2{B}, and no member in sync that was reached knows more than generation 1.1{AB}"},
	{name: "7 it does if that has no contents of its own", n: 3, m: 1, async: "C", degraded: true, legs: []string{"A held 1.1{AB}", "B away", "C held 1.1{AB} 1.2{B}"},
		want: Begin, f: "A", eq: "A", fill: "BC", why: "--degraded"},
	{name: "7 promoted: opened first", n: 3, m: 1, async: "C", degraded: true, legs: []string{"A away", "B away", "C probed follows 1.1{AB} 2.1{AB}"},
		want: Open, open: "C", why: "promotes C (c.example), which followed generation 2.1{AB}"},
	{name: "7 promoted", n: 3, m: 2, async: "C", degraded: true, legs: []string{"A away", "B away", "C held follows 1.1{AB} 2.1{AB}"},
		want: Begin, f: "C", eq: "C", fill: "AB", why: "up to barrier 7 of that life"},
	{name: "7 promoted: another one holds it", n: 3, m: 1, async: "C", degraded: true, legs: []string{"C refused follows 1.1{AB} 2.1{AB}"},
		want: Wait, waits: "C", why: "grants no session"},
	{name: "7 not promoted while one of F is there", n: 3, m: 1, async: "C", degraded: true, legs: []string{"A held 1.1{AB}", "B away", "C held follows 1.1{AB}"},
		want: Begin, f: "A", eq: "A", fill: "BC", why: "--degraded"},
	{name: "7 torn: not promoted", n: 3, m: 1, async: "C", degraded: true, legs: []string{"C held 1.1{AB}"},
		want: Refuse, why: "no member that was reached has the data"},
	{name: "7 without its contents: not promoted", n: 3, m: 1, async: "C", degraded: true, legs: []string{"C held lost follows 1.1{AB}"},
		want: Refuse, why: "each lost its contents"},
	{name: "7 of two followers the one that came further", n: 4, m: 1, async: "CD", degraded: true, legs: []string{"C held follows 1.1{AB}", "D held follows 1.1{AB} 1.2{A}"},
		want: Begin, f: "D", eq: "D", fill: "ABC"},
	{name: "7 promoted, with an arbiter", n: 3, m: 2, async: "C", degraded: true, arbiter: "1.1{AB} 2.1{AB} 2.2{A}", legs: []string{"A away", "B away", "C held follows 1.1{AB} 2.1{AB}"},
		want: Begin, f: "C", eq: "C", fill: "AB", why: "up to barrier 7 of that life"},
	{name: "7 with an arbiter: not promoted while one of its F is there", n: 3, m: 1, async: "C", degraded: true, arbiter: "1.1{AB} 1.2{A} 1.3{AB}", legs: []string{"A away", "B held 1.1{AB} 1.2{A}", "C held follows 1.1{AB} 1.2{A}"},
		want: Begin, f: "B", eq: "B", fill: "AC", why: "the arbiter"},
	{name: "7 with an arbiter: one that it says to be behind is no reason", n: 3, m: 1, async: "C", degraded: true, arbiter: "1.1{AB} 1.2{A}", legs: []string{"A away", "B held 1.1{AB}", "C held follows 1.1{AB}"},
		want: Refuse, why: "pmnbd mirror forget"},
	{name: "7 with an arbiter: not without --degraded", n: 3, m: 1, async: "C", arbiter: "1.1{AB}", legs: []string{"A away", "B away", "C held follows 1.1{AB}"},
		want: Wait, waits: "AB", why: "--degraded with C (c.example) alone as target promotes it"},
	{name: "7 the others lost everything", n: 3, m: 1, async: "C", legs: []string{"A held lost 1.1{AB}", "B held lost 1.1{AB}", "C held follows 1.1{AB}"},
		want: Refuse, why: "--degraded with C"},
}

// After a promotion every member of the life that was followed went its own way, whatever generation of
// that life it is in: it may have flushed data that the promoted one lacks. Members that are older are
// behind.
func TestPromotionLeavesTheOthers(t *testing.T) {
	of := mirrorOf{4, 1, "C"}
	d := Decide(Found{Degraded: true, Legs: of.legs("C held follows 1.1{ABD} 2.1{AB} 2.2{A} 2.3{AB}")})
	require.Equal(t, Begin, d.Outcome, d.Why)
	require.Equal(t, persist.Point{Barrier: 7, At: 1}, d.Promoted)
	v := Start(&d, 3, [16]byte{42}).Activated()
	require.Equal(t, "C", v.Record.F.String())
	require.Zero(t, v.Record.Async)
	require.EqualValues(t, 1, v.Record.MinCopies)
	require.NoError(t, v.Record.Check())
	for _, c := range []struct {
		leg  string
		want Meeting
	}{
		{"A held 1.1{ABD} 2.1{AB} 2.2{A} 2.3{AB}", OwnWay},
		{"A held 1.1{ABD} 2.1{AB} 2.2{A} 2.3{AB} 2.4{A}", OwnWay},
		{"B held 1.1{ABD} 2.1{AB}", OwnWay},
		{"A held 1.1{ABD} 2.1{AB} 2.2{A} 3'.1{A}", OwnWay},
		{"B held 1.1{ABD} 2.1{AB} 2.2{A}", ResyncAll}, // torn
		{"D held 1.1{ABD}", Resync},
	} {
		l := of.leg(c.leg)
		require.Equal(t, c.want, v.Meet(&l), c.leg)
	}
	both := of.legs("A held 1.1{ABD} 2.1{AB} 2.2{A} 2.3{AB}", "B held 1.1{ABD} 2.1{AB} 2.2{A} 2.3{AB}")
	r, _ := v.RecordFor(2)
	again := Decide(Found{Legs: append(both, Leg{Name: "c.example", Reach: Held, Record: r, Contents: contents(2), Epoch: 5})})
	require.Equal(t, Refuse, again.Outcome)
	require.True(t, again.SplitBrain)
	for _, name := range []string{"A (a.example)", "B (b.example)", "3.1{C}"} {
		require.Contains(t, again.Why, name)
	}
}

// A member that follows is never taken in, and says that it is not torn only of a generation that is
// active.
func TestFollowing(t *testing.T) {
	of := mirrorOf{3, 1, "C"}
	d := Decide(Found{Legs: of.legs("A held clean 1.1{AB}", "B held 1.1{AB}", "C held 1.1{AB}")})
	v := Start(&d, 2, [16]byte{42})
	at := persist.Point{Barrier: 3, At: 5}
	_, ok := v.FollowRecord(2, at)
	require.False(t, ok, "the generation is not active")
	v = v.Activated()
	_, err := v.TakeIn(2, contents(2), 6)
	require.ErrorContains(t, err, "asynchronous")
	_, ok = v.FollowRecord(1, at)
	require.False(t, ok, "it is in F")
	r, ok := v.FollowRecord(2, at)
	require.True(t, ok)
	require.NoError(t, r.Check())
	require.Equal(t, at, r.Follows)
	l := Leg{Reach: Held, Record: r, Contents: contents(2), Epoch: 5}
	require.Equal(t, StateFollows, v.State(&l))
	require.Equal(t, Resync, v.Meet(&l))
	l.Reach = Away
	require.Equal(t, StateAway, v.State(&l))
	torn, _ := v.RecordFor(2)
	l.Record = torn
	require.Equal(t, StateTorn, v.State(&l))
	next, err := v.LetGo(1, false)
	require.NoError(t, err)
	require.Zero(t, next.Record.Follows)
	require.Equal(t, persist.Member(2), next.Record.Async)
}
