package remote

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// restore has the region of leg i look as if it had been put back from a copy: by its epoch, and in a place that was
// written since. A region does not go back in a test, so the records of the others say that it was further.
func (s pairs) restore(t *testing.T, i int) {
	s[i].region.Data()[regionSize-1] ^= 1
	newest := s.record(0)
	for j := range s {
		if r := s.record(j); newest.Before(r.Generation) {
			newest = r
		}
	}
	copy(newest.Lineage[1:], newest.Lineage[:])
	newest.Lineage[0] = newest.Ancestor
	newest.Count++
	newest.Members[i].Contents, newest.Members[i].Epoch = s[i].region.Superblock().Contents, s[i].region.Superblock().Epoch+3
	for j := range s {
		if newest.Slot = uint8(j); newest.F.Has(j) && j != i {
			require.NoError(t, s[j].region.SetRecord(newest, 0))
		}
	}
}

// A member that was put back from a copy shows that by its epoch alone, and each OPEN raises that. So the first
// OPEN has its target draw a new contents id, and everything is copied to the member, although the sessions come to
// nothing at first (mirror §3.6).
func TestRestoredMemberGetsOtherContents(t *testing.T) {
	for name, tt := range map[string]struct {
		vain  int32
		alone bool // the copy is of a time when the member was served alone: the mirror named what it had then
	}{"at once": {}, "after sessions in vain": {vain: 5}, "served alone": {alone: true}, "served alone, after sessions in vain": {5, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, 2, 1, rdmafake.Config{})
				d := s.dialImpatient(t, 1)
				s.network(1).Down()
				c := backendtest.NewClient(t, d)
				require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
				require.NoError(t, d.Close())
				require.Equal(t, persist.Members(1), s.record(0).F)
				if tt.alone {
					require.NoError(t, s[1].region.Update(func(sb *region.Superblock) error { sb.ServeAlone(); return nil }))
				}
				s.restore(t, 1)
				cfg := s.config(t)
				cfg.Lanes = 2
				var left atomic.Int32
				left.Store(tt.vain)
				cfg.Members[1].Provider = oneLane{s[1].provider, &left}
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				s.network(1).Up()
				s.inSync(t, d)
				require.LessOrEqual(t, left.Load(), int32(0))
				require.Equal(t, s[1].region.Superblock().Contents, s.record(0).Members[1].Contents)
				require.NoError(t, d.Close())
			})
		})
	}
}

// A oneLane is a network on which a second lane does not come about, so many times.
type oneLane struct {
	rdma.Provider
	left *atomic.Int32
}

func (p oneLane) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	d, err := p.Provider.OpenDomain(ctx, addr)
	return &oneLaneDomain{Domain: d, left: p.left}, err
}

type oneLaneDomain struct {
	rdma.Domain
	left  *atomic.Int32
	dials int
}

func (d *oneLaneDomain) Dial(ctx context.Context, addr string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	if d.dials++; d.dials == 2 && d.left.Add(-1) >= 0 {
		return nil, rdma.ErrLost
	}
	return d.Domain.Dial(ctx, addr, cfg, recvs)
}

// A life that copies first can have such a member as its copy: too few others may be there, and for good.
func TestRestoredMemberAndTheFirstCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 2, 2, rdmafake.Config{})
		s.restore(t, 1)
		cfg := s.config(t)
		cfg.Degraded = true // it was in sync
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d, err := Dial(ctx, cfg)
		require.NoError(t, err)
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// One that follows stays what it is while there is nobody to follow: it can be promoted (mirror §7.4).
func TestRestoredFollowerIsNotOpenedTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := followed(t, 1, rdmafake.Config{})
		d := s.dialAsync(t, 1, nil)
		s.follows(t, d, 1)
		s.network(1).Down()
		require.NoError(t, d.Close())
		s.restore(t, 1)
		d = s.dialAsync(t, 1, nil)
		s.network(0).Down()
		time.Sleep(time.Minute)
		was := s[1].region.Superblock()
		s.network(1).Up()
		time.Sleep(time.Minute)
		require.Equal(t, was, s[1].region.Superblock())
		s.network(0).Up()
		s.follows(t, d, 1)
		s.has(t, d, 1)
		require.NoError(t, d.Close())
	})
}
