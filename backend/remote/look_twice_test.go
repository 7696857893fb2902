package remote

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
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

// The first look contradicts itself: A answers before the life before resumes its session there, and B answers after
// that life has let B go. So B's record names a later session of A than A told of, as if A had been put back from a
// copy. The second look shows that A has lost nothing (mirror §4.1).
func TestStartLooksTwiceBeforeItRefuses(t *testing.T) {
	for name, windowed := range map[string]bool{"without a window": false, "with a window": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testStartLooksTwiceBeforeItRefuses(t, windowed) })
		})
	}
}

func testStartLooksTwiceBeforeItRefuses(t *testing.T, windowed bool) {
	windows := ""
	if windowed {
		windows = inMemory(t)
	}
	s := fakes(t, 2, rdmafake.Config{})
	cfg := s.config(t)
	cfg.LegTimeout, cfg.ResyncRate = time.Second, 16<<10
	var letGo atomic.Bool
	copying := make(chan struct{})
	once := sync.OnceFunc(func() { close(copying) })
	provider := cfg.Members[1].Provider
	s.tap(1, func(wr *rdma.WorkRequest) {
		if letGo.Load() && wr.Op == rdma.OpWrite { // B's record says by now that it is half copied
			once()
		}
	})
	cfg.Members[1].Provider = s[1].provider
	old, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)

	cfg = s.config(t)
	open := make(chan struct{})
	cfg.ID, cfg.StateDir, cfg.WindowDir, cfg.Takeover = [16]byte{7}, t.TempDir(), windows, true
	cfg.Members[1].Provider = late{provider, open}
	var d *Device
	begun := make(chan error)
	go func() {
		var err error
		d, err = Dial(context.Background(), cfg)
		begun <- err
	}()
	synctest.Wait() // A has answered

	epoch := s[0].region.Superblock().Epoch
	s.network(0).Cut()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(1<<20, 1), 0), c.Flush()))
	require.Equal(t, epoch+1, s[0].region.Superblock().Epoch)
	network := provider.(*rdmafake.Provider)
	network.Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(1<<20, 2), 0), c.Flush()))
	letGo.Store(true)
	network.Up()
	<-copying
	close(open)
	require.NoError(t, <-begun)
	abandon(old)
	c = backendtest.NewClient(t, d)
	read := c.Read(0, 1<<20, 0)
	require.NoError(t, c.Do(read))
	require.Equal(t, backendtest.Pattern(1<<20, 2), read.Got)
	require.NoError(t, d.Close())
}

// Only looks in a row count, and only if both would refuse for the same reason.
func TestTwoLooksInARow(t *testing.T) {
	away, stranger := mirror.Leg{Name: "A", Reach: mirror.Away}, mirror.Leg{Name: "A", Reach: mirror.Refused}
	other := mirror.Leg{Name: "B", Reach: mirror.Refused, Record: persist.Record{Set: [16]byte{1}}}
	for name, tt := range map[string]struct {
		looks [][]mirror.Leg
		want  mirror.Outcome
	}{
		"once":                      {[][]mirror.Leg{{stranger}}, mirror.Wait},
		"twice":                     {[][]mirror.Leg{{stranger}, {stranger}}, mirror.Refuse},
		"a wait between":            {[][]mirror.Leg{{stranger}, {away}, {stranger}}, mirror.Wait},
		"twice behind a wait":       {[][]mirror.Leg{{away}, {stranger}, {stranger}}, mirror.Refuse},
		"something else in between": {[][]mirror.Leg{{stranger}, {away, other}, {stranger}}, mirror.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			var b beginning
			var d mirror.Decision
			for _, legs := range tt.looks {
				b.found.Legs = legs
				d = b.decide()
			}
			require.Equal(t, tt.want, d.Outcome, d.Why)
		})
	}
}
