package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
)

// A start that ends while it waits for the fence of the life before leaves the wait to the next one: the life that
// this adopts and closes had served nobody, so its orderly end says nothing of the one before (mirror §4.7).
func TestTheNextStartAwaitsTheFenceToo(t *testing.T) {
	for name, takeover := range map[string]bool{"with a takeover again": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testTheNextStartAwaitsTheFenceToo(t, takeover) })
		})
	}
}

func testTheNextStartAwaitsTheFenceToo(t *testing.T, takeover bool) {
	s := beating(t, 3, 2)
	cfg := s.config(t)
	p := partition{make(chan struct{})}
	for _, i := range []int{1, 2} {
		cfg.Members[i].Provider = wrapped{cfg.Members[i].Provider, p.wrap}
	}
	old, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	close(p.cut)

	cfg = s.config(t)
	cfg.ID, cfg.StateDir, cfg.WindowDir, cfg.Takeover, cfg.Members = [16]byte{7}, t.TempDir(), inMemory(t), true, cfg.Members[1:]
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	_, err = Dial(ctx, cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cfg.Takeover = takeover
	ctx, stop = context.WithTimeout(context.Background(), time.Second)
	defer stop()
	_, err = Dial(ctx, cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	began := time.Now()
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), usualLease)
	abandon(old)
	require.NoError(t, d.Close())

	began = time.Now()
	d, err = Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.Less(t, time.Since(began), time.Second, "it had served")
	require.NoError(t, d.Close())
}
