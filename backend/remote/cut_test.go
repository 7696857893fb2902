package remote

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A sync that goes on at the target while the connections break is worth what it covers: the
// FLUSH is answered, nothing of it is sent again, and no other sync is asked for.
func TestSyncOutlivesItsSession(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lanes  int
		at     uint64 // where the write goes that is being synced
		more   bool   // another write comes while the session is away
		broken bool   // the first RESUME is granted, and breaks before the other lane is there
	}{
		{name: "nothing else is dirty", lanes: 1},
		{name: "something else is dirty", lanes: 1, more: true},
		{name: "on the other lane", lanes: 2, at: stripe, more: true},
		{name: "several outages", lanes: 2, at: stripe, more: true, broken: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := fake(t, rdmafake.Config{})
			network := p.provider.(*rdmafake.Provider)
			var dials, posted atomic.Int64
			p.provider = wrapped{network, func(c rdma.Conn) rdma.Conn {
				if dials.Add(1) == 4 && tt.broken {
					network.Cut()
				}
				return &countedConn{Conn: c, posted: &posted}
			}}
			d := p.dialPatient(t, tt.lanes)
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			epoch, barriers := d.Snapshot().Epoch, p.targetBarriers()
			release := p.sync.blockData()
			flush := c.Flush()
			c.Submit(c.Write(tt.at, backendtest.Pattern(block, 2), 0), flush)
			<-p.sync.began
			network.Cut()
			posted.Store(0)
			want := int64(0)
			if tt.more {
				require.NoError(t, c.Do(c.Write(tt.at+100, backendtest.Pattern(block, 3), 0)))
				want = block
			}
			require.False(t, flush.Completed())
			release()
			require.NoError(t, c.Wait(flush))
			require.NoError(t, c.Do(c.Flush()))
			require.Equal(t, want, posted.Load(), "what it covered is not sent again")
			require.Equal(t, barriers+1+uint64(want/block), p.targetBarriers())
			if tt.broken {
				require.Greater(t, d.Snapshot().Epoch, epoch+1)
			}
			expected := backendtest.Pattern(block, 2)
			if tt.more {
				copy(expected[100:], backendtest.Pattern(block, 3))
			}
			require.Equal(t, expected, p.region.Data()[tt.at:tt.at+block])
			require.Zero(t, d.Unflushed())
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
		})
	}
}

// A countedConn counts the bytes of Writes that are posted.
type countedConn struct {
	rdma.Conn
	posted *atomic.Int64
}

func (c *countedConn) Post(wrs []rdma.WorkRequest) (int, error) {
	n, err := c.Conn.Post(wrs)
	for _, wr := range wrs[:n] {
		if wr.Op == rdma.OpWrite {
			c.posted.Add(int64(wr.Local.Len))
		}
	}
	return n, err
}

// A barrier that was cut off counts only if the target names it for every lane that owed it,
// by its number and its session, and has no doubt.
func TestWhatTheTargetSaysOfACutBarrier(t *testing.T) {
	it := wire.Durable{Epoch: 7, Barrier: 3}
	for _, tt := range []struct {
		name  string
		owes  []bool
		says  []wire.Durable // of each lane
		flags wire.OpenedFlags
		want  bool
	}{
		{"durable on all lanes", []bool{true, true}, []wire.Durable{it, it}, 0, true},
		{"one had answered", []bool{false, true}, []wire.Durable{{}, it}, 0, true},
		{"one has not got it", []bool{true, true}, []wire.Durable{it, {}}, 0, false},
		{"one has got the one before", []bool{true, true}, []wire.Durable{it, {Epoch: 7, Barrier: 2}}, 0, false},
		{"the number of another session", []bool{true}, []wire.Durable{{Epoch: 6, Barrier: 3}}, 0, false},
		{"a higher number of another session", []bool{true}, []wire.Durable{{Epoch: 8, Barrier: 300}}, 0, false},
		{"the target started again", []bool{true}, []wire.Durable{{}}, 0, false},
		{"doubt", []bool{true}, []wire.Durable{it}, wire.OpenedDoubt, false},
		{"unclean is no doubt", []bool{true}, []wire.Durable{it}, wire.OpenedUnclean, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := &fakeEnv{streams: make([]fakeStream, len(tt.owes))}
			b := &barrier{seq: 3, epoch: 7}
			for _, owes := range tt.owes {
				b.shares = append(b.shares, share{})
				if owes {
					b.shares[len(b.shares)-1].owes = persist.Member(0)
				}
			}
			c := groupCommit{env: env, broken: b}
			var conns []dialed
			for _, says := range tt.says {
				conns = append(conns, dialed{durable: says})
			}
			doubt := tt.flags&wire.OpenedDoubt != 0
			retired := c.resumeLocked(0, doubt, durableOn(conns))
			require.Equal(t, tt.want, retired == b)
			require.Equal(t, doubt, c.doubts != 0)
			c.broken = nil
			require.Nil(t, c.resumeLocked(0, doubt, durableOn(conns)), "none was cut off")
		})
	}
}

// A barrier that begins makes the one that was cut off before it a matter of the past.
func TestNextBarrierForgetsTheCutOne(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	network := p.provider.(*rdmafake.Provider)
	d, err := Dial(context.Background(), func() Config { c := p.config(t); c.LossTimeout = 0; return c }())
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	network.Pause() // the target never gets the barrier
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	network.Cut()
	network.Resume()
	require.NoError(t, c.Wait(flush))
	d.core.commit.mu.Lock()
	require.Nil(t, d.core.commit.broken)
	d.core.commit.mu.Unlock()
	require.NoError(t, d.Close())
}
