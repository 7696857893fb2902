package remote

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma/rdmafake"
)

// Each barrier that succeeds is measured once, on however many lanes it runs: the time in which the
// target synced is within it, and it is within the time in which the FLUSH waited.
func TestBarrierLatency(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dialLanes(t, 3)
	defer func() { require.NoError(t, d.Close()) }()
	c := backendtest.NewClient(t, d)
	dirty := func() {
		require.NoError(t, c.Do(c.Write(0, make([]byte, 100), 0), c.Write(1<<20, make([]byte, 100), 0), c.Write(2<<20, make([]byte, 100), 0)))
	}
	for range 3 {
		dirty()
		require.NoError(t, c.Do(c.Flush()))
	}
	require.NoError(t, c.Do(c.Flush())) // has nothing to do
	before := d.Snapshot().Targets[0].Barriers
	require.EqualValues(t, 3, before.Count())

	dirty()
	release := p.sync.block()
	sent, flush := time.Now(), c.Flush()
	c.Submit(flush)
	<-p.sync.began
	has := time.Now()
	held := time.Since(has)
	release()
	require.NoError(t, c.Wait(flush))
	waited := time.Since(sent)
	after := d.Snapshot().Targets[0].Barriers
	took := after.Since(&before)
	require.EqualValues(t, 1, took.Count())
	require.GreaterOrEqual(t, took.Sum(), held)
	require.LessOrEqual(t, took.Sum(), waited)
	require.Zero(t, d.Snapshot().Targets[0].Outages.Count())
}

// A session that is lost is measured once it is back, and says meanwhile since when it waits.
func TestOutageLatency(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	network := p.provider.(*rdmafake.Provider)
	d := p.dialPatient(t, 2)
	defer func() { require.NoError(t, d.Close()) }()
	c := backendtest.NewClient(t, d)
	require.Nil(t, d.Snapshot().WaitingSince)
	began := time.Now()
	network.Pause()
	network.Cut()
	require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, time.Millisecond)
	since := d.Snapshot().WaitingSince
	require.NotNil(t, since)
	require.WithinRange(t, *since, began.Add(-time.Millisecond), time.Now().Add(time.Millisecond))
	require.Zero(t, d.Snapshot().Targets[0].Outages.Count())
	network.Resume()
	require.NoError(t, c.Do(c.Write(0, make([]byte, 100), 0), c.Flush()))
	require.Eventually(t, func() bool { return d.Snapshot().Targets[0].Outages.Count() == 1 }, patience, time.Millisecond)
	outages := d.Snapshot().Targets[0].Outages
	require.LessOrEqual(t, outages.Sum(), time.Since(began))
	require.Nil(t, d.Snapshot().WaitingSince)
}

// Each leg of a mirror has its own round trips.
func TestBarrierLatencyOfLegs(t *testing.T) {
	_, c := newFakeCommit(1)
	c.env.(*fakeEnv).streams[0].head = 1
	c.env.(*fakeEnv).flush(c, "reply")
	c.current.shares[0].owes, c.current.remaining = 0b101, 2
	c.done(0, 2, 1)
	require.EqualValues(t, 1, c.took[2].Count())
	require.Zero(t, c.took[0].Count())
	c.done(0, 0, 1)
	require.EqualValues(t, 1, c.took[0].Count())
	require.Zero(t, c.took[1].Count())
}
