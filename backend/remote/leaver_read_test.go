package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
)

// A member that is about to be removed is read from no more. The next life may find the change on a member, and then
// it serves without a look at the one that leaves (mirror §4.9).
func TestLeaverIsNotReadFrom(t *testing.T) { synctest.Test(t, testLeaverIsNotReadFrom) }

func testLeaverIsNotReadFrom(t *testing.T) {
	s := beating(t, 3, 2)
	cfg := s.config(t)
	p := partition{make(chan struct{})}
	for _, i := range []int{1, 2} {
		cfg.Members[i].Provider = wrapped{cfg.Members[i].Provider, p.wrap}
	}
	old, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	persists := s[2].sync.block() // B has the record of the change, and C has not
	asked, leave := context.WithCancel(context.Background())
	removed := make(chan error, 1)
	go func() {
		_, err := old.RemoveMember(asked, 0)
		removed <- err
	}()
	time.Sleep(time.Second)
	require.Equal(t, persist.Members(6), s.record(1).F)
	require.Equal(t, persist.Members(7), s.record(2).F)
	close(p.cut)
	persists()
	leave()
	require.Error(t, <-removed)

	cfg = s.config(t)
	cfg.ID, cfg.StateDir, cfg.Takeover, cfg.Members = [16]byte{7}, t.TempDir(), true, cfg.Members[1:]
	takenOverFrom(t, cfg, old, c)
}

// A member that was let go, and is taken back before that was active, is not read from until it is in a generation that
// is: the next life may find the one that let it go.
func TestTakenBackIsNotReadFrom(t *testing.T) { synctest.Test(t, testTakenBackIsNotReadFrom) }

func testTakenBackIsNotReadFrom(t *testing.T) {
	s := beating(t, 3, 2)
	cfg := s.config(t)
	cfg.LegTimeout = time.Second
	p := partition{make(chan struct{})}
	for _, i := range []int{1, 2} {
		cfg.Members[i].Provider = wrapped{cfg.Members[i].Provider, p.wrap}
	}
	old, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	persists := s[2].sync.block()
	s.network(0).Down()
	time.Sleep(3 * time.Second)
	require.Equal(t, persist.Members(6), s.record(1).F, "A is let go, and C does not know")
	s.network(2).Down()
	persists()
	time.Sleep(time.Millisecond)
	close(p.cut) // what takes A back reaches nobody but A
	s.network(0).Up()
	time.Sleep(2500 * time.Millisecond)
	require.True(t, old.legs[0].up.Load(), "it is taken back")
	require.Equal(t, persist.Members(6), s.record(1).F)
	s.network(2).Up()

	cfg = s.config(t)
	cfg.ID, cfg.StateDir, cfg.Takeover, cfg.Members = [16]byte{7}, t.TempDir(), true, cfg.Members[1:]
	takenOverFrom(t, cfg, old, c)
}
