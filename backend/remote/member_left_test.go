package remote

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
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

// While a member is removed, or another one gets its place, some targets have the record of that and others have not. Those
// that keep no bits of it are not asked for them.
func TestBitsOfAMemberThatLeavesOrComes(t *testing.T) {
	removes := func(v *mirror.View) (mirror.View, error) { return v.Remove(2) }
	adds := func(v *mirror.View) (mirror.View, error) { return v.Add(2, [16]byte{9}, 1) }
	for name, tt := range map[string]struct {
		changes []func(v *mirror.View) (mirror.View, error) // the last one stays pending
		without int                                         // the member that does not get its record yet
		waits   bool                                        // somebody is about to ask for bits when it begins
	}{
		"it leaves":     {[]func(v *mirror.View) (mirror.View, error){removes}, 1, false},
		"another comes": {[]func(v *mirror.View) (mirror.View, error){removes, adds}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, 3, 1, rdmafake.Config{})
				cfg := s.config(t)
				cfg.LegTimeout = time.Second
				d, c := s.dialWritten(t, cfg)
				s.letsGo(t, c, 2)
				k := d.core.copies
				asked, begun := make(chan error, 1), make(chan error, 1)
				ask := func() { asked <- (&resync{copies: k, leg: d.legs[2]}).readBits() }
				change := func() {
					_, err := k.alter(context.Background(), tt.changes[0])
					begun <- err
				}
				ask()
				require.NoError(t, <-asked)
				for ; len(tt.changes) > 1; tt.changes = tt.changes[1:] {
					change()
					require.NoError(t, <-begun)
				}
				sessions := [2]uint64{d.legs[0].generation.Load(), d.legs[1].generation.Load()}
				turn := d.legs[tt.without].calls.turn
				turn <- struct{}{} // those that come now have theirs in this order
				steps := []func(){change, ask}
				if tt.waits {
					slices.Reverse(steps)
				}
				for _, step := range steps {
					go step()
					synctest.Wait()
				}
				a, b := s.record(0), s.record(1)
				require.NotEqual(t, a.Present(), b.Present())
				<-turn
				require.ErrorIs(t, <-asked, errNotAsked)
				require.NoError(t, <-begun)
				for i, session := range sessions {
					require.Equal(t, session, d.legs[i].generation.Load(), "member %d was asked for bits that it does not keep", i)
				}
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}
