package remote

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// The previous run closed the session of member A; its CLOSE to member B was lost. A is away when the next run starts, so
// that run resumes the session of B and waits for A. A comes back and refuses the RESUME. The start must go on: everything
// was durable before A was closed (mirror §4.3).
func TestClosedMemberIsFoundWhileAdopting(t *testing.T) {
	for name, begins := range map[string]func(*Config){ // others wait before they adopt
		"with an arbiter": func(cfg *Config) { cfg.Arbiter = newFakeArbiter() },
		"degraded":        func(cfg *Config) { cfg.Degraded = true },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testClosedMember(t, begins) }) })
	}
}

func testClosedMember(t *testing.T, begins func(*Config)) {
	h := newMirrorHostOf(t, 2, 2)
	begins(&h.cfg)
	network := h.network(1)
	var cut atomic.Bool
	h.tap(1, func(wr *rdma.WorkRequest) {
		if kind, err := wire.TypeOf(wr.Inline); err == nil && kind == wire.TypeClose && !cut.Swap(true) {
			network.Down()
		}
	})
	h.cfg.Members[1].Provider = h.pairs[1].provider
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	require.NoError(t, d.Close())
	before := h.pairs[1].region.Superblock()
	require.False(t, before.Clean)
	h.network(0).Down()
	h.up(1)
	opened, dialed := h.dials()
	synctest.Wait() // the start has resumed B and waits for A
	require.Greater(t, h.pairs[1].region.Superblock().Epoch, before.Epoch, "its session was resumed")
	h.up(0)
	require.NoError(t, <-dialed)
	h.readsAll(backendtest.NewClient(t, *opened))
	require.NoError(t, (*opened).Close())
	h.has(h.all())
}
