package remote

import (
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// mendable makes a mirror whose members have the same contents, and make good what they lose.
func mendable(t *testing.T, legs int) (s pairs, contents []byte) {
	t.Helper()
	contents = backendtest.Pattern(regionSize, 1)
	for range legs {
		var p *pair
		m := regiontest.Medium{Mend: func(off, n uint64) error {
			return unix.Mprotect(p.region.Data()[off:off+n], unix.PROT_READ|unix.PROT_WRITE)
		}}
		p = newPairOn(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{}, m)
		copy(p.region.Data(), contents)
		s = append(s, p)
	}
	s.join(t, 1)
	return s, contents
}

// losesBlock has a region's medium lose a block, and the target know it.
func (p *pair) losesBlock(t *testing.T, off uint64) {
	t.Helper()
	p.lose(t, persist.Range{Off: off, Len: block})
	_, err := p.region.Lose(reflect.ValueOf(p.region.Data()).Pointer() + uintptr(off))
	require.NoError(t, err)
}

// A READ of what one member has lost comes from another member in sync. It is an error only if none of them has all
// of it (mirror §3.7).
func TestMirrorReadsAroundBadPlaces(t *testing.T) {
	s, contents := mendable(t, 2)
	s[0].losesBlock(t, 3*block)
	s[1].losesBlock(t, 7*block)
	s[0].losesBlock(t, stripe)
	s[1].losesBlock(t, stripe)
	d := s.dial(t, 2)
	c := backendtest.NewClient(t, d)
	for name, q := range map[string]struct {
		off, n uint64
		fails  bool
	}{
		"sound":                  {0, 3 * block, false},
		"the first's":            {2 * block, 3 * block, false},
		"the second's":           {7 * block, block, false},
		"both, and none has all": {0, 8 * block, true},
		"both have lost it":      {stripe, block, true},
		"behind it":              {stripe + block, 8 * block, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.Read(q.off, int(q.n), 0)
			err := c.Do(r)
			if q.fails {
				require.ErrorIs(t, err, ErrBadPlace)
				return
			}
			require.NoError(t, err)
			require.Equal(t, contents[q.off:q.off+q.n], r.Got)
		})
	}
	// What both take is good at both, and a part of what one has lost is for neither.
	require.ErrorIs(t, c.Do(c.Write(3*block, []byte("part"), 0)), ErrBadPlace)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(8*block, 2), 0), c.Write(stripe, backendtest.Pattern(block, 2), 0), c.Flush()))
	for i := range s {
		require.Empty(t, s[i].region.Bad())
		require.Equal(t, backendtest.Pattern(8*block, 2), s[i].region.Data()[:8*block])
	}
	require.Equal(t, StateOpen, d.Snapshot().State)
	require.Zero(t, d.Snapshot().Recoveries)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A READ waits for a member in sync that is away and has what the other has lost, and fails once that one is let
// go.
func TestMirrorWaitsForWhoHasIt(t *testing.T) {
	s, contents := mendable(t, 2)
	s[0].losesBlock(t, 3*block)
	d := s.dial(t, 1)
	c := backendtest.NewClient(t, d)
	s.network(1).Down()
	require.Eventually(t, func() bool { return !d.legs[1].up.Load() }, patience, tick)
	read, other := c.Read(3*block, block, 0), c.Read(4*block, block, 0)
	c.Submit(read)
	require.NoError(t, c.Do(other))
	require.False(t, read.Completed())
	s.network(1).Up()
	require.NoError(t, c.Wait(read))
	require.Equal(t, contents[3*block:4*block], read.Got)
	require.NoError(t, d.Close())

	d = s.dialImpatient(t, 1)
	c = backendtest.NewClient(t, d)
	s.network(1).Down()
	require.ErrorIs(t, c.Do(c.Read(3*block, block, 0)), ErrBadPlace)
	require.NoError(t, c.Do(c.Write(3*block, backendtest.Pattern(block, 2), 0), c.Flush()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
	s.network(1).Up()
}

// A READ of what one member has lost goes on behind another one's replay, though FLUSH waits for a third.
func TestMirrorReadsABadPlaceBehindAReplay(t *testing.T) { synctest.Test(t, testBadPlaceBehindAReplay) }

func testBadPlaceBehindAReplay(t *testing.T) {
	s, contents := mendable(t, 3)
	s[1].losesBlock(t, 3*block)
	d := s.dial(t, 1)
	c := backendtest.NewClient(t, d)
	s.network(2).Down()
	require.Eventually(t, func() bool { return !d.legs[2].up.Load() }, patience, tick)
	for i := range 20 { // several slices
		require.NoError(t, c.Do(c.Write(stripe+uint64(i)*2*block, contents[:2*block], 0)))
	}
	session := d.legs[0].generation.Load()
	s.network(0).Cut()
	require.Eventually(t, func() bool { return d.legs[0].up.Load() && d.legs[0].generation.Load() != session }, patience, tick)
	for range 2 {
		read := c.Read(3*block, block, 0)
		require.NoError(t, c.Do(read))
		require.Equal(t, contents[3*block:4*block], read.Got)
	}
	s.network(2).Up()
	require.NoError(t, c.Do(c.Flush()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A copy to a member makes good what that one has lost, and comes from a member that has it.
func TestResyncOfBadPlaces(t *testing.T) {
	s, contents := mendable(t, 3)
	s[0].losesBlock(t, 3*block)
	d := s.dialImpatient(t, 2)
	c := backendtest.NewClient(t, d)
	s.network(2).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(2*block, 2), 0), c.Flush())) // a chunk has 16 blocks
	copy(contents, backendtest.Pattern(2*block, 2))
	s[2].losesBlock(t, 5*block)
	s.network(2).Up()
	require.Eventually(t, func() bool { return d.equal() == 7 }, patience, tick)
	require.NoError(t, d.Sync(t.Context()))
	require.Empty(t, s[2].region.Bad())
	require.Equal(t, contents, s[2].region.Data())
	require.Equal(t, persist.BadPlaces{{Off: 3 * block, Len: block}}, s[0].region.Bad(), "nobody has written there")
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// After an end that was not clean the source is a member that has all of it: what the others have where the source has
// lost a place would be read by nobody, and copied from by nobody, although it was flushed (mirror §4.4).
func TestSourceHasNoBadPlaces(t *testing.T) {
	s, contents := mendable(t, 2)
	old := s.dial(t, 1)
	s[0].losesBlock(t, 3*block)
	cfg := s.config(t)
	cfg.StateDir = t.TempDir()
	d, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	require.Error(t, old.Close())
	c := backendtest.NewClient(t, d)
	read := c.Read(3*block, block, 0)
	require.NoError(t, c.Do(read))
	require.Equal(t, contents[3*block:4*block], read.Got)
	require.Eventually(t, func() bool { return d.equal() == 3 }, patience, tick)
	require.NoError(t, d.Sync(t.Context()))
	require.Empty(t, s[0].region.Bad())
	require.Equal(t, contents, s[0].region.Data())
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A verification reports what a member has lost, copies it from a member that has it, and says where it could not.
func TestVerifyBadPlaces(t *testing.T) {
	s, contents := mendable(t, 2)
	s[0].losesBlock(t, 3*block)
	d := s.dial(t, 2)

	v, err := d.Verify(t.Context(), VerifyOptions{})
	require.NoError(t, err)
	require.Equal(t, 1, v.Different)
	v, err = d.Verify(t.Context(), VerifyOptions{From: "A"})
	require.NoError(t, err)
	require.Equal(t, 1, v.Different)
	require.False(t, v.Differences[0].Copied)
	require.Equal(t, contents, s[1].region.Data())
	v, err = d.Verify(t.Context(), VerifyOptions{From: "B"})
	require.NoError(t, err)
	require.True(t, v.Differences[0].Copied)
	require.NoError(t, d.Sync(t.Context()))
	require.Equal(t, contents, s[0].region.Data())
	require.Empty(t, s[0].region.Bad())
	v, err = d.Verify(t.Context(), VerifyOptions{})
	require.NoError(t, err)
	require.Zero(t, v.Different)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A place that a member has lost, and of which nobody knew, is found by the digests of a copy to that member. What is
// copied makes it good: the member does not fail.
func TestCopyFindsABadPlace(t *testing.T) {
	lost := persist.Range{Off: 5 * block, Len: block}
	t.Run("resync", func(t *testing.T) {
		s, contents := mendable(t, 2)
		d := s.dialImpatient(t, 1)
		c := backendtest.NewClient(t, d)
		s.network(1).Down()
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(2*block, 2), 0), c.Flush()))
		copy(contents, backendtest.Pattern(2*block, 2))
		s[1].lose(t, lost)
		s.network(1).Up()
		require.Eventually(t, func() bool { return d.equal() == 3 }, patience, tick)
		require.NoError(t, d.Sync(t.Context()))
		require.NoError(t, s[1].region.Failed())
		require.Empty(t, s[1].region.Bad())
		require.Equal(t, contents, s[1].region.Data())
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
	t.Run("verification", func(t *testing.T) {
		s, contents := mendable(t, 2)
		d := s.dial(t, 2)
		s[1].lose(t, lost)
		v, err := d.Verify(t.Context(), VerifyOptions{From: "A"})
		require.NoError(t, err)
		require.Equal(t, 1, v.Different)
		require.True(t, v.Differences[0].Copied)
		require.NoError(t, d.Sync(t.Context()))
		require.NoError(t, s[1].region.Failed())
		require.Empty(t, s[1].region.Bad())
		require.Equal(t, contents, s[1].region.Data())
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
}
