package remote

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// ages is longer than any pause between attempts. A member that is away costs the test an attempt each second of it.
const ages = 10 * time.Minute

// waits expects that the mirror cannot go on without more, whatever time passes, and returns a FLUSH that waits.
func (s pairs) waits(t *testing.T, c *backendtest.Client) (goesOn func(want persist.Members)) {
	t.Helper()
	flush := c.Flush()
	c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
	time.Sleep(ages)
	require.False(t, flush.Completed())
	return func(want persist.Members) {
		t.Helper()
		time.Sleep(ages)
		require.True(t, flush.Completed(), "nothing goes on")
		require.NoError(t, c.Wait(flush))
		for i := range s {
			if want.Has(i) {
				require.Equal(t, want, s.record(i).F)
				require.True(t, bytes.Equal(backendtest.Pattern(block, 2), s[i].region.Data()[stripe:stripe+block]), "member %d", i)
			}
		}
	}
}

// inVain ends d, which may have been left where nothing goes on.
func (d *Device) inVain() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Shutdown(ctx)
}

// An outage is of members that the mirror cannot all do without. One of them comes back.
type outageOfTwo struct {
	legs int
	min  uint8
	away []int
	back int
	lost bool            // it has lost its contents
	f    persist.Members // with which the mirror goes on
}

// Of two members that are away, and that the mirror cannot both do without, none is let go. It goes on with
// whichever comes back first, also if that one has lost its contents (mirror §3.3).
func TestEitherOfTwoComesBack(t *testing.T) {
	for name, c := range map[string]outageOfTwo{
		"the first of three":                {legs: 3, min: 2, away: []int{0, 2}, back: 0, f: 3},
		"the last of three":                 {legs: 3, min: 2, away: []int{0, 2}, back: 2, f: 6},
		"the first, without its contents":   {legs: 3, min: 2, away: []int{0, 2}, back: 0, lost: true, f: 3},
		"one of four, and three are needed": {legs: 4, min: 3, away: []int{1, 3}, back: 1, f: 7},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.test) })
	}
}

// The same holds if one copy would do.
func TestEitherOfAllComesBack(t *testing.T) {
	for name, c := range map[string]outageOfTwo{
		"the first": {legs: 2, min: 1, away: []int{0, 1}, back: 0, f: 1},
		"the last":  {legs: 2, min: 1, away: []int{0, 1}, back: 1, f: 2},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.test) })
	}
}

func (c outageOfTwo) test(t *testing.T) {
	s := fakesOf(t, c.legs, c.min, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	defer d.inVain()
	client := backendtest.NewClient(t, d)
	require.NoError(t, client.Do(client.Write(0, backendtest.Pattern(block, 1), 0), client.Flush()))
	for _, i := range c.away {
		s.network(i).Down()
	}
	goesOn := s.waits(t, client)
	if c.lost {
		s.wipe(t, c.back)
	}
	s.up(c.back)
	goesOn(c.f)
	for i := range s {
		s.up(i)
	}
	time.Sleep(ages)
	require.Equal(t, persist.Member(c.legs)-1, d.equal())
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
	for i := range s {
		require.True(t, bytes.Equal(s[0].region.Data(), s[i].region.Data()), "member %d", i)
	}
}

// A member that was let go is taken back while the generation without it waits for one that was lost in this
// moment (mirror §3.3).
func TestMemberIsTakenBack(t *testing.T) {
	for name, lost := range map[string]bool{"with its contents": false, "without them": true} {
		t.Run(name, func(t *testing.T) {
			s := fakesOf(t, 3, 2, rdmafake.Config{})
			d := s.dialImpatient(t, 1)
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			release := s[2].sync.block()
			s.network(0).Down()
			<-s[2].sync.began // its record, without A
			s.network(2).Down()
			release()
			flush := c.Flush()
			c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
			require.Eventually(t, func() bool { a, pending := d.pending(); return pending && a.F == 7 }, patience, tick)
			if lost {
				s.wipe(t, 0)
			}
			s.up(0)
			require.NoError(t, c.Wait(flush))
			require.Equal(t, persist.Members(3), s.record(0).F)
			require.Equal(t, persist.Members(3), s.record(1).F)
			s.up(2)
			require.Eventually(t, func() bool { return d.equal() == 7 }, patience, tick)
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
			require.True(t, bytes.Equal(s[0].region.Data(), s[1].region.Data()))
			require.True(t, bytes.Equal(s[0].region.Data(), s[2].region.Data()))
		})
	}
}

// While a member is away that the mirror cannot do without, no change begins that would wait for it. A smaller M
// lets the mirror go on without it, and then with the change (mirror §4.9).
func TestChangeWaitsForANeededMember(t *testing.T) {
	synctest.Test(t, testChangeWaitsForANeededMember)
}

func testChangeWaitsForANeededMember(t *testing.T) {
	s := fakesOf(t, 2, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	before := s.record(0)
	s.network(1).Down()
	flush := c.Flush()
	c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
	require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
	added := append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{}))
	cfg := added[2:].config(t)
	p, err := PrepareMember(context.Background(), cfg, uuid.UUID{0xee}, regionSize, false)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = d.AddMember(ctx, cfg.Members[0], p)
	require.ErrorIs(t, err, mirror.ErrBelowMin)
	require.ErrorContains(t, err, "nothing was changed: without B, which does not answer")
	require.ErrorContains(t, err, "set --min-copies")
	require.Equal(t, before, s.record(0))

	ended := make(chan error, 1)
	go func() { _, err := d.AddMember(context.Background(), cfg.Members[0], p); ended <- err }()
	require.NoError(t, d.SetMinCopies(context.Background(), 1))
	require.NoError(t, c.Wait(flush))
	require.NoError(t, <-ended)
	require.Eventually(t, func() bool { return d.equal() == 5 }, patience, tick)
	_, err = d.RemoveMember(context.Background(), 1)
	require.NoError(t, err)
	require.NoError(t, d.SetMinCopies(context.Background(), 2))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
	s.up(1)
}

// A smaller M ends the wait of a change for a member that was lost while it was made (mirror §4.9).
func TestSmallerMinCopiesInAChange(t *testing.T) {
	h := newMirrorHostOf(t, 2, 2)
	h.cfg.LegTimeout = 1
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	h.network(1).Down()
	d.changes(t, func(v *mirror.View) (mirror.View, error) { return v.Add(3, [16]byte{3}, 1) })
	h.write(c, stripe, block)
	require.NoError(t, d.SetMinCopies(context.Background(), 1))
	require.NoError(t, c.Do(c.Flush()))
	h.readsAll(c)
	r := h.record(0)
	require.EqualValues(t, 1, r.MinCopies)
	require.Equal(t, persist.Members(1), r.F)
	require.Equal(t, persist.Members(11), r.Present())
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
	h.up(1)
}
