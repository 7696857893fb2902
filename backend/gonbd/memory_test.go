package gonbd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
)

// A window keeps writes until the test retires them, as a device does.
type window struct{ kept []*backend.Chunk }

func (w *window) take(op *backend.Op) bool {
	if op.Cmd == backend.Write {
		for _, s := range op.Data {
			s.Chunk.Retain()
			w.kept = append(w.kept, s.Chunk)
		}
	}
	return false
}

func (w *window) retire() {
	for _, ch := range w.kept {
		ch.Release()
	}
	w.kept = nil
}

// Small writes in a window share chunks.
func TestSmallWritesShareChunks(t *testing.T) {
	d := newDevice(t)
	var w window
	d.take = w.take
	b := open(t, d)
	held := func() int { return d.arenas.Write.Budget().Total() - d.arenas.Write.Budget().Free() }
	p := make([]byte, 4096)
	const perChunk = backend.ChunkSize / 4096
	for i := range 3 * perChunk {
		_, err := b.WriteAt(p, int64(i*len(p)))
		require.NoError(t, err)
		require.Equal(t, i/perChunk+1, held(), "write %d", i)
	}
	// A larger write leaves the rest of its last chunk to the next small ones.
	_, err := b.WriteAt(make([]byte, backend.ChunkSize+4096), 0)
	require.NoError(t, err)
	_, err = b.WriteAt(p, 0)
	require.NoError(t, err)
	require.Equal(t, 5, held())

	w.retire()
	require.Equal(t, 1, held())
	for range 2 * perChunk {
		_, err := b.WriteAt(p, 0)
		require.NoError(t, err)
		w.retire()
		require.Equal(t, 1, held(), "a chunk that nobody else has is used again")
	}
}

// Close interrupts calls that wait for memory that others hold.
func TestCloseEndsWaits(t *testing.T) {
	for _, tt := range []struct {
		name string
		// starve takes what the call needs. It has announce called when the call waits.
		starve func(d *device, announce func()) (undo func())
		call   func(*Backend) error
	}{
		{
			"for chunks to write",
			func(d *device, announce func()) func() { return drain(d.arenas.Write.Budget(), announce) },
			func(b *Backend) error { _, err := b.WriteAt([]byte("x"), 0); return err },
		},
		{
			"for chunks to read",
			func(d *device, announce func()) func() { return drain(d.arenas.Read.Budget(), announce) },
			func(b *Backend) error { _, err := b.ReadAt(make([]byte, 1), 0); return err },
		},
		{
			"for places in the index",
			func(d *device, announce func()) func() {
				d.arenas.Entries = backend.NewEntries(backend.NewBudget(8), backend.ChunkSize)
				return drain(d.arenas.Entries.Budget, announce)
			},
			func(b *Backend) error { _, err := b.WriteAt([]byte("x"), 0); return err },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDevice(t)
			waits := make(chan struct{})
			undo := tt.starve(d, func() { close(waits) })
			b := New(d)
			ended := make(chan error, 1)
			go func() { ended <- tt.call(b) }()
			<-waits
			require.NoError(t, b.Close())
			require.ErrorIs(t, <-ended, backend.ErrClosed)
			undo()
		})
	}
}

// drain takes all units of b, and has announce called when somebody waits for one.
func drain(b *backend.Budget, announce func()) (undo func()) {
	b.TryTake(b.Total())
	b.Pressure = announce
	return func() { b.Give(b.Total()) }
}

// Each write takes the entries that it may need, and a device gives the unused ones back.
func TestEntries(t *testing.T) {
	d := newDevice(t)
	d.arenas.Entries = backend.NewEntries(backend.NewBudget(8), 1<<20)
	var took []int
	d.take = func(op *backend.Op) bool {
		took = append(took, 8-d.arenas.Entries.Free())
		d.arenas.Entries.GiveRest(op, 0)
		return false
	}
	b := open(t, d)
	for _, w := range []struct{ off, n int }{{0, 1}, {1<<20 - 1, 2}, {4096, maxRequest}} {
		_, err := b.WriteAt(make([]byte, w.n), int64(w.off))
		require.NoError(t, err)
	}
	require.Equal(t, []int{1, 2, 5}, took)
	require.Equal(t, 8, d.arenas.Entries.Free())
}

// Close waits for calls that are running.
func TestCloseWaits(t *testing.T) {
	d := newDevice(t)
	held := make(chan *backend.Op, 1)
	d.take = func(op *backend.Op) bool { held <- op; return true }
	b := New(d)
	synced := make(chan error, 1)
	go func() { synced <- b.Sync() }()
	op := <-held
	var completed atomic.Bool
	early := make(chan bool)
	go func() {
		_ = b.Close() // never an error
		early <- !completed.Load()
	}()
	<-b.stop // Close has begun
	completed.Store(true)
	op.Sink.Complete(op)
	require.False(t, <-early)
	require.NoError(t, <-synced)
}

// What waits for the device can be cancelled, and leaves the device its memory.
func TestCancel(t *testing.T) {
	enough := errors.New("enough")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	d := newDevice(t)
	b := New(d)
	_, err := b.WriteAt(make([]byte, 512), 0) // b keeps the rest of its chunk
	require.NoError(t, err)
	held := make(chan *backend.Op, 2)
	d.take = func(op *backend.Op) bool { held <- op; return true }
	require.ErrorIs(t, b.SyncContext(cancelled), enough)
	wrote := make(chan error, 1)
	go func() {
		_, err := b.WriteAt(make([]byte, backend.ChunkSize), 0)
		wrote <- err
	}()
	flush, write := <-held, <-held
	if flush.Cmd != backend.Flush {
		flush, write = write, flush
	}
	require.ErrorIs(t, b.Shutdown(cancelled), enough)
	chunks := d.arenas.Write.Budget()
	require.Equal(t, chunks.Total()-len(write.Data), chunks.Free(), "the running write has its own chunk, b none")
	write.Sink.Complete(write)
	require.NoError(t, <-wrote)
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	require.Empty(t, closed, "the flush still runs")
	flush.Sink.Complete(flush)
	require.NoError(t, <-closed)
}
