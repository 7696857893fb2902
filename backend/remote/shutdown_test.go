package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/gonbd"
	"pmnbd/persist/region/regiontest"
	"pmnbd/rdma/rdmafake"
)

// A Shutdown that gives up frees the window for clients that wait for room in it. What they
// then receive must not reach the file, where the next run finds what was acknowledged.
func TestShutdownKeepsPayloadsFromClients(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	h.away(d)
	want := backendtest.Pattern(block, 2)
	require.NoError(t, c.Do(c.Write(0, want, 0)))
	arena := d.Arenas().Write
	held, ok := arena.TryGet(nil, arena.Budget().Free())
	require.True(t, ok)
	received := make(chan struct{})
	go func() {
		defer close(received)
		if got, err := arena.Get(nil, 1, make(chan struct{})); err == nil { // the write's
			copy(got[0].Bytes(), backendtest.Pattern(backend.ChunkSize, 9))
			got[0].Release()
		}
		for _, c := range held {
			c.Release()
		}
	}()
	require.Eventually(t, arena.Waiting, patience, tick)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, d.Shutdown(ctx), context.DeadlineExceeded)
	<-received

	h.start(h.path, regiontest.ADR)
	d, c = h.run()
	r := c.Read(0, block, 0)
	require.NoError(t, c.Do(r))
	require.Equal(t, want, r.Got)
	require.NoError(t, d.Close())
}

// A Shutdown that gives up on a device that has failed says that it failed, each time.
func TestShutdownOfAFailedDevice(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		p := fake(t, rdmafake.Config{})
		d := p.dialLanes(t, 1)
		c := backendtest.NewClient(t, d)
		p.sync.fail(errEnough)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
		require.ErrorIs(t, c.Do(c.Flush()), backend.ErrFailed)
		require.ErrorIs(t, d.Shutdown(ended), backend.ErrFailed)
	}
}

// A client that goes on behind the end of its device gets errors, and the process lives: a
// chunk that somebody holds keeps its memory.
func TestClientBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // release waits for the chunk
		h := newHost(t)
		d, _ := h.run()
		b := gonbd.New(d)
		_, err := b.WriteAt(backendtest.Pattern(block, 1), 0)
		require.NoError(t, err)
		require.ErrorContains(t, d.Close(), "still held")
		_, err = b.WriteAt(backendtest.Pattern(block, 2), 0)
		require.ErrorIs(t, err, backend.ErrClosed)
		d, _ = h.run()
		require.NoError(t, d.Close())
		require.Equal(t, backendtest.Pattern(block, 1), h.region.Data()[:block])
	})
}
