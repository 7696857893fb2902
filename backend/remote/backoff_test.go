package remote

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma/rdmafake"
)

// A member outside F whose sessions come to nothing is tried ever more rarely.
func TestSpareBackoff(t *testing.T) {
	require.Equal(t, sparePause, spareBackoff(0))
	require.Equal(t, 4*sparePause, spareBackoff(2))
	require.Equal(t, maxSparePause, spareBackoff(6))
	require.Equal(t, maxSparePause, spareBackoff(1000))
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 2, 1)
		d := s.slowly(t, 1, 1<<16)
		s.network(1).Down()
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(stripe, 1), 0), c.Flush()))
		epoch := s[1].region.Superblock().Epoch
		cut := make(chan struct{})
		go func() { // its session is lost as soon as it is there
			defer close(cut)
			for range 600 {
				time.Sleep(time.Second)
				if d.legs[1].up.Load() {
					s.network(1).Cut()
				}
			}
		}()
		s.network(1).Up()
		<-cut
		require.LessOrEqual(t, s[1].region.Superblock().Epoch-epoch, uint64(20))
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// A follower that is alone is asked ever more rarely: each session makes its target write the superblock. It need
// not wait for the next time once a member of F is back.
func TestFollowerAloneBackoff(t *testing.T) {
	const alone = 20 * time.Minute
	for _, tt := range []struct {
		name string
		away bool // while the device starts
		lags bool // so it is let go
		flap bool // then nobody reaches it for a while
	}{
		{name: "let go", lags: true},
		{name: "still following"},
		{name: "not reached before", away: true},
		{name: "cut off once more", lags: true, flap: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := followed(t, 1, rdmafake.Config{})
				if tt.away {
					s.network(1).Down()
				}
				d := s.dialAsync(t, 1, func(cfg *Config) { cfg.AsyncLagTime = 2 * time.Second })
				if !tt.away {
					s.follows(t, d, 1)
				}
				release := func() {}
				if tt.lags {
					c := backendtest.NewClient(t, d)
					release = s[1].sync.blockData()
					require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
				}
				s.network(0).Down()
				synctest.Wait() // so the follower comes back when the last member is known to be away
				s.network(1).Cut()
				s.network(1).Up()
				release()
				epoch := s[1].region.Superblock().Epoch
				time.Sleep(alone)
				assert.NotEqual(t, LegFollows, s.state(d, 1))
				asked := s[1].region.Superblock().Epoch - epoch
				assert.LessOrEqual(t, asked, uint64(alone/maxSparePause+10))
				assert.GreaterOrEqual(t, asked, uint64(alone/maxSparePause/2), "nobody would learn what became of it")
				if tt.flap {
					s.network(1).Down()
					time.Sleep(2 * maxSparePause)
					s.network(1).Up()
				}
				s.network(0).Up()
				s.follows(t, d, 1)
				require.NoError(t, d.Close())
			})
		})
	}
}

// A follower that is alone can be promoted while the old life is there, which hears of it although no member of F
// is back.
func TestFollowerAloneIsPromoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 1, rdmafake.Config{})
		d := s.dialAsync(t, 1, nil)
		s.follows(t, d, 1)
		s.network(0).Down()
		synctest.Wait() // so the follower finds nobody to follow
		s.network(1).Cut()
		time.Sleep(10 * maxSparePause)
		cfg := s.config(t)
		cfg.ID, cfg.StateDir, cfg.Members, cfg.Degraded, cfg.Takeover = [16]byte{7}, t.TempDir(), cfg.Members[1:], true, true
		promoted, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		time.Sleep(2 * maxSparePause)
		assert.Contains(t, d.Snapshot().Mirror.Legs[1].Cause, "not the owner")
		require.NoError(t, promoted.Close())
		s.network(0).Up()
		require.NoError(t, d.Close())
	})
}

// A start that waits for members opens none of them again and again. It has found what they lack.
func TestWaitingStartLeavesMembersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 3, 2)
		d := s.dialImpatient(t, 1)
		require.NoError(t, d.Close())
		s.loseContents(t, 0)
		s.network(2).Down()
		cfg := s.config(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		epochs := []uint64{s[0].region.Superblock().Epoch, s[1].region.Superblock().Epoch}
		_, err := Dial(ctx, cfg)
		require.ErrorContains(t, err, "lost its contents")
		for i, epoch := range epochs {
			require.LessOrEqual(t, s[i].region.Superblock().Epoch, epoch+1)
		}
	})
}

// A start that waits names what is wrong at each target, again whenever that changes.
func TestWaitingStartSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 2, 1)
		s.network(0).Down()
		s.network(1).Down()
		cfg := s.config(t)
		var told []string
		cfg.Waits = func(why string) {
			if told = append(told, why); len(told) == 1 {
				s.network(0).Up()
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Dial(ctx, cfg)
		require.Len(t, told, 2)
		const away = "; log at fake:1: nobody listens at fake:1: connection lost: is pmnbd-target serving there?"
		require.Equal(t, []int{2, 1}, []int{strings.Count(told[0], away), strings.Count(told[1], away)}, told)
		require.ErrorContains(t, err, told[1])
	})
}
