package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// A member that is half copied has nothing to give up. But it knows the generation of the others that it was
// copied from, and that can be newer than the one of a promoted member, which has not seen the lives in between.
// So it is given up with them.
func TestDiscardOfAWitness(t *testing.T) { synctest.Test(t, testDiscardOfAWitness) }

func testDiscardOfAWitness(t *testing.T) {
	ctx := context.Background()
	s := followed(t, 2, rdmafake.Config{})
	d := s.dialAsync(t, 1, nil)
	s.follows(t, d, 2)
	require.NoError(t, d.Close())
	s.network(2).Down()
	d = s.dialAsync(t, 1, func(cfg *Config) { cfg.ResyncRate, cfg.LegTimeout = 1, time.Second })
	c := backendtest.NewClient(t, d)
	s.network(1).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(3*stripe, 1), 0), c.Flush()))
	s.network(1).Up()
	require.Eventually(t, func() bool { return s.record(1).Torn }, patience, tick)
	require.NoError(t, d.Close())
	for i := range 3 {
		s.network(i).Down()
	}
	s.network(2).Up()
	cfg := s.config(t)
	cfg.Members, cfg.Degraded = cfg.Members[2:], true
	d, err := Dial(ctx, cfg)
	require.NoError(t, err)
	c = backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	require.NoError(t, d.Close())
	for i := range 2 {
		s.network(i).Up()
	}
	for i, says := range []string{": choose", ", which only B"} {
		_, err = Dial(ctx, s.config(t))
		require.ErrorAs(t, err, new(*MirrorError))
		require.ErrorContains(t, err, "went another way than generation 3.2{A}"+says)
		x, err := FindDiscard(ctx, s.config(t), i+1)
		require.NoError(t, err)
		require.Equal(t, i == 1, x.Torn)
		require.Equal(t, []string{"C", "AC"}[i], x.KeptBy)
		require.NoError(t, x.Do(ctx))
		require.NoError(t, x.Close())
	}
	other := append(pairs{fake(t, rdmafake.Config{})}, s...)
	_, err = FindDiscard(ctx, other.config(t), 1)
	require.ErrorContains(t, err, "take its target out of --target")
	d = s.dial(t, 1)
	require.Eventually(t, func() bool { return d.equal() == 7 }, patience, tick)
	for i := range s {
		require.True(t, string(s[i].region.Data()) == string(s[2].region.Data()))
	}
	require.NoError(t, d.Close())
}

// One that stood in is in the F of its own record, and half copied all the same.
func TestDiscardOfAStandIn(t *testing.T) {
	s := fakesOf(t, 3, 2, rdmafake.Config{})
	r := s.record(0)
	one := mirror.Descend(&r, persist.Generation{Life: 2, Count: 1, Nonce: [16]byte{2}}, 1)
	require.NoError(t, s[0].region.SetRecord(one, 0))
	other := mirror.Descend(&r, persist.Generation{Life: 3, Count: 1, Nonce: [16]byte{3}}, 6)
	other.Slot, other.Members[2] = 2, persist.Membership{UUID: s[2].region.UUID(), Epoch: 1}
	require.NoError(t, s[2].region.SetRecord(other, 0))
	s.network(1).Down()
	x, err := FindDiscard(t.Context(), s.config(t), 3)
	require.NoError(t, err)
	require.True(t, x.Torn)
	require.Equal(t, "B", x.F)
	require.Equal(t, "B", x.Also)
	require.NoError(t, x.Close())
	s.network(1).Up()
}
