package remote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma/rdmafake"
)

// A Verify goes on where it was when a session is back that was lost, as an encrypted one is lost when its
// keys are used up (mirror §5.7).
func TestVerifyGoesOn(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, s pairs){
		"a member":   func(_ *testing.T, s pairs) { s.network(1).Cut() },
		"the source": func(_ *testing.T, s pairs) { s.network(0).Cut() },
		"all of them": func(_ *testing.T, s pairs) {
			for i := range s {
				s.network(i).Cut()
			}
		},
		"a member for a while": func(_ *testing.T, s pairs) {
			s.network(2).Down()
			time.AfterFunc(5*time.Second, s.network(2).Up)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakes(t, 3, rdmafake.Config{})
				cfg := s.config(t)
				cfg.LegTimeout, cfg.ResyncRate = time.Minute, 1<<20
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				s[2].region.Data()[0] ^= 1
				s[1].region.Data()[regionSize-1] ^= 1
				said, last := 0, uint64(0)
				v, err := d.Verify(t.Context(), VerifyOptions{Progress: func(v Verification) {
					require.LessOrEqual(t, last, v.Compared, "the count has gone back")
					last = v.Compared
					if said++; said%3 == 2 && said < 10 {
						lose(t, s)
					}
				}})
				require.NoError(t, err)
				require.Greater(t, said, 8)
				require.Equal(t, v.Total, v.Compared)
				require.Equal(t, 2, v.Different)
				require.NotEmpty(t, v.Differences[0].Digests["C"])
				require.NotEmpty(t, v.Differences[1].Digests["B"])
				for _, g := range d.legs {
					require.Nil(t, g.lanes[0].copying)
				}
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}

// Places that were copied but not yet durable when the session was lost are compared again: the target may have
// lost its power.
func TestVerifyCopiesAgain(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dial(t, 1)
	for _, off := range []int{0, regionSize - 1} {
		s[1].region.Data()[off] ^= 1
	}
	release := s[1].sync.blockData()
	defer release()
	verified := make(chan error, 1)
	go func() {
		v, err := d.Verify(t.Context(), VerifyOptions{From: "A"})
		if err == nil {
			require.Equal(t, v.Total, v.Compared)
			require.Equal(t, 2, v.Different)
		}
		verified <- err
	}()
	<-s[1].sync.began // this barrier may have begun before both places are copied
	for _, off := range []int{0, regionSize - 1} {
		require.Eventually(t, func() bool { return s[0].region.Data()[off] == s[1].region.Data()[off] }, patience, tick, "it is copied, and not durable")
	}
	s.network(1).Cut()
	for _, off := range []int{0, regionSize - 1} {
		s[1].region.Data()[off] ^= 1
	}
	release()
	require.NoError(t, <-verified)
	require.Equal(t, string(s[0].region.Data()), string(s[1].region.Data()))
	require.NoError(t, d.Close())
}

// A Verify does not go on with another member in the place of one, nor with one whose contents were lost.
func TestVerifyStands(t *testing.T) {
	s := fakes(t, 3, rdmafake.Config{})
	d := s.dial(t, 1)
	k := d.core.copies
	c := &k.core.commit
	c.mu.Lock()
	defer func() {
		c.mu.Unlock()
		require.NoError(t, d.Close())
	}()
	v := &verification{copies: k, members: 3, regions: k.view.Record.Members}
	was := k.view
	defer func() { k.view = was }()
	require.True(t, v.standsLocked())
	k.view.Record.Members[2].UUID[0]++
	require.True(t, v.standsLocked(), "C is not compared")
	k.view.Record.Members[1].Epoch++
	require.True(t, v.standsLocked(), "a session is nothing new")
	k.view.Record.Members[1].Contents[0]++
	require.False(t, v.standsLocked())
	k.view.Record.Members[1] = was.Record.Members[1]
	k.view.Record.Members[0].UUID[0]++
	require.False(t, v.standsLocked())
	k.view.Record.Members[0] = was.Record.Members[0]
	k.view.Record.F = 5
	require.False(t, v.standsLocked())
}
