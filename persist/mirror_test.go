package persist

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMembers(t *testing.T) {
	for m, want := range map[Members]string{0: "", 1: "A", 5: "AC", 15: "ABCD", 0x80: "H"} {
		require.Equal(t, want, m.String())
		require.Equal(t, len(want), m.Count())
	}
	m := Member(0) | Member(3)
	require.True(t, m.Has(0) && m.Has(3))
	require.False(t, m.Has(1) || m.Has(2) || m.Has(4))
}

// Generations are ordered by life, then by count. The nonce orders nothing: it tells two of
// the same number apart.
func TestGenerationBefore(t *testing.T) {
	for _, c := range []struct {
		name   string
		g, h   Generation
		before bool
	}{
		{"none", Generation{}, Generation{}, false},
		{"none is the oldest", Generation{}, Generation{Life: 1, Count: 1}, true},
		{"count", Generation{Life: 2, Count: 3}, Generation{Life: 2, Count: 4}, true},
		{"life first", Generation{Life: 2, Count: 9}, Generation{Life: 3, Count: 1}, true},
		{"nonce", Generation{Life: 2, Count: 3, Nonce: [16]byte{1}}, Generation{Life: 2, Count: 3, Nonce: [16]byte{2}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.before, c.g.Before(c.h))
			require.False(t, c.h.Before(c.g))
		})
	}
	require.Equal(t, "2.3", Generation{Life: 2, Count: 3, Nonce: [16]byte{1}}.String())
}

// record returns a record of member B of three, with two generations before it.
func record() Record {
	return Record{
		Set: [16]byte{1}, Slot: 1, MinCopies: 2, Ancestor: Ancestor{Generation{Life: 3, Count: 2}, 3},
		Members: [MaxMembers]Membership{{UUID: [16]byte{0xa}, Contents: [16]byte{1}, Epoch: 4}, {UUID: [16]byte{0xb}}, {}, {UUID: [16]byte{0xd}}},
		Lineage: [MaxLineage]Ancestor{{Generation{Life: 3, Count: 1}, 11}, {Generation{Life: 1, Count: 7}, 15}},
	}
}

func TestRecordCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Record)
		says   string // "" if a mirror can have the record
	}{
		{"a member of three", func(*Record) {}, ""},
		{"no member", func(r *Record) { *r = Record{} }, ""},
		{"torn outside F", func(r *Record) { r.F, r.Torn = 1, true }, ""},
		{"a full lineage", func(r *Record) {
			for i := range r.Lineage {
				r.Lineage[i] = Ancestor{Generation{Life: 2, Count: uint64(99 - i)}, 1}
			}
		}, ""},
		{"two ancestors of one number", func(r *Record) {
			r.Lineage[1] = r.Lineage[0]
			r.Lineage[1].Nonce[0]++
		}, ""},
		{"an ancestor with a member that has left", func(r *Record) { r.Lineage[0].F = 4 }, ""},

		{"no set", func(r *Record) { r.Set = [16]byte{} }, "without a set"},
		{"a set alone", func(r *Record) { *r = Record{Set: r.Set} }, "slot 0, which has no member"},
		{"a free slot", func(r *Record) { r.Slot = 2 }, "slot 2, which has no member"},
		{"slot 4", func(r *Record) { r.Slot = 4 }, "slot 4, which has no member"},
		{"slot 255", func(r *Record) { r.Slot = 255 }, "slot 255, which has no member"},
		{"no copies", func(r *Record) { r.MinCopies = 0 }, "0 copies"},
		{"an asynchronous stranger", func(r *Record) { r.Async = 4 }, "members C are asynchronous, and there are ABD"},
		{"asynchronous, and in F", func(r *Record) { r.Async, r.MinCopies = r.F&-r.F, 1 }, "members in F are"},
		{"followed without being asynchronous", func(r *Record) { r.Follows.Barrier = 1 }, "cannot have followed up to barrier 1"},
		{"more copies than members", func(r *Record) { r.MinCopies = 4 }, "4 copies at least of 3 members"},
		{"an empty F", func(r *Record) { r.F = 0 }, "members in F are"},
		{"F with a free slot", func(r *Record) { r.F = 7 }, "members in F are ABC, and there are ABD"},
		{"F with slot 7", func(r *Record) { r.F |= 0x80 }, "members in F are ABH"},
		{"no generation", func(r *Record) { r.Generation = Generation{} }, "without a generation"},
		{"torn in F", func(r *Record) { r.Torn = true }, "member B is torn"},
		{"contents in a free slot", func(r *Record) { r.Members[2].Contents[3] = 1 }, "slot 2 has no member, and has contents"},
		{"an epoch in a free slot", func(r *Record) { r.Members[2].Epoch = 1 }, "slot 2 has no member, and has contents"},
		{"one region twice", func(r *Record) { r.Members[3].UUID = r.Members[0].UUID }, "members A and D are one region"},
		{"a hole in the lineage", func(r *Record) { r.Lineage[0] = Ancestor{} }, "out of order at 1.7"},
		{"the oldest first", func(r *Record) { r.Lineage[0], r.Lineage[1] = r.Lineage[1], r.Lineage[0] }, "out of order at 3.1"},
		{"an ancestor without F", func(r *Record) { r.Lineage[1].F = 0 }, "out of order at 1.7"},
		{"an ancestor with slot 4", func(r *Record) { r.Lineage[1].F = 16 }, "out of order at 1.7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := record()
			c.change(&r)
			err := r.Check()
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
	r := record()
	require.Equal(t, Members(11), r.Present())
}
