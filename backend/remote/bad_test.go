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
	return badPairOn(t, rdmafake.Config{}, regiontest.Medium{}, ranges...)
}

func badPairOn(t *testing.T, cfg rdmafake.Config, m regiontest.Medium, ranges ...persist.Range) *pair {
	t.Helper()
	var p *pair
	m.Bad = func() []persist.Range { return ranges }
	m.Mend = func(off, n uint64) error {
		return unix.Mprotect(p.region.Data()[off:off+n], unix.PROT_READ|unix.PROT_WRITE)
	}
	p = newPairOn(t, rdmafake.New(cfg), "", "", target.Config{}, m)
	p.lose(t, p.region.Bad()...)
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

// A READ that finds an unknown bad place ends its session. Only that READ fails, and the device lives, whether one
// READ finds one such place or several find many. Every acknowledged write reaches the region.
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

// A write of whole bad blocks makes them good, however it is cut, and the target tells of them as bad until a FLUSH
// has covered it. READs behind it in the order of requests get what it wrote.
func TestOverwrittenBadPlaces(t *testing.T) {
	const bad = 5 * block
	for name, c := range map[string]struct {
		medium regiontest.Medium
		fake   rdmafake.Config
		method persist.Method
		ask    func(c *backendtest.Client) *backendtest.Request
		want   []byte // of the three blocks that begin one before the bad one; nil: the write's
	}{
		"the block": {ask: func(c *backendtest.Client) *backendtest.Request {
			return c.Write(bad, backendtest.Pattern(block, 7), 0)
		}},
		"around it": {ask: func(c *backendtest.Client) *backendtest.Request {
			return c.Write(bad-block, backendtest.Pattern(3*block, 7), 0)
		}},
		"in two pieces": {ask: func(c *backendtest.Client) *backendtest.Request {
			return c.Write(bad-block, backendtest.Pattern(3*block, 7), block+100)
		}},
		"zeroes": {ask: func(c *backendtest.Client) *backendtest.Request { return c.Zero(bad, block) }},
		"apm": {
			medium: regiontest.EADR, fake: rdmafake.Config{PlacesByDMA: true}, method: persist.MethodAPM,
			ask: func(c *backendtest.Client) *backendtest.Request {
				return c.Write(bad, backendtest.Pattern(block, 7), 0)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := badPairOn(t, c.fake, c.medium, persist.Range{Off: bad, Len: 512}, persist.Range{Off: 100 * block, Len: 512})
			d := p.dial(t)
			if c.method != 0 {
				require.Equal(t, c.method.String(), d.Snapshot().Method)
			}
			client := backendtest.NewClient(t, d)
			early, w := client.Read(bad, block, 0), c.ask(client)
			late := client.Read(w.Off, int(w.Len), 0)
			want := make([]byte, w.Len)
			at := 0
			for _, s := range w.Data {
				at += copy(want[at:], s.Bytes())
			}
			client.Submit(early)
			require.ErrorIs(t, client.Wait(early), ErrBadPlace)
			require.NoError(t, client.Do(w, late))
			require.Equal(t, want, late.Got)
			require.Len(t, p.region.Bad(), 2, "an initiator that died now would leave what nobody wrote")
			require.EqualValues(t, block, d.Snapshot().Targets[0].Bad)
			require.NoError(t, client.Do(client.Flush()))
			require.Equal(t, persist.BadPlaces{{Off: 100 * block, Len: block}}, p.region.Bad())
			part := client.Write(bad+1, []byte("part"), 0)
			require.NoError(t, client.Do(part, client.Flush()))
			require.Zero(t, d.Snapshot().Recoveries)
			require.EqualValues(t, 1, d.Snapshot().BadRequests)
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
			require.NoError(t, p.region.Failed())
		})
	}
}

// Where the kernel cannot make blocks good, as through a device, a write of the whole block gets EIO, too.
func TestOverwriteThatClearsNothing(t *testing.T) {
	p := badPair(t, persist.Range{Off: 5 * block, Len: block})
	d := p.dial(t)
	d.legs[0].changeBad(func(b *badLeg) *badLeg { return &badLeg{places: b.places} }) // as a device says
	c := backendtest.NewClient(t, d)
	require.ErrorIs(t, c.Do(c.Write(5*block, backendtest.Pattern(block, 1), 0)), ErrBadPlace)
	require.ErrorIs(t, c.Do(c.Zero(0, 8*block)), ErrBadPlace)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(5*block, 1), 0), c.Flush()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A replay makes bad blocks good that the window has as a whole, also if the target was told to before it went.
func TestReplayOverwritesABadPlace(t *testing.T) {
	f := newFarm(t)
	d := f.dial(0)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(8*block, 1), 0), c.Flush()))
	require.NoError(t, c.Do(c.Write(3*block, backendtest.Pattern(block, 2), 0)))
	for range 2 {
		f.stop()
		read := c.Read(2*block, 3*block, 0)
		c.Submit(read)
		m := losing(persist.Range{Off: 3 * block, Len: 1})
		m.Mend = func(off, n uint64) error { return nil }
		m.Data = regiontest.Discard
		f.start(f.path, m)
		require.NoError(t, c.Wait(read))
		want := backendtest.Pattern(8*block, 1)[2*block : 5*block]
		copy(want[block:], backendtest.Pattern(block, 2))
		require.Equal(t, want, read.Got)
		require.NoError(t, c.Do(c.Write(3*block, backendtest.Pattern(block, 2), 0)))
	}
	require.NoError(t, c.Do(c.Flush()))
	require.Empty(t, f.region.Bad())
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// The same at a start, which has the window of a run that was killed: each start ends with that loss, and removes nothing.
// One that accepts it finds all that was flushed, but for the bad place. Once somebody has repaired the place by hand,
// nothing is lost but what was there.
func TestAdoptedWindowOverABadPlace(t *testing.T) {
	t.Run("accepted", func(t *testing.T) { testWindowOverABadPlace(t, false) })
	t.Run("repaired", func(t *testing.T) { testWindowOverABadPlace(t, true) })
}

func testWindowOverABadPlace(t *testing.T, repaired bool) {
	h := newHost(t)
	d, c := h.run()
	flushed := backendtest.Pattern(8*block, 1)
	require.NoError(t, c.Do(c.Write(0, flushed, 0), c.Flush()))
	require.NoError(t, c.Do(c.Write(3*block+512, backendtest.Pattern(512, 2), 0)))
	h.kill(d)
	h.stop()
	h.start(h.path, losing(persist.Range{Off: 3 * block, Len: 1}))
	for range 2 {
		h.refused("512 bytes at 12800 were acknowledged, and the target has lost the place since: the medium has lost what is there; 512 acknowledged bytes were not flushed")
	}
	if repaired {
		h.stop()
		h.start(h.path, regiontest.ADR)
		clear(h.region.Data()[3*block:][:block])
		d, c = h.run()
		read := c.Read(0, 8*block, 0)
		require.NoError(t, c.Do(read))
		clear(flushed[3*block:][:block])
		copy(flushed[3*block+512:], backendtest.Pattern(512, 2))
		require.Equal(t, flushed, read.Got)
		require.NoError(t, d.Close())
		return
	}
	h.cfg.AcceptLoss = true
	d, c = h.run()
	bad := c.Read(3*block, block, 0)
	c.Submit(bad)
	require.ErrorIs(t, c.Wait(bad), ErrBadPlace)
	before, behind := c.Read(0, 3*block, 0), c.Read(4*block, 4*block, 0)
	require.NoError(t, c.Do(before, behind))
	require.Equal(t, flushed[:3*block], before.Got)
	require.Equal(t, flushed[4*block:], behind.Got)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}
