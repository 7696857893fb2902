package gonbd

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/backend/remote"
	"pmnbd/internal/logtest"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// TestRemote: many writers write several windows full to the remote device, with writes of all
// sizes. The next session reads everything.
func TestRemote(t *testing.T) {
	r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: "log", CreateSize: 32 << 20, AllowVolatile: true})
	require.NoError(t, err)
	s := target.New(target.Config{Log: logtest.New(t)}, []*region.Region{r})
	p := rdmafake.New(rdmafake.Config{})
	l, err := p.Listen(context.Background(), "target")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
		require.NoError(t, r.Close())
	}()
	cfg := remote.Config{
		Provider: p, Addr: l.Addr(), Region: "log", ID: [16]byte{1}, StateDir: t.TempDir(),
		Window: remote.MinWindow, Lanes: 2, AllowVolatile: true, Log: logtest.New(t),
	}

	dev, err := remote.Dial(t.Context(), cfg)
	require.NoError(t, err)
	b := New(dev)
	const writers, share = 4, 8 << 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			data := backendtest.Pattern(share, uint32(w))
			base := int64(w) * share
			for off, n := 0, 512; off < share; off, n = off+n, n*3%4000000 {
				n = min(n, share-off)
				if _, err := b.WriteAt(data[off:off+n], base+int64(off)); err != nil {
					t.Error(err)
					return
				}
				got := make([]byte, n)
				if _, err := b.ReadAt(got, base+int64(off)); err != nil || !bytes.Equal(data[off:off+n], got) {
					t.Errorf("writer %d reads its %d bytes at %d: %v", w, n, off, err)
				}
			}
			if err := b.Sync(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Zero(t, dev.Unflushed())
	require.NotZero(t, dev.Barriers())
	require.NoError(t, b.Close())
	require.NoError(t, dev.Close())

	dev, err = remote.Dial(t.Context(), cfg)
	require.NoError(t, err)
	b = New(dev)
	got := make([]byte, share)
	for w := range writers {
		_, err := b.ReadAt(got, int64(w)*share)
		require.NoError(t, err)
		require.True(t, bytes.Equal(backendtest.Pattern(share, uint32(w)), got), "the bytes of writer %d", w)
	}
	require.NoError(t, b.Close())
	require.NoError(t, dev.Close())
}
