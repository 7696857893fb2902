package remote

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// strangers makes targets with a region each, which are no members of a mirror.
func strangers(t testing.TB, n int) (s pairs) {
	for range n {
		s = append(s, fake(t, rdmafake.Config{}))
	}
	return s
}

// content gives the region of p contents.
func (p *pair) content(t testing.TB, off uint64, b []byte) {
	d := p.dial(t)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(off, b, 0)))
	require.NoError(t, d.Close())
}

// firstBlock returns what a device on the mirror reads at off.
func (s pairs) firstBlock(t testing.TB, off uint64) []byte {
	d := s.dial(t, 1)
	c := backendtest.NewClient(t, d)
	read := c.Read(off, block, 0)
	require.NoError(t, c.Do(read))
	require.NoError(t, d.Close())
	return read.Got
}

// What CreateMirror makes of regions.
func TestCreateMirror(t *testing.T) {
	one, other := backendtest.Pattern(block, 1), backendtest.Pattern(block, 2)
	for name, c := range map[string]struct {
		contents [][]byte // at the start of each region
		made     NewMirror
		f        persist.Members
		min      uint8
		says     string
	}{
		"empty":                  {contents: [][]byte{nil, nil}, f: 3, min: 1},
		"three":                  {contents: [][]byte{nil, nil, nil}, f: 7, min: 2},
		"four":                   {contents: [][]byte{nil, nil, nil, nil}, f: 15, min: 3},
		"all copies":             {contents: [][]byte{nil, nil, nil}, made: NewMirror{MinCopies: 3}, f: 7, min: 3},
		"equal":                  {contents: [][]byte{one, one}, f: 3, min: 1},
		"equal, one named":       {contents: [][]byte{one, one}, made: NewMirror{From: 2}, f: 3, min: 1},
		"different":              {contents: [][]byte{one, other}, says: "log at fake:1 and log at fake:1 differ in the MiB at byte 1048576"},
		"different, the first":   {contents: [][]byte{one, other}, made: NewMirror{From: 1}, f: 1, min: 1},
		"different, the last":    {contents: [][]byte{one, one, other}, made: NewMirror{From: 3, MinCopies: 1}, f: 4, min: 1},
		"one":                    {contents: [][]byte{nil}, says: "two members at least"},
		"more copies than there": {contents: [][]byte{nil, nil}, made: NewMirror{MinCopies: 3}, says: "use 1 to 2"},
		"from nowhere":           {contents: [][]byte{nil, nil}, made: NewMirror{From: 3}, says: "member 3 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := strangers(t, len(c.contents))
			for i, b := range c.contents {
				if b != nil {
					s[i].content(t, 1<<20+100, b)
				}
			}
			made, err := CreateMirror(context.Background(), s.config(t), c.made)
			for _, p := range s {
				require.True(t, c.contents[0] == nil && c.says != "" || p.region.Superblock().Clean, "the session was closed")
			}
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				for i := range s {
					require.Zero(t, s.record(i))
				}
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.f.String(), made.F)
			require.Equal(t, int(c.min), made.MinCopies)
			for i := range s {
				r := s.record(i)
				require.NoError(t, r.Check())
				require.Equal(t, [16]byte(made.Set), r.Set)
				require.Equal(t, c.f, r.F)
				require.Equal(t, c.min, r.MinCopies)
				require.EqualValues(t, i, r.Slot)
				require.Equal(t, !c.f.Has(i), r.Torn)
				for slot := range s {
					if c.f.Has(i) && !c.f.Has(slot) {
						require.EqualValues(t, regionSize/s[i].region.ChunkSize(), s[i].region.BitsSet(slot), "nobody knows what it lacks")
					}
				}
			}
			want := make([]byte, block)
			if i := max(c.made.From-1, 0); c.contents[i] != nil {
				want = c.contents[i]
			}
			require.Equal(t, want, s.firstBlock(t, 1<<20+100))
		})
	}
}

// Regions that CreateMirror must not touch.
func TestCreateMirrorRefuses(t *testing.T) {
	create := func(s pairs, edit func(*Config)) error {
		cfg := s.config(t)
		if edit != nil {
			edit(&cfg)
		}
		_, err := CreateMirror(context.Background(), cfg, NewMirror{})
		return err
	}
	t.Run("one region twice", func(t *testing.T) {
		s := strangers(t, 1)
		require.ErrorContains(t, create(pairs{s[0], s[0]}, nil), "are one region")
	})
	t.Run("a member", func(t *testing.T) {
		s := fakes(t, 2, rdmafake.Config{})
		require.NoError(t, s.dial(t, 1).Close())
		require.ErrorContains(t, create(s, nil), "is a member of mirror ee000000-")
		alone := strangers(t, 1)
		require.ErrorContains(t, create(pairs{alone[0], s[0]}, nil), "is a member of mirror ee000000-")
		require.Zero(t, alone[0].region.Superblock().Record)
	})
	t.Run("a region in use", func(t *testing.T) {
		s := strangers(t, 2)
		cfg := s[1].config(t)
		cfg.StateDir, cfg.ID = t.TempDir(), [16]byte{9}
		d, err := Dial(context.Background(), cfg)
		require.NoError(t, err)
		require.ErrorContains(t, create(s, nil), "held by")
		require.NoError(t, d.Close())
		require.NoError(t, create(s, nil))
	})
	t.Run("not closed", func(t *testing.T) {
		s := strangers(t, 2)
		cfg := s[1].config(t)
		d, err := Dial(context.Background(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.network(1).Down()
		require.Error(t, d.Shutdown(ctx))
		s.network(1).Up()
		err = create(s, nil)
		require.ErrorAs(t, err, new(*LossError))
		require.ErrorContains(t, err, "was not closed")
		require.Zero(t, s[1].region.Superblock().Record)
		require.NoError(t, create(s, func(c *Config) { c.AcceptLoss = true }))
	})
}

// A creation that is interrupted can be run again. Until it is through, no start of the mirror begins
// with data of a member that may have changed since.
func TestCreateMirrorInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		three   bool // members, of which two are a majority
		from    int
		written int // records
		begins  bool
	}{
		"before a record":              {},
		"behind one record":            {written: 1},
		"behind all records":           {written: 2, begins: true},
		"to copy, before a record":     {from: 2},
		"to copy, behind one record":   {from: 2, written: 1},
		"to copy, behind both records": {from: 2, written: 2, begins: true},
		"behind a majority of records": {three: true, written: 2},
		"behind all three records":     {three: true, written: 3, begins: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, made := strangers(t, 2), NewMirror{From: c.from, MinCopies: 1}
			if c.three {
				s, made.MinCopies = strangers(t, 3), 2
			}
			if c.from != 0 {
				s[0].content(t, 0, backendtest.Pattern(block, 1))
				s[1].content(t, 0, backendtest.Pattern(block, 2))
			}
			s.createSome(t, made, c.written)
			require.False(t, s[0].region.Superblock().Clean)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			if !c.begins {
				cancel()
				ctx, cancel = context.WithTimeout(context.Background(), patience/100)
			}
			defer cancel()
			sets := map[[16]byte]bool{}
			for i := range s {
				sets[s.record(i).Set] = true
			}
			d, err := Dial(ctx, s.config(t))
			if c.begins {
				require.NoError(t, err)
				require.NoError(t, d.Close())
				_, err = CreateMirror(context.Background(), s.config(t), made)
				require.ErrorContains(t, err, "is a member of mirror")
				return
			}
			require.Error(t, err)
			again, err := CreateMirror(context.Background(), s.config(t), made)
			require.NoError(t, err)
			if c.written > 0 {
				require.True(t, sets[again.Set], "it is the same mirror")
			}
			want := make([]byte, block)
			if c.from != 0 {
				want = backendtest.Pattern(block, 2)
			}
			require.Equal(t, want, s.firstBlock(t, 0))
		})
	}
}

// createSome is CreateMirror, killed behind some RECORDs.
func (s pairs) createSome(t testing.TB, made NewMirror, records int) {
	cfg := s.config(t)
	cfg.Lanes, cfg.AllowVolatile = 1, true
	require.NoError(t, cfg.complete())
	c := &creation{device: &Device{cfg: cfg, log: cfg.Log}, made: made}
	require.NoError(t, c.device.makeLegs())
	ctx := context.Background()
	require.NoError(t, c.probe(ctx))
	slots, err := c.unborn()
	require.NoError(t, err)
	require.Len(t, slots, len(s))
	require.NoError(t, c.closed())
	require.NoError(t, c.open(ctx))
	f, err := c.compare(ctx)
	require.NoError(t, err)
	require.NoError(t, c.compose(f))
	for _, i := range c.order(f)[:records] {
		require.NoError(t, c.write(i))
	}
	for i := range c.conns {
		require.NoError(t, c.conns[i].conn.Close())
	}
	require.NoError(t, c.device.release())
}

// The regions of a mirror that was not created to its end keep their slots, whatever the order of the
// targets.
func TestCreateMirrorKeepsSlots(t *testing.T) {
	s := strangers(t, 2)
	s.createSome(t, NewMirror{MinCopies: 1}, 1)
	cfg := pairs{s[1], s[0]}.config(t)
	cfg.StateDir = s[0].stateDir
	_, err := CreateMirror(context.Background(), cfg, NewMirror{})
	require.NoError(t, err)
	require.EqualValues(t, 0, s.record(0).Slot)
	require.EqualValues(t, 1, s.record(1).Slot)
	require.Equal(t, make([]byte, block), pairs{s[1], s[0]}.firstBlock(t, 0))
}

// ProbeMirror shows what the records say, and what a start would do.
func TestProbeMirror(t *testing.T) {
	s := strangers(t, 2)
	_, err := ProbeMirror(context.Background(), s.config(t))
	require.ErrorContains(t, err, "no target is a member of a mirror")
	_, err = CreateMirror(context.Background(), s.config(t), NewMirror{})
	require.NoError(t, err)
	states := func() (all []LegState, start string) {
		m, err := ProbeMirror(context.Background(), s.config(t))
		require.NoError(t, err)
		for _, l := range m.Legs {
			all = append(all, l.State)
			require.Equal(t, l.State == LegInSync, l.Cause == "")
		}
		return all, m.Start
	}
	all, start := states()
	require.Equal(t, []LegState{LegInSync, LegInSync}, all)
	require.Contains(t, start, "open: ")
	d := s.dialImpatient(t, 1)
	s.network(0).Down()
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	all, start = states()
	require.Equal(t, []LegState{LegAway, LegInSync}, all)
	require.Contains(t, start, "open: ")
	require.NoError(t, d.Close())
	s.network(1).Down()
	s.network(0).Up()
	all, start = states()
	require.Equal(t, []LegState{LegInSync, LegAway}, all, "it does not know better")
	require.Contains(t, start, "wait: waits for B: ")
	s.network(1).Up()
	all, _ = states()
	require.Equal(t, []LegState{LegAway, LegInSync}, all)
}
