package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A late is a provider that reaches nobody before it is opened.
type late struct {
	rdma.Provider
	open chan struct{}
}

func (l late) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	select {
	case <-l.open:
		return l.Provider.OpenDomain(ctx, addr)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A start asks A, then the life before takes up its session with A anew and lets B go, and then the start asks B. B's
// record names a later session of A than A has told of: A has lost nothing (mirror §4.2).
func TestStartLooksTwiceBeforeItRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakes(t, 2, rdmafake.Config{})
		cfg := s.config(t)
		cfg.LegTimeout, cfg.ResyncRate = time.Second, 16<<10
		old, err := Dial(context.Background(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, old)

		cfg = s.config(t)
		open := make(chan struct{})
		cfg.ID, cfg.StateDir, cfg.Takeover = [16]byte{7}, t.TempDir(), true
		cfg.Members[1].Provider = late{cfg.Members[1].Provider, open}
		var d *Device
		begun := make(chan error)
		go func() {
			var err error
			d, err = Dial(context.Background(), cfg)
			begun <- err
		}()
		synctest.Wait() // A has told

		epoch := s[0].region.Superblock().Epoch
		s.network(0).Cut()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(1<<20, 1), 0), c.Flush()))
		require.Equal(t, epoch+1, s[0].region.Superblock().Epoch)
		s.network(1).Down()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(1<<20, 2), 0), c.Flush()))
		s.network(1).Up()
		for !s[1].region.Superblock().Record.Torn {
			time.Sleep(time.Millisecond)
		}
		close(open)
		require.NoError(t, <-begun)
		abandon(old)
		c = backendtest.NewClient(t, d)
		read := c.Read(0, 1<<20, 0)
		require.NoError(t, c.Do(read))
		require.Equal(t, backendtest.Pattern(1<<20, 2), read.Got)
		require.NoError(t, d.Close())
	})
}
