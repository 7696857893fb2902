package backend

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A window keeps the entries that were published, in order, with numbers that ascend across
// streams, and with their chunks, until they are covered and freed. Rings wrap around.
func TestWindow(t *testing.T) {
	arena, err := NewArena(2)
	require.NoError(t, err)
	w, err := NewWindow(arena, 2, 2, 4)
	require.NoError(t, err)
	chunks, ok := NewAdmission(&Arenas{Write: arena}).TryReserve(nil, nil, 2)
	require.True(t, ok)

	var number uint64
	for round := range 5 { // more rounds than entries
		require.NoError(t, w.Entries().Take(3, nil))
		for i, stream := range []int{0, 1, 0} {
			number++
			src := chunks[i%2].Off() + uint64(i)
			w.Publish(stream, Entry{Off: number * 10, Src: src, Len: 5, Kind: EntryData})
			r := w.Ring(stream)
			require.NotEqual(t, r.Head(), r.Covered())
			require.Equal(t, Entry{Off: number * 10, Src: src, Len: 5, Kind: EntryData, Number: number}, *r.At(r.Head() - 1))
		}
		require.Equal(t, 3, chunks[0].Refs(), "two entries of stream 0 and ours")
		require.Equal(t, 2, chunks[1].Refs())
		require.True(t, w.HalfFull())
		for stream := range 2 {
			r := w.Ring(stream)
			from, to := r.Covered(), r.Head()
			r.Cover(to)
			require.Equal(t, r.Head(), r.Covered())
			require.Equal(t, 3-stream, chunks[stream].Refs(), "covered is not freed")
			w.Free(stream, from, to)
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

	require.ErrorContains(t, arena.Close(), "chunks that are still held (2)")
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
	chunks, _ := NewAdmission(&Arenas{Write: arena}).TryReserve(nil, nil, 1)
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

// Adopt takes over a window as the previous process left it: the uncovered entries, in order,
// with their chunks. They are freed like any others.
func TestAdopt(t *testing.T) {
	const size = 1 << 30
	mem, index := make([]byte, 4*ChunkSize), make([]byte, IndexSize(2, 8))
	arena := NewArenaOn(mem)
	w := NewWindowOn(index, arena, 4, 2, 8)
	require.NoError(t, w.Adopt(size), "nothing is in it")
	chunks, ok := NewAdmission(&Arenas{Write: arena}).TryReserve(nil, nil, 4)
	require.True(t, ok)
	require.NoError(t, w.Entries().Take(5, nil))
	at := func(chunk int, off uint64) uint64 { return chunks[chunk].Off() + off }
	w.Publish(0, Entry{Off: 1, Src: at(0, 5), Len: 10, Kind: EntryData})
	w.Publish(0, Entry{Off: 2, Src: at(1, 0), Len: ChunkSize, Kind: EntryData})
	w.Publish(1, Entry{Off: 3, Src: at(1, 7), Len: 1, Kind: EntryData})
	w.Publish(0, Entry{Off: 4, Len: 1 << 20, Kind: EntryZero})
	w.Publish(0, Entry{Off: 5, Src: at(3, 0), Len: 2, Kind: EntryData})
	w.Ring(0).Cover(1) // then the process is killed

	arena = NewArenaOn(mem)
	next := NewWindowOn(index, arena, 4, 2, 8)
	require.NoError(t, next.Adopt(size))
	require.Equal(t, 4, next.Entries().Free())
	require.Equal(t, 2, arena.Budget().Free(), "chunks 1 and 3 are in use")
	require.EqualValues(t, 2, next.pinned.Load())
	require.Equal(t, 2, arena.Chunk(at(1, 0)).Refs())
	r := next.Ring(0)
	require.EqualValues(t, 1, r.Covered())
	require.EqualValues(t, 4, r.Head())
	require.Equal(t, Entry{Off: 2, Src: at(1, 0), Len: ChunkSize, Kind: EntryData, Number: 2}, *r.At(1))
	got, ok := arena.TryGet(nil, 2)
	require.True(t, ok)
	for _, c := range got {
		require.NotContains(t, []uint64{at(1, 0), at(3, 0)}, c.Off())
		c.Release()
	}
	require.NoError(t, next.Entries().Take(1, nil))
	next.Publish(1, Entry{Off: 9, Len: 1, Kind: EntryZero})
	require.EqualValues(t, 6, next.Ring(1).At(1).Number, "numbers go on")
	for stream := range 2 {
		r := next.Ring(stream)
		from, to := r.Covered(), r.Head()
		r.Cover(to)
		next.Free(stream, from, to)
	}
	require.Equal(t, 8, next.Entries().Free())
	require.NoError(t, next.Close())
	require.NoError(t, arena.Close())
}

// Adopt refuses an index that no window can have left.
func TestAdoptDamaged(t *testing.T) {
	good := Entry{Off: 0, Src: 0, Len: 8, Kind: EntryData, Number: 1}
	for name, spoil := range map[string]func(r *Ring, e *Entry){
		"covered behind head":      func(r *Ring, _ *Entry) { r.Cover(2) },
		"more entries than places": func(r *Ring, _ *Entry) { r.head.Store(5) },
		"past the device":          func(_ *Ring, e *Entry) { e.Off = 4096 - 7 },
		"offset overflows":         func(_ *Ring, e *Entry) { e.Off = ^uint64(0) - 3 },
		"of nothing":               func(_ *Ring, e *Entry) { e.Len = 0 },
		"past the arena":           func(_ *Ring, e *Entry) { e.Src = 2 * ChunkSize },
		"over a chunk's end":       func(_ *Ring, e *Entry) { e.Src = ChunkSize - 7 },
		"of an unknown kind":       func(_ *Ring, e *Entry) { e.Kind = 3 },
		"without a number":         func(_ *Ring, e *Entry) { e.Number = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWindowOn(make([]byte, IndexSize(1, 4)), NewArenaOn(make([]byte, 2*ChunkSize)), 2, 1, 4)
			r := w.Ring(0)
			*r.At(0) = good
			r.head.Store(1)
			spoil(r, r.At(0))
			require.ErrorIs(t, w.Adopt(4096), ErrIndex)
		})
	}
}
