package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
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
