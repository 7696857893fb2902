package backend

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// windowed makes the arenas of a device whose window has so many pins and entries.
func windowed(t *testing.T, chunks, pins, entries int) *Arenas {
	return &Arenas{Write: limited(t, chunks, pins), Entries: NewEntries(NewBudget(entries), 1<<20)}
}

// write makes a WRITE of a byte at the start of each of chunks.
func write(chunks ...*Chunk) *Op {
	op := &Op{Cmd: Write, Len: uint64(len(chunks))}
	for _, c := range chunks {
		op.Data = append(op.Data, Span{Chunk: c, Len: 1})
	}
	return op
}

func TestEntries(t *testing.T) {
	e := NewEntries(NewBudget(10), 1<<20)
	tests := []struct {
		name     string
		off, len uint64
		spans    int
		want     int
	}{
		{"one byte", 0, 1, 1, 1},
		{"a zero has no spans", 0, 4096, 0, 1},
		{"up to a stripe's end", 1<<20 - 4096, 4096, 1, 1},
		{"across a stripe's end", 1<<20 - 1, 2, 1, 2},
		{"two spans in a stripe", 4096, 8192, 2, 2},
		{"two spans across a stripe's end", 1<<20 - 4096, 8192, 2, 3},
		{"a whole stripe", 1 << 20, 1 << 20, 4, 4},
		{"three stripes, unaligned", 5, 3 << 20, 1, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			op := &Op{Cmd: Write, Off: tt.off, Len: tt.len, Data: make([]Span, tt.spans)}
			if tt.spans == 0 {
				op.Cmd = WriteZeroes
			}
			require.Equal(t, tt.want, e.of(op))
			a := NewAdmission(&Arenas{Entries: e})
			zero := &Op{Cmd: WriteZeroes, Off: tt.off, Len: tt.len}
			require.True(t, a.TryAdmit(zero))
			require.Equal(t, 10-e.of(zero), e.Free())
			e.Give(1) // for the entry that was published, when it is retired
			e.GiveRest(zero, 1)
			require.Equal(t, 10, e.Free())
		})
	}
	for _, cmd := range []Command{Read, Trim, Flush} {
		require.Zero(t, e.of(&Op{Cmd: cmd, Len: 1}), cmd)
	}
	for _, stripe := range []uint64{0, ChunkSize / 2, ChunkSize + 1, 3 * ChunkSize} {
		require.Panics(t, func() { NewEntries(NewBudget(1), stripe) }, stripe)
	}
}

func TestMaxZero(t *testing.T) {
	for entries, want := range map[int]uint64{1: 1 << 20, 8: 2 << 20, 11: 2 << 20} {
		require.Equal(t, want, (&Arenas{Entries: NewEntries(NewBudget(entries), 1<<20)}).MaxZero())
	}
	require.EqualValues(t, uint64(math.MaxUint64), new(Arenas).MaxZero(), "no index, no limit")
}

// An op that is admitted has a pin on each of its chunks, until Unpin, and its entries.
func TestAdmit(t *testing.T) {
	a := windowed(t, 4, 2, 3)
	got, ok := a.Write.TryGet(nil, 3)
	require.True(t, ok)
	one, two := NewAdmission(a), NewAdmission(a)
	require.True(t, one.TryAdmit(write(got[0])))
	require.True(t, one.TryAdmit(write(got[0])), "it is pinned")
	require.Equal(t, 1, a.Write.Pins().Free())
	require.Equal(t, 1, a.Entries.Free())
	require.True(t, two.TryAdmit(&Op{Cmd: Flush}))
	require.True(t, two.TryAdmit(write(got[1])))
	require.False(t, two.TryAdmit(write(got[2])), "neither a pin nor an entry")
	a.Entries.Give(1)
	require.False(t, two.TryAdmit(write(got[2])), "no pin")
	require.Equal(t, 1, a.Entries.Free(), "without the pin no entry is taken")
	one.Unpin()
	require.True(t, two.TryAdmit(write(got[2])))
	require.False(t, two.TryAdmit(write(got[1])), "no entry")
	two.Unpin()
	require.Equal(t, 2, a.Write.Pins().Free())
	a.Entries.Give(3)
	for _, c := range got {
		c.Release()
	}
}

func TestAdmitWaits(t *testing.T) {
	a := windowed(t, 4, 1, 1)
	got, ok := a.Write.TryGet(nil, 2)
	require.True(t, ok)
	held, ad := NewAdmission(a), NewAdmission(a)
	require.True(t, held.TryAdmit(write(got[0])))
	stop := make(chan struct{})
	close(stop)
	require.ErrorIs(t, ad.Admit(write(got[1]), stop), ErrStopped, "for a pin")
	held.Unpin()
	require.ErrorIs(t, ad.Admit(write(got[1]), stop), ErrStopped, "for an entry")
	ad.Unpin()
	require.Equal(t, 1, a.Write.Pins().Free(), "who gives up keeps no pin")

	waits, done := make(chan struct{}), make(chan error, 1)
	pressure := func() { waits <- struct{}{} }
	a.Write.Pins().Pressure, a.Entries.Pressure = pressure, pressure
	require.True(t, got[0].tryPin())
	go func() { done <- ad.Admit(write(got[1]), nil) }()
	<-waits
	got[0].unpin()
	<-waits
	a.Entries.Give(1)
	require.NoError(t, <-done)
	require.Zero(t, a.Entries.Free())
	a.Entries.Give(1)
	ad.Unpin()
	got[0].Release()
	got[1].Release()
}

// A reservation takes its chunks and all their pins, or nothing.
func TestReserve(t *testing.T) {
	a := windowed(t, 5, 3, 10)
	got, ok := a.Write.TryGet(nil, 1)
	require.True(t, ok)
	first, ad := got[0], NewAdmission(a)
	_, ok = ad.TryReserve(first, nil, 3)
	require.False(t, ok, "a pin is missing")
	require.Equal(t, 3, a.Write.Pins().Free())
	rest, ok := ad.TryReserve(first, nil, 2)
	require.True(t, ok)
	require.Len(t, rest, 2)
	require.Zero(t, a.Write.Pins().Free())
	require.True(t, ad.TryAdmit(write(first, rest[0], rest[1])), "all its chunks are pinned")
	require.Zero(t, a.Write.Pins().Free())
	for _, c := range append(rest, first) {
		c.Release()
	}
	ad.Unpin()
	a.Entries.Give(3)
	require.Equal(t, 3, a.Write.Pins().Free())
	ad.Unpin()
	require.Equal(t, 3, a.Write.Pins().Free(), "once")

	// A chunk that is pinned needs no second unit.
	rest, ok = ad.TryReserve(nil, nil, 1)
	require.True(t, ok)
	_, ok = ad.TryReserve(rest[0], nil, 0)
	require.True(t, ok)
	require.Equal(t, 2, a.Write.Pins().Free())
	other := NewAdmission(a)
	_, ok = other.TryReserve(rest[0], nil, 0)
	require.True(t, ok)
	require.Equal(t, 2, a.Write.Pins().Free(), "it is pinned already, by another")
	other.Unpin()
	rest[0].Release()
	ad.Unpin()
}

func TestReserveWaits(t *testing.T) {
	a := windowed(t, 4, 2, 10)
	held, ad := NewAdmission(a), NewAdmission(a)
	got, ok := held.TryReserve(nil, nil, 2)
	require.True(t, ok)
	stop := make(chan struct{})
	close(stop)
	_, err := ad.Reserve(nil, nil, 1, stop)
	require.ErrorIs(t, err, ErrStopped)
	require.False(t, a.Write.Waiting())

	waits, done := make(chan struct{}), make(chan error, 1)
	a.Write.Pins().Pressure = func() { close(waits) }
	go func() {
		chunks, err := ad.Reserve(nil, nil, 1, nil)
		for _, c := range chunks {
			c.Release()
		}
		ad.Unpin()
		done <- err
	}()
	<-waits
	require.True(t, a.Write.Waiting())
	for _, c := range got {
		c.Release()
	}
	held.Unpin()
	require.NoError(t, <-done)
}

// A reservation that finds pins but no chunks gives the pins back.
func TestReserveWithoutChunks(t *testing.T) {
	a := windowed(t, 1, 1, 1)
	held, ok := a.Write.TryGet(nil, 1)
	require.True(t, ok)
	ad := NewAdmission(a)
	_, ok = ad.TryReserve(nil, nil, 1)
	require.False(t, ok)
	stop := make(chan struct{})
	close(stop)
	_, err := ad.Reserve(nil, nil, 1, stop)
	require.ErrorIs(t, err, ErrStopped)
	held[0].Release()
	require.Equal(t, 1, a.Write.Pins().Free())
}

// A device without a window admits everything: pins cost nothing and limit nothing.
func TestAdmitWithoutAWindow(t *testing.T) {
	w, err := NewArena(2)
	require.NoError(t, err)
	require.Nil(t, w.Pins())
	ad := NewAdmission(&Arenas{Write: w})
	got, ok := ad.TryReserve(nil, nil, 1)
	require.True(t, ok)
	got, err = ad.Reserve(got[0], got, 1, nil)
	require.NoError(t, err)
	require.True(t, ad.TryAdmit(write(got...)))
	require.NoError(t, ad.Admit(write(got...), nil))
	require.NoError(t, ad.Admit(&Op{Cmd: WriteZeroes, Len: 1}, nil))
	for _, c := range got {
		c.Release()
	}
	ad.Unpin()
	require.False(t, w.Waiting())
	require.NoError(t, w.Close())
}

func TestAdmissionAllocatesNothing(t *testing.T) {
	a := windowed(t, 4, 4, 10)
	ad, buf, op := NewAdmission(a), make([]*Chunk, 0, 4), &Op{Cmd: Write, Len: 4}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		got, _ := ad.TryReserve(nil, buf, 4)
		op.Data = op.Data[:0]
		for _, c := range got {
			op.Data = append(op.Data, Span{Chunk: c, Len: 1})
		}
		_ = ad.TryAdmit(op)
		_ = ad.Admit(op, nil)
		for _, c := range got {
			c.Release()
		}
		a.Entries.GiveRest(op, 0)
		a.Entries.GiveRest(op, 0)
		ad.Unpin()
	}))
}
