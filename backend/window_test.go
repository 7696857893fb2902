package backend

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A window keeps what was published, in order, numbered across lanes, with its
// chunks, until it is covered and freed; rings wrap.
func TestWindow(t *testing.T) {
	arena, err := NewArena(2)
	require.NoError(t, err)
	w, err := NewWindow(arena, 2, 2, 4)
	require.NoError(t, err)
	chunks, ok := arena.TryGet(nil, 2)
	require.True(t, ok)

	var number uint64
	for round := range 5 { // more rounds than entries
		require.NoError(t, w.Entries().Take(3, nil))
		for i, lane := range []int{0, 1, 0} {
			number++
			src := chunks[i%2].Off() + uint64(i)
			w.Publish(lane, Entry{Off: number * 10, Src: src, Len: 5, Kind: EntryData})
			r := w.Ring(lane)
			require.True(t, r.Dirty())
			require.Equal(t, Entry{Off: number * 10, Src: src, Len: 5, Kind: EntryData, Number: number}, *r.At(r.Head() - 1))
		}
		require.Equal(t, 3, chunks[0].Refs(), "two entries of lane 0 and ours")
		require.Equal(t, 2, chunks[1].Refs())
		require.True(t, w.HalfFull())
		for lane := range 2 {
			r := w.Ring(lane)
			from, to := r.Covered(), r.Head()
			r.Cover(to)
			require.False(t, r.Dirty())
			require.Equal(t, 3-lane, chunks[lane].Refs(), "covered is not freed")
			w.Free(lane, from, to)
		}
		require.Equal(t, 1, chunks[0].Refs(), "round %d", round)
		require.Equal(t, 4, w.Entries().Free())
	}

	// Zeroes have no payload.
	require.NoError(t, w.Entries().Take(1, nil))
	w.Publish(1, Entry{Off: 0, Len: 1 << 20, Kind: EntryZero})
	require.Equal(t, 1, chunks[0].Refs())
	r := w.Ring(1)
	from, to := r.Covered(), r.Head()
	r.Cover(to)
	w.Free(1, from, to)

	require.ErrorContains(t, arena.Close(), "2 chunks are still held")
	chunks[0].Release()
	chunks[1].Release()
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "idempotent")
	require.NoError(t, arena.Close())
}

func TestPublishAllocatesNothing(t *testing.T) {
	arena, err := NewArena(1)
	require.NoError(t, err)
	w, err := NewWindow(arena, 1, 1, 8)
	require.NoError(t, err)
	chunks, _ := arena.TryGet(nil, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = w.Entries().Take(1, nil)
		r := w.Ring(0)
		w.Publish(0, Entry{Src: 0, Len: 1, Kind: EntryData})
		from, to := r.Covered(), r.Head()
		r.Cover(to)
		w.Free(0, from, to)
	}))
	chunks[0].Release()
	require.NoError(t, w.Close())
	require.NoError(t, arena.Close())
}
