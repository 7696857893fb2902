package remote

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma/rdmafake"
)

func TestSnapshot(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	s := d.Snapshot()
	require.Equal(t, Snapshot{
		Region: "log", RegionUUID: p.region.UUID(), Target: p.addr, Class: "file", Size: regionSize,
		Method: "gpspm", MethodWhy: "not flush: only class pmem or protected is durable without the target's CPU; not apm: only class pmem or protected is durable without the target's CPU", Epoch: s.Epoch, Owner: uuid.UUID{1}, Lineage: s.Lineage, State: StateOpen, Since: s.Since,
		Lanes:  []LaneSnapshot{{Peer: s.Lanes[0].Peer}},
		Window: WindowSnapshot{Limit: 16 << 20, EntriesLimit: 16 << 20 / 2048}, Targets: []TargetSnapshot{{Target: p.addr, Region: "log"}},
	}, s)
	require.NotEmpty(t, s.Lanes[0].Peer)
	require.Equal(t, p.region.Superblock().Epoch, s.Epoch)

	require.NoError(t, c.Do(c.Write(0, make([]byte, 3000), 0), c.Write(1<<20-1000, make([]byte, 2000), 0)))
	require.NoError(t, c.Do(c.Zero(2<<20, 7000)))
	s = d.Snapshot()
	require.Equal(t, uint64(12000), s.Window.Unflushed)
	require.Equal(t, uint64(4), s.Window.Entries, "one write lies in two stripes")
	require.NotZero(t, s.Window.Used)

	require.NoError(t, c.Do(c.Flush()))
	require.NoError(t, c.Do(c.Flush())) // has nothing to do
	fua := c.Write(0, make([]byte, 100), 0)
	fua.FUA = true
	require.NoError(t, c.Do(fua))
	s = d.Snapshot()
	require.Zero(t, s.Window.Unflushed)
	require.Equal(t, BarriersSnapshot{Done: 2, Answered: 2, Asked: 2}, s.Barriers)
	require.GreaterOrEqual(t, s.Lanes[0].Posted, uint64(6), "four Writes and two barriers")

	b, err := json.Marshal(s)
	require.NoError(t, err)
	var again Snapshot
	require.NoError(t, json.Unmarshal(b, &again))
	require.Equal(t, s, again)

	require.NoError(t, d.Close())
	s = d.Snapshot()
	require.Equal(t, StateClosed, s.State)
	require.Zero(t, s.Window.Unflushed)
}

// Many FLUSHes during one barrier are answered by the next, together.
func TestSnapshotOfGroupCommit(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	defer func() { require.NoError(t, d.Close()) }()
	c := backendtest.NewClient(t, d)
	release := p.sync.block()
	first := c.Flush()
	c.Submit(c.Write(0, make([]byte, 100), 0), first)
	<-p.sync.began
	rest := []*backendtest.Request{c.Flush(), c.Flush(), c.Flush()}
	c.Submit(c.Write(0, make([]byte, 100), 0))
	c.Submit(rest...)
	require.Equal(t, BarriersSnapshot{InFlight: true, Waiting: 3}, d.Snapshot().Barriers)
	require.Equal(t, uint64(200), d.Snapshot().Window.Unflushed)
	release()
	require.NoError(t, c.Wait(append(rest, first)...))
	require.Equal(t, BarriersSnapshot{Done: 2, Answered: 2, Asked: 4}, d.Snapshot().Barriers)

	// One that nobody asked for.
	release = p.sync.block()
	require.NoError(t, c.Do(c.Write(0, make([]byte, 100), 0)))
	d.core.commit.relieve()
	<-p.sync.began
	last := c.Flush()
	c.Submit(c.Write(0, make([]byte, 100), 0), last)
	release()
	require.NoError(t, c.Wait(last))
	require.Equal(t, BarriersSnapshot{Done: 4, Answered: 3, Asked: 5}, d.Snapshot().Barriers)
}

func TestSnapshotOfFailure(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	p.sync.fail(errors.New("the disk is gone"))
	w, f := c.Write(0, make([]byte, 4096), 0), c.Flush()
	c.Submit(w, f)
	require.Error(t, c.Wait(w, f))
	s := d.Snapshot()
	require.Equal(t, StateFailed, s.State)
	require.Contains(t, s.Cause, "the disk is gone")
	require.Equal(t, uint64(4096), s.Window.Unflushed)
	require.Error(t, d.Close())
	require.Equal(t, StateFailed, d.Snapshot().State)
}

func TestSnapshotWhileServing(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialLanes(t, 3)
	stop, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		for {
			s := d.Snapshot()
			if s.Window.Unflushed > 100*3000 {
				t.Errorf("%d bytes not flushed", s.Window.Unflushed)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	c := backendtest.NewClient(t, d)
	for i := range uint64(100) {
		require.NoError(t, c.Do(c.Write(i*50_000, make([]byte, 3000), 0)))
		if i%10 == 9 {
			require.NoError(t, c.Do(c.Flush()))
		}
	}
	require.Zero(t, d.Unflushed())
	require.NoError(t, d.Close()) // also while somebody looks
	close(stop)
	<-looked
}
