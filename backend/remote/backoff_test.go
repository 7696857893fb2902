package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
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
