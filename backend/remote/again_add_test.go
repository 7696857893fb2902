package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// A member is added, and the order is given again while its generation waits for a target. That is the same generation:
// the members that have it take it again, although one of them had another session in between.
func TestMemberIsAddedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 2, 2, rdmafake.Config{})
		d := s.dial(t, 1)
		defer d.inVain()
		added := newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{})
		cfg := pairs{added}.config(t)
		p, err := PrepareMember(t.Context(), cfg, uuid.UUID{0xee}, regionSize, false)
		require.NoError(t, err)
		release := s[1].sync.block() // B does not keep its record
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = d.AddMember(ctx, cfg.Members[0], p)
		require.ErrorIs(t, err, errNotActive)
		require.Equal(t, persist.Members(7), new(s.record(0)).Present())
		s.network(0).Down()
		s.up(0)
		time.Sleep(time.Minute)
		again := make(chan error, 1)
		go func() {
			_, err := d.AddMember(context.Background(), cfg.Members[0], p)
			again <- err
		}()
		time.Sleep(time.Second)
		release()
		time.Sleep(ages)
		select {
		case err := <-again:
			require.NoError(t, err)
		default:
			require.Fail(t, "nothing goes on")
		}
		require.Equal(t, persist.Members(7), d.equal())
		require.NoError(t, d.Close())
	})
}
