package remote

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma/iwarp"
	"pmnbd/rdma/rdmafake"
)

// badPair is a pair whose medium has lost ranges. Touching them would end the test's process: the fake
// adapter copies without a net.
func badPair(t *testing.T, ranges ...persist.Range) *pair {
	t.Helper()
	p := newPairOn(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{}, regiontest.Medium{Bad: func() []persist.Range { return ranges }})
	for _, g := range p.region.Bad() {
		require.NoError(t, unix.Mprotect(p.region.Data()[g.Off:g.End()], unix.PROT_NONE))
	}
	return p
}

// Exactly the requests fail that need a lost place, without anything of them reaching the target. All others
// go on, and so does the device.
func TestRequestsOfBadPlaces(t *testing.T) {
	const bad, wide = 3 * block, stripe - block // the second ends one stripe and begins another
	p := badPair(t, persist.Range{Off: bad + 512, Len: 512}, persist.Range{Off: wide, Len: 2 * block})
	d := p.dialLanes(t, 2)
	c := backendtest.NewClient(t, d)
	require.EqualValues(t, 3*block, d.Snapshot().Targets[0].Bad)
	failed := uint64(0)
	for name, q := range map[string]struct {
		r     *backendtest.Request
		fails bool
	}{
		"READ in front":                      {c.Read(0, bad, 0), false},
		"READ behind":                        {c.Read(bad+block, 8*block, 0), false},
		"READ of the block":                  {c.Read(bad, block, 0), true},
		"READ of a byte that may be good":    {c.Read(bad, 1, 0), true},
		"READ of its last byte":              {c.Read(bad+block-1, 2, 0), true},
		"READ of all around":                 {c.Read(0, 8*block, 0), true},
		"READ of the end of a stripe":        {c.Read(wide, block, 0), true},
		"READ across two streams, both lost": {c.Read(wide-block, 4*block, 0), true},
		"READ of many spans":                 {c.Read(0, backend.ChunkSize*2, 100), true},
		"READ between":                       {c.Read(wide+2*block, block, 0), false},
		"WRITE of a part":                    {c.Write(bad+1, backendtest.Pattern(7, 1), 0), true},
		"WRITE that ends in it":              {c.Write(bad-block, backendtest.Pattern(block+1, 1), 0), true},
		"WRITE in front":                     {c.Write(bad-block, backendtest.Pattern(block, 1), 0), false},
		"WRITE_ZEROES of a part":             {c.Zero(bad, 100), true},
		"WRITE_ZEROES behind":                {c.Zero(bad+block, block), false},
	} {
		t.Run(name, func(t *testing.T) {
			q.r.FUA = q.r.Cmd != backend.Read
			beside := c.Read(0, block, 0)
			err := c.Do(q.r, beside)
			require.NoError(t, beside.Err)
			if q.fails {
				failed++
				require.ErrorIs(t, q.r.Err, ErrBadPlace)
				require.Equal(t, backend.EIO, backend.ErrnoOf(q.r.Err))
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, failed, d.Snapshot().BadRequests)
		})
	}
	require.NoError(t, c.Do(c.Flush()))
	require.Equal(t, StateOpen, d.Snapshot().State)
	require.Zero(t, d.Snapshot().Recoveries)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// The list may have more places than a message.
func TestManyBadPlaces(t *testing.T) {
	var ranges []persist.Range
	for i := range uint64(600) {
		ranges = append(ranges, persist.Range{Off: i * 3 * block, Len: 1})
	}
	p := badPair(t, ranges...)
	d := p.dial(t)
	require.Equal(t, p.region.Bad(), d.legs[0].badPlaces.Load().places)
	require.NoError(t, d.Close())
}

// A READ or WRITE costs one load more where nothing is bad, and no memory where something is.
func TestBadPlacesAllocateNothing(t *testing.T) {
	var b badCore
	op := &backend.Op{Cmd: backend.Write, Off: 0, Len: math.MaxInt32}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if b.refuse(op) != nil {
			t.Fail()
		}
	}))
	b.legs.Store(&[]*badLeg{{places: persist.BadPlaces{{Off: 1 << 40, Len: block}}}})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if b.refuse(op) != nil {
			t.Fail()
		}
	}))
}

// lose has the memory of ranges be lost while it is served.
func (p *pair) lose(t *testing.T, ranges ...persist.Range) {
	t.Helper()
	for _, g := range ranges {
		require.NoError(t, unix.Mprotect(p.region.Data()[g.Off:g.End()], unix.PROT_NONE))
	}
}

// A place that nobody knew of ends the session of the READ that finds it, and no more: the READ fails alone, and
// the device lives, however many places one READ or several find. What was acknowledged arrives.
func TestReadFindsBadPlaces(t *testing.T) {
	p := newPair(t, iwarp.New(iwarp.Config{}), "127.0.0.1:0", "", target.Config{})
	cfg := p.config(t)
	cfg.LossTimeout = 0
	d, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(32*block, 1), 0), c.Flush()))
	p.lose(t, persist.Range{Off: 3 * block, Len: 2 * block}, persist.Range{Off: 8 * block, Len: block}, persist.Range{Off: 20 * block, Len: block})
	require.ErrorIs(t, c.Do(c.Write(block, backendtest.Pattern(block, 2), 0), c.Read(0, 16*block, 0)), ErrBadPlace)
	require.Equal(t, persist.BadPlaces{{Off: 3 * block, Len: 2 * block}}, p.region.Bad(), "one that is known is enough")
	require.NoError(t, c.Do(c.Flush()))
	// Two in a row, and nothing else that could show that the target does its work.
	require.ErrorIs(t, c.Do(c.Read(8*block, block, 0)), ErrBadPlace)
	require.ErrorIs(t, c.Do(c.Read(20*block, block, 0)), ErrBadPlace)
	for at := range uint64(32) {
		r := c.Read(at*block, block, 0)
		err := c.Do(r)
		if _, bad := p.region.Bad().Touched(at*block, block); bad {
			require.ErrorIs(t, err, ErrBadPlace)
			continue
		}
		require.NoError(t, err, "block %d", at)
		want := backendtest.Pattern(32*block, 1)[at*block:][:block]
		if at == 1 {
			want = backendtest.Pattern(block, 2)
		}
		require.Equal(t, want, r.Got)
	}
	require.NoError(t, c.Do(c.Flush()))
	require.EqualValues(t, 3, d.Snapshot().Recoveries)
	require.Equal(t, StateOpen, d.Snapshot().State)
	require.NoError(t, p.region.Failed())
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// losing is a medium that has lost ranges.
func losing(ranges ...persist.Range) regiontest.Medium {
	m := regiontest.ADR
	m.Bad = func() []persist.Range { return ranges }
	return m
}

// A write that was acknowledged, and whose place is bad when it is to be sent again, cannot become durable: the
// device fails, and says why. It never calls the write flushed.
func TestReplayOverABadPlace(t *testing.T) {
	f := newFarm(t)
	d := f.dial(0)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(8*block, 1), 0), c.Flush()))
	require.NoError(t, c.Do(c.Write(3*block+512, backendtest.Pattern(512, 2), 0)))
	f.stop()
	flush := c.Flush()
	c.Submit(flush)
	f.start(f.path, losing(persist.Range{Off: 3 * block, Len: 1}))
	err := c.Wait(flush)
	require.ErrorIs(t, err, backend.ErrFailed)
	require.ErrorIs(t, err, ErrBadPlace)
	requireFailed(t, c)
	require.Equal(t, backendtest.Pattern(8*block, 1), f.region.Data()[:8*block], "nothing was placed")
	require.NoError(t, f.region.Failed())
	backendtest.AllBack(t, d)
	require.Error(t, d.Close())
}
