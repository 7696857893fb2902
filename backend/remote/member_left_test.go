package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A clinging connection is closed only when letGo is.
type clinging struct {
	rdma.Conn
	letGo <-chan struct{}
}

func (c clinging) Close() error {
	select {
	case <-c.letGo:
		return c.Conn.Close()
	default:
		go func() {
			<-c.letGo
			_ = c.Conn.Close() // nobody waits for it
		}()
		return nil
	}
}

// A member that was removed is not copied to any more, although its connections have not ended. The others keep no
// bits of it, and to ask a target for these would end that target's session.
func TestRemovedMemberIsNotCopiedTo(t *testing.T) { synctest.Test(t, testRemovedIsNotCopiedTo) }

func testRemovedIsNotCopiedTo(t *testing.T) {
	s := followed(t, 2, rdmafake.Config{})
	letGo := make(chan struct{})
	d := s.dialAsync(t, 2, func(cfg *Config) {
		cfg.ResyncRate = 1
		m := &cfg.Members[2]
		m.Provider = wrapped{m.Provider, func(c rdma.Conn) rdma.Conn { return clinging{c, letGo} }}
	})
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.Eventually(t, func() bool { return d.resyncing(2) != nil }, patience, 10*time.Millisecond)
	synctest.Wait()
	sessions := [2]uint64{d.legs[0].generation.Load(), d.legs[1].generation.Load()}
	removed := make(chan error, 1)
	go func() {
		told, err := d.RemoveMember(context.Background(), 2)
		assert.NoError(t, told)
		removed <- err
	}()
	synctest.Wait()
	require.Zero(t, s.record(0).Async)
	require.True(t, d.legs[2].up.Load())
	assert.True(t, d.resyncing(2) == nil, "it is copied to, and is no member")
	for i, session := range sessions {
		assert.Equal(t, session, d.legs[i].generation.Load(), "member %d was asked for bits that it does not keep", i)
	}
	close(letGo)
	require.NoError(t, <-removed)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}
