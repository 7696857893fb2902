package mirror

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

func TestBehind(t *testing.T) {
	for _, c := range []struct {
		name, r, m string
		want       bool
	}{
		{"the same", "1.1{AB}", "1.1{AB}", true},
		{"an ancestor", "1.1{AB}", "1.1{AB} 1.2{A} 2.1{A}", true},
		{"a newer one", "1.1{AB} 1.2{A}", "1.1{AB}", false},
		{"each was alone", "1.1{AB} 1.2{A}", "1.1{AB} 2.1{B}", false},
		{"another life of the same number", "1.1{AB} 2.1{A}", "1.1{AB} 2'.1{A}", false},
		{"E7 what a life tried", "1.1{AB} 1.2{B} 1.3{AB}", "1.1{AB} 1.2{B} 1.3{AB} 1.4{B}", true},
		{"E8 refuted by what we begin with", "1.1{ABC} 1.2{BC}", "1.1{ABC} 2.1{AC}", true},
		{"E8 refuted by a life between", "1.1{ABCD} 1.2{AB}", "1.1{ABCD} 2.1{ACD} 2.2{CD}", true},
		{"not refuted by a life before", "1.1{ABC} 2.1{BC}", "1.1{ABC} 1.2{AC}", false},
		{"not refuted by legs that were not in it", "1.1{ABC} 1.2{BC} 1.3{B}", "1.1{ABC} 2.1{AC}", false},
		{"E10 two attempts of two lives", "1.1{ABC} 1.2{BC}", "1.1{ABC} 2.1{AC} 3.1{AC}", true},
		{"E11 two attempts on one leg", "1.1{ABC} 1.2{BC} 2.1{BC}", "1.1{ABC} 3.1{AC}", true},
		{"E11 one of them was active", "1.1{ABC} 1.2{B} 2.1{BC}", "1.1{ABC} 3.1{AC}", false},
		{"a life's last generation stands for those before", "1.1{ABC} 1.2{AB}", "1.1{ABC} 1.3{AC}", true},
		{"a member that was added with the first record it saw", "2.1{ABC}", "2.1{ABC} 2.2{ABCD}", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, m := record(4, 1, c.r), record(4, 1, c.m)
			require.Equal(t, c.want, Behind(&r, &m))
		})
	}
}

// Members from which clients may be reading that were not told of any end (mirror §4.7).
func TestReadFrom(t *testing.T) {
	for _, c := range []struct{ name, r, want string }{
		{"the life before, from what it began without", "1.1{ABCD} 1.2{AB} 2.1{A}", "AB"},
		{"also if it has changed its generation", "1.1{ABCD} 2.1{A} 2.2{AB}", "ABCD"},
		{"not from what a later one began with", "1.1{ABCD} 2.1{ABC} 2.2{A}", "AD"},
		{"each life by its last generation", "1.1{ABCD} 1.2{AB} 1.3{B} 2.1{A}", "AB"},
		{"and the ones before", "1.1{ABCD} 1.2{AC} 2.1{B} 3.1{A}", "ABC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := record(4, 1, c.r)
			require.Equal(t, c.want, ReadFrom(&r).String())
		})
	}
	removed := record(4, 1, "1.1{ABCD} 2.1{A}")
	removed.Members[1] = persist.Membership{}
	require.Equal(t, "ACD", ReadFrom(&removed).String())
}

// TestBehindUsedSlot has another region in the slot of the leg that would refute.
func TestBehindUsedSlot(t *testing.T) {
	r, m := record(3, 2, "1.1{ABC} 1.2{BC}"), record(3, 2, "1.1{ABC} 2.1{AC}")
	require.True(t, Behind(&r, &m))
	m.Members[2].UUID = [16]byte{7}
	require.False(t, Behind(&r, &m))
}

func TestBehindSets(t *testing.T) {
	r := record(2, 1, "1.1{AB}")
	m := r
	m.Set = [16]byte{7}
	require.False(t, Behind(&r, &m))
}

func TestDescend(t *testing.T) {
	r := record(2, 1, "1.1{AB}")
	r.Torn = true
	next := Descend(&r, ancestor("1.2{A}").Generation, members("A"))
	require.False(t, next.Torn)
	require.Equal(t, ancestor("1.2{A}"), next.Ancestor)
	require.Equal(t, ancestor("1.1{AB}"), next.Lineage[0])
	require.Equal(t, persist.Ancestor{}, next.Lineage[2])
	require.NoError(t, next.Check())
}

// TestFlappingMember has a leg that a life lets go and takes in again many times. A member that is
// away meanwhile is still behind: the lineage has 32 places, and the life had 400 generations.
func TestFlappingMember(t *testing.T) {
	r := record(3, 1, "1.1{ABC} 1.2{AC}")
	away := record(3, 1, "1.1{ABC}")
	alone := record(3, 1, "1.1{ABC} 2.1{B}")
	for count := uint64(3); count < 400; count++ {
		f := "A"
		if count%2 == 0 {
			f = "AC"
		}
		r = Descend(&r, ancestor(fmt.Sprintf("1.%d{}", count)).Generation, members(f))
		require.NoError(t, r.Check())
		require.True(t, Behind(&away, &r), "after %d generations", count)
		require.False(t, Behind(&alone, &r))
		require.False(t, Behind(&r, &alone))
	}
	require.NotEqual(t, persist.Ancestor{}, r.Lineage[persist.MaxLineage-1])
}

// TestManyLives forgets lives: a member that was away for more of them than a lineage has places is
// still behind, because it remembers all generations back to the first one, and each is refuted.
func TestManyLives(t *testing.T) {
	r, away := record(2, 1, "1.1{AB} 1.2{A}"), record(2, 1, "1.1{AB}")
	for life := uint64(2); life < 100; life++ {
		r = Descend(&r, ancestor(fmt.Sprintf("%d.1{}", life)).Generation, members("A"))
		require.True(t, Behind(&away, &r), "after %d lives", life)
	}
	m := record(2, 1, "1.1{AB} 100.1{AB}")
	require.False(t, Behind(&r, &m), "r forgot what it knew, so nothing refutes that")
}

// TestShorten makes one place of a full lineage free.
func TestShorten(t *testing.T) {
	for _, c := range []struct{ name, oldest, want string }{ // newest first, as in a lineage
		{"the oldest pair", "2.2{AB} 2.1{AC} 1.2{AB} 1.1{ABC}", "2.2{AB} 2.1{AC} 1.2{AB}"},
		{"F of both", "1.3{AB} 1.2{BC} 1.1{AC}", "1.3{AB} 1.2{C}"},
		{"lives stay apart", "2.2{AB} 2.1{AC} 1.1{A}", "2.2{A} 1.1{A}"},
		{"lives of one number stay apart", "2.2{AB} 2'.1{AB} 1.1{A}", "2.2{AB} 2'.1{AB}"},
		{"Fs without a common leg stay apart", "1.4{A} 1.3{A} 1.2{B} 1.1{A}", "1.4{A} 1.2{B} 1.1{A}"},
		{"no pair", "3.1{A} 2.1{A} 1.1{A}", "3.1{A} 2.1{A}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l, want [persist.MaxLineage]persist.Ancestor
			oldest := strings.Fields(c.oldest)
			for i := range l {
				l[i] = persist.Ancestor{Generation: persist.Generation{Life: uint64(100 - i), Count: 1}, F: 1}
			}
			want = l
			at := persist.MaxLineage - len(oldest)
			for i, text := range oldest {
				l[at+i] = ancestor(text)
			}
			want[persist.MaxLineage-1] = persist.Ancestor{}
			for i, text := range strings.Fields(c.want) {
				want[at+i] = ancestor(text)
			}
			shorten(&l)
			require.Equal(t, want, l)
		})
	}
}

// A history is what one way of a mirror went through, with nothing forgotten.
type history []persist.Ancestor

// behind is Behind for histories of any length, by exact comparison.
func (r history) behind(m history) bool {
	for i := len(r) - 1; i >= 0; i-- {
		a, known, refuted := r[i], false, false
		for _, b := range m {
			known = known || a.Generation == b.Generation
			refuted = refuted || b.Life > a.Life && b.F&a.F != 0
		}
		if known {
			return true
		}
		if !refuted {
			return false
		}
	}
	return false
}

// TestShortenedLineage goes two ways from one point at random, for longer than a lineage remembers.
// A short lineage may take a member that is behind for one that went its own way, which an operator
// sees. It must never take one that went its own way for one that is behind, because then a resync
// overwrites it.
func TestShortenedLineage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 13))
	walk := func(r persist.Record, h history, steps int, firstLife uint64) (persist.Record, history) {
		g := persist.Generation{Life: firstLife, Nonce: [16]byte{byte(rng.Uint32()), byte(rng.Uint32()), 1}}
		for range steps {
			if rng.IntN(20) == 0 {
				g = persist.Generation{Life: g.Life + 1 + rng.Uint64N(2), Nonce: [16]byte{byte(rng.Uint32()), byte(rng.Uint32()), 1}}
			}
			g.Count++
			r = Descend(&r, g, persist.Members(1+rng.IntN(15)))
			require.NoError(t, r.Check())
			h = append(h[:len(h):len(h)], r.Ancestor)
		}
		return r, h
	}
	same, wrong := 0, 0
	for range 600 {
		r := record(4, 1, "1.1{ABCD}")
		base, h := walk(r, history{r.Ancestor}, rng.IntN(60), 1)
		a, ha := walk(base, h, rng.IntN(60), base.Life+1)
		b, hb := walk(base, h, rng.IntN(60), base.Life+1)
		got, want := Behind(&a, &b), ha.behind(hb)
		require.False(t, got && !want, "%v is not behind %v", a, b)
		if got == want {
			same++
		} else {
			wrong++
		}
	}
	t.Logf("%d as with an endless lineage, %d not", same, wrong)
	require.Greater(t, same, 550)
}
