package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// begun returns the View of life 2 of a mirror with n members, which all are held.
func begun(t *testing.T, n, m int, texts ...string) View {
	t.Helper()
	d := Decide(Found{Legs: mirrorOf{n: n, m: m}.legs(texts...)})
	require.Contains(t, []Outcome{Begin, Copy}, d.Outcome, d.Why)
	return Start(&d, 2, [16]byte{2})
}

// active returns the same, with its first generation active.
func active(t *testing.T, n, m int, texts ...string) View {
	t.Helper()
	v := begun(t, n, m, texts...)
	require.True(t, v.Pending)
	require.False(t, v.Serves(), "mirror §4.1")
	return v.Activated()
}

var (
	two   = []string{"A held clean 1.1{AB}", "B held 1.1{AB}"}
	three = []string{"A held clean 1.1{ABC}", "B held 1.1{ABC}", "C held 1.1{ABC}"}
	// crashed is an unclean end: A becomes the source.
	crashed = []string{"A held 1.1{ABC}", "B held 1.1{ABC}", "C held 1.1{ABC}"}
)

func TestStart(t *testing.T) {
	v := begun(t, 2, 1, two...)
	require.True(t, v.Pending)
	require.Equal(t, ancestor("2.1{AB}").Generation, v.Record.Generation)
	require.Equal(t, "AB", v.Record.F.String())
	require.Equal(t, "AB", v.Next(0).String())
	require.Equal(t, "B", v.Next(members("A")).String())
	require.False(t, v.Flushes())
	v = v.Activated()
	require.True(t, v.Serves())
	require.True(t, v.Flushes())
	require.Zero(t, v.Next(0))
}

// Mirror §3.3: letting a leg go.
func TestLetGo(t *testing.T) {
	v := active(t, 2, 1, two...)
	gone, err := v.LetGo(1, false)
	require.NoError(t, err)
	require.True(t, gone.Pending)
	require.False(t, gone.Flushes(), "§3.2")
	require.Equal(t, ancestor("2.2{A}").Generation, gone.Record.Generation)
	require.Equal(t, "A", gone.Record.F.String())
	require.Equal(t, "A", gone.Equal.String())
	require.Equal(t, "A", gone.Next(0).String())
	r, fill := gone.RecordFor(0)
	require.Zero(t, fill, "B was equal: its bits say what it lacks")
	require.NoError(t, r.Check())
	require.Equal(t, v.Record.Ancestor, r.Lineage[0])

	_, err = gone.LetGo(0, false)
	require.ErrorIs(t, err, ErrBelowMin)
	again, err := gone.LetGo(1, false)
	require.NoError(t, err)
	require.Equal(t, gone, again, "B has left already")
}

func TestLetGoRules(t *testing.T) {
	t.Run("3.3 never below M", func(t *testing.T) {
		v := active(t, 3, 2, three...)
		v, err := v.LetGo(2, false)
		require.NoError(t, err)
		_, err = v.LetGo(1, false)
		require.ErrorIs(t, err, ErrBelowMin)
	})
	t.Run("4.5 never without an equal leg", func(t *testing.T) {
		v := active(t, 3, 2, crashed...)
		require.Equal(t, "A", v.Equal.String())
		_, err := v.LetGo(0, false)
		require.ErrorIs(t, err, ErrNoneEqual)
	})
	t.Run("3.6 it leaves before it was equal", func(t *testing.T) {
		v := active(t, 3, 2, crashed...)
		v, err := v.LetGo(2, false)
		require.NoError(t, err)
		_, fill := v.RecordFor(0)
		require.Equal(t, "C", fill.String())
	})
	t.Run("3.6 it leaves without its contents", func(t *testing.T) {
		v := active(t, 2, 1, two...)
		v, err := v.LetGo(1, true)
		require.NoError(t, err)
		_, fill := v.RecordFor(0)
		require.Equal(t, "B", fill.String())
	})
	t.Run("3.3 a generation replaces a pending one", func(t *testing.T) {
		v := active(t, 3, 1, three...)
		v, err := v.LetGo(2, true)
		require.NoError(t, err)
		attempt := v.Record.Ancestor
		v, err = v.LetGo(1, false)
		require.NoError(t, err)
		require.Equal(t, "2.3", v.Record.String())
		require.Equal(t, attempt, v.Record.Lineage[0], "§4.6: what a life began is in its lineage")
		_, fill := v.RecordFor(0)
		require.Equal(t, "C", fill.String(), "the first attempt owes it")
	})
	t.Run("4.1 nothing before there is a generation", func(t *testing.T) {
		v := begun(t, 3, 2, "A held 1.1{ABC} 1.2{AB}", "B away", "C held 1.1{ABC}")
		_, err := v.LetGo(0, false)
		require.ErrorIs(t, err, ErrChanging)
	})
}

// Mirror §5.5: the joiner comes last, and takes over the bits.
func TestTakeIn(t *testing.T) {
	v := active(t, 3, 1, three...)
	for _, leg := range []int{1, 2} {
		var err error
		v, err = v.LetGo(leg, false)
		require.NoError(t, err)
		v = v.Activated()
	}
	require.Equal(t, "A", v.Active.String())
	join, err := v.TakeIn(2, [16]byte{42}, 17)
	require.NoError(t, err)
	require.Equal(t, "AC", join.Record.F.String())
	require.Equal(t, "A", join.Equal.String(), "§3.7: nobody reads from it yet")
	require.False(t, join.Flushes(), "§3.2: an old barrier does not count")
	require.Equal(t, "A", join.Next(0).String())
	require.Equal(t, "C", join.Next(members("A")).String())
	require.Zero(t, join.Next(members("AC")))
	r, fill := join.RecordFor(2)
	require.Equal(t, "B", fill.String(), "C does not know what B lacks")
	require.Equal(t, [16]byte{42}, r.Members[2].Contents)
	require.EqualValues(t, 17, r.Members[2].Epoch)
	_, fill = join.RecordFor(0)
	require.Zero(t, fill)

	_, err = join.TakeIn(1, contents(1), 5)
	require.ErrorIs(t, err, ErrChanging)
	_, err = begun(t, 2, 1, two...).TakeIn(1, contents(1), 5)
	require.ErrorIs(t, err, ErrChanging)
	done := join.Activated()
	require.Equal(t, "AC", done.Equal.String())
	require.True(t, done.Flushes())
	same, err := done.TakeIn(2, [16]byte{42}, 17)
	require.NoError(t, err)
	require.Equal(t, done, same)

	// The joiner is lost again before the generation is active.
	left, err := join.LetGo(2, false)
	require.NoError(t, err)
	require.Zero(t, left.Joiner)
	require.Equal(t, "A", left.Activated().Equal.String())
	// An older leg is lost: the joiner stays one, but may not be the only one.
	_, err = join.LetGo(0, false)
	require.ErrorIs(t, err, ErrNoneEqual)
}

// Mirror §4.4: copies first, because there are fewer than M.
func TestCopyFirst(t *testing.T) {
	legs := mirrorOf{n: 3, m: 2}.legs("A held 1.1{ABC} 1.2{AB}", "B away", "C held 1.1{ABC}")
	legs[0].Epoch = 7 // of the session
	d := Decide(Found{Legs: legs})
	require.Equal(t, Copy, d.Outcome)
	v := Start(&d, 2, [16]byte{2})
	require.False(t, v.Pending)
	require.False(t, v.Serves())
	require.Equal(t, "A", v.Equal.String())
	c := mirrorOf{n: 3, m: 2}.leg("C held lost 1.1{ABC}") // it boots
	require.Equal(t, ResyncAll, v.Meet(&c))
	_, err := v.Renew(&c)
	require.ErrorIs(t, err, ErrChanging, "§3.6: it is not named before it is taken in")
	torn, _ := v.RecordFor(2)
	source, _ := v.RecordFor(0)
	for _, r := range []persist.Record{torn, source} {
		r.Slot, r.Torn = 0, false
		require.Equal(t, mirrorOf{n: 3, m: 2}.leg("A held 1.1{ABC} 1.2{AB}").Record, r, "what F has of this generation does not change")
	}
	found := &[persist.MaxMembers]persist.Membership{0: {Contents: contents(0), Epoch: 7}, 2: {Contents: [16]byte{9}, Epoch: 8}}
	v = v.Equaled(2, found)
	require.True(t, v.Pending)
	require.Equal(t, "AC", v.Record.F.String())
	require.Equal(t, [16]byte{9}, v.Record.Members[2].Contents)
	require.EqualValues(t, 7, v.Record.Members[0].Epoch)
	for _, leg := range []int{0, 2} {
		_, fill := v.RecordFor(leg)
		require.Equal(t, "B", fill.String())
	}
	v = v.Activated()
	require.True(t, v.Flushes())
}

// Mirror §5.1: a degraded start passes C over, which is half copied in a generation that A does not know. It does not
// open C, and the life that copies first knows that C's record says nothing of what it copies.
func TestStray(t *testing.T) {
	legs := mirrorOf{n: 3, m: 2}.legs("A held 1.1{ABC}", "B away", "C probed 1.1{ABC} 1.2{AB}")
	d := Decide(Found{Degraded: true, Legs: legs})
	require.Equal(t, Copy, d.Outcome)
	v := Start(&d, 2, [16]byte{2})
	for text, strays := range map[string]bool{"C held 1.1{ABC} 1.2{AB}": true, "C held 1.1{ABC}": false, "C held": false} {
		c := mirrorOf{n: 3, m: 2}.leg(text)
		require.Equal(t, strays, v.Strays(&c), text)
	}
	c := mirrorOf{n: 3, m: 2}.leg("C held 1.1{ABC} 1.2{AB}")
	require.Equal(t, ResyncAll, v.Meet(&c))
	v.Active = v.Record.F
	require.False(t, v.Strays(&c), "it gets the record of a life that serves")
}

// Mirror §4.4: a FLUSH waits until M are equal, and no longer.
func TestEnough(t *testing.T) {
	v := active(t, 3, 2, crashed...)
	require.False(t, v.Flushes())
	_, ok := v.Enough()
	require.False(t, ok)
	v = v.Equaled(1, nil)
	require.False(t, v.Flushes(), "C is in F")
	next, ok := v.Enough()
	require.True(t, ok)
	require.Equal(t, "AB", next.Record.F.String())
	_, fill := next.RecordFor(0)
	require.Equal(t, "C", fill.String())
	after := next.Activated()
	require.True(t, after.Flushes())
	_, ok = next.Enough()
	require.False(t, ok, "it is pending")
	v = v.Equaled(2, nil)
	require.True(t, v.Flushes())
	_, ok = v.Enough()
	require.False(t, ok, "all are equal")
}

func TestMeet(t *testing.T) {
	of := mirrorOf{n: 3, m: 1}
	serving, err := active(t, 3, 1, three...).LetGo(2, false)
	require.NoError(t, err)
	serving = serving.Activated() // 2.2{AB}
	copying := begun(t, 3, 2, "A held 1.1{ABC} 1.2{AB}", "B away", "C held 1.1{ABC}")
	forced := Decide(Found{Degraded: true, Legs: mirrorOf{n: 3, m: 2}.legs("A held 1.1{ABC}", "B away", "C away")})
	degraded := Start(&forced, 2, [16]byte{2})
	renewing, lost := serving, of.leg("C held lost 1.1{ABC}")
	renewing, err = renewing.Renew(&lost)
	require.NoError(t, err)
	stranger := of.leg("C held 1.1{ABC}")
	stranger.Record.Members[2].UUID = [16]byte{7}
	for _, c := range []struct {
		name string
		v    View
		leg  Leg
		want Meeting
	}{
		{"in F", serving, of.leg("B held 1.1{ABC}"), Resume},
		{"3.6 in F, without its contents", serving, of.leg("B held lost 1.1{ABC}"), Gone},
		{"behind", serving, of.leg("C held 1.1{ABC}"), Resync},
		{"3.6 behind, without its contents", serving, of.leg("C held lost 1.1{ABC}"), ResyncAll},
		{"3.6 behind, put back from a copy", serving, of.leg("C held restored 1.1{ABC}"), ResyncAll},
		{"3.6 behind, and not all of F know it", renewing, lost, ResyncAll},
		{"4.6 it was alone", serving, of.leg("C held 1.1{ABC} 3.1{C}"), OwnWay},
		{"4.2d half copied, and newer", degraded, of.leg("B held 1.1{ABC} 1.2{AC}"), ResyncAll},
		{"4.2d newer", degraded, of.leg("B held 1.1{ABC} 1.2{BC}"), Again},
		{"4.6 what never was active", serving, of.leg("C held 1.1{ABC} 1.2{AC}"), Resync},
		{"4.6 half copied by another life", serving, of.leg("C held 1.1{ABC} 3.1{B}"), ResyncAll},
		{"5.1 half copied", serving, of.leg("C held 1.1{ABC} 2.1{ABC} 2.2{AB}"), Resync},
		{"no member", serving, Leg{Reach: Probed}, Stranger},
		{"removed", serving, stranger, Stranger},
		{"4.4 copies first", copying, of.leg("C held 1.1{ABC}"), ResyncAll},
		{"4.4 copies first, in F", copying, of.leg("B held 1.1{ABC} 1.2{AB}"), ResyncAll},
		{"4.2 it knows more", copying, of.leg("B held 1.1{ABC} 1.2{AB} 1.3{BC}"), Again},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.v.Meet(&c.leg)) })
	}
}

// Mirror §3.6: contents are named again with all bits set, and only outside F.
func TestRenew(t *testing.T) {
	v, err := active(t, 3, 1, three...).LetGo(2, false)
	require.NoError(t, err)
	c := mirrorOf{n: 3, m: 1}.leg("C held lost 1.1{ABC}")
	_, err = v.Renew(&c)
	require.ErrorIs(t, err, ErrChanging, "a record names it in F until the next one is active")
	v = v.Activated()
	v2, err := v.Renew(&c)
	require.NoError(t, err)
	require.Equal(t, v.Record.Ancestor, v2.Record.Ancestor)
	for _, leg := range []int{0, 1} {
		r, fill := v2.RecordFor(leg)
		require.Equal(t, "C", fill.String())
		require.Equal(t, [16]byte{9}, r.Members[2].Contents)
	}
	require.Zero(t, v2.Renewed().Lacking)
	b := mirrorOf{n: 3, m: 1}.leg("B held lost 1.1{ABC}")
	_, err = v.Renew(&b)
	require.Error(t, err, "B is in F")
	// A change that comes between owes what Renew asked for.
	v3, err := v2.LetGo(1, false)
	require.NoError(t, err)
	v3 = v3.Renewed()
	_, fill := v3.RecordFor(0)
	require.Equal(t, "C", fill.String())
}

func TestState(t *testing.T) {
	of := mirrorOf{n: 3, m: 2}
	v := active(t, 3, 2, crashed...)
	for _, c := range []struct {
		text string
		want State
	}{
		{"A held 1.1{ABC}", StateSync},
		{"B held 1.1{ABC}", StateResync},
		{"B probed 1.1{ABC}", StateAway},
		{"B held failed 1.1{ABC}", StateFailed},
		{"B away", StateAway},
		{"C probed 1.1{ABC} 1.2{AB}", StateTorn},
		{"C held 1.1{ABC} 1.2{AB}", StateResync},
		{"C probed", StateStranger},
	} {
		l := of.leg(c.text)
		require.Equal(t, c.want, v.State(&l), c.text)
	}
	v, err := v.LetGo(2, false)
	require.NoError(t, err)
	v = v.Activated()
	for text, want := range map[string]State{
		"C probed 1.1{ABC} 3.1{C}":  StateOwnWay,
		"C held 1.1{ABC} 1.2{AB}":   StateResync,
		"C probed 1.1{ABC} 1.2{AB}": StateTorn,
	} {
		l := of.leg(text)
		require.Equal(t, want, v.State(&l), text)
	}
	gone := of.leg("C probed 1.1{ABC} 1.2{AB}")
	gone.Reach = Away
	require.Equal(t, StateTorn, v.State(&gone), "it was seen before")
	for s, want := range map[State]string{StateSync: "in sync", StateResync: "resync", StateAway: "away", StateTorn: "torn",
		StateFailed: "failed", StateOwnWay: "went its own way", StateStranger: "no member"} {
		require.Equal(t, want, s.String())
	}
}

// Mirror §5.1: the record of a leg outside F says that it is half copied.
func TestRecordOfTorn(t *testing.T) {
	v, err := active(t, 3, 1, three...).LetGo(2, true)
	require.NoError(t, err)
	for leg, want := range []bool{false, false, true} {
		r, fill := v.RecordFor(leg)
		require.NoError(t, r.Check())
		require.Equal(t, want, r.Torn)
		require.Equal(t, !want, fill.Has(2), "its own bits")
	}
}

// A generation that a life began and gave up is behind what the life did then: a member may have it
// (mirror §4.6).
func TestGivenUpGeneration(t *testing.T) {
	v := active(t, 3, 1, three...)
	v, err := v.LetGo(2, false)
	require.NoError(t, err)
	tried, _ := v.RecordFor(1)
	v, err = v.LetGo(1, false)
	require.NoError(t, err)
	v = v.Activated()
	require.Equal(t, "A", v.Active.String())
	require.True(t, Behind(&tried, &v.Record))
	require.Equal(t, tried.Generation, v.Record.Lineage[0].Generation)
}

// A life without a generation of its own changes no record of the newest one, nor a newer one that does not count: the
// target refuses that. It notes only that the member is half copied (mirror §5.1).
func TestTorn(t *testing.T) {
	v := begun(t, 3, 2, "A away", "B held 1.1{ABC} 1.2{AB}", "C held 1.1{ABC}")
	require.False(t, v.Pending, "it copies first")
	x := mirrorOf{n: 3, m: 2}
	for text, torn := range map[string]bool{"A held 1.1{ABC} 1.2{AB}": false, "C held 1.1{ABC} 1.2{AB}": true, "C held 1.1{ABC} 1.2{B}": true, "C held 1.1{ABC} 1.3{AB}": true} {
		l := x.leg(text)
		l.Record.Members[0].Contents, l.Record.Torn = [16]byte{}, false
		want := l.Record
		want.Torn = torn
		require.Equal(t, want, v.Torn(&l), text)
	}
	l := x.leg("C held 1.1{ABC}")
	r := v.Torn(&l)
	require.Equal(t, v.Record.Ancestor, r.Ancestor)
	require.True(t, r.Torn)
	v = active(t, 3, 2, three...)
	l = x.leg("C held 1.1{ABC} 3.1{AB}")
	r = v.Torn(&l)
	require.Equal(t, v.Record.Ancestor, r.Ancestor)
}
