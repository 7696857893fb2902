package remote

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// leadsBack waits until d has seen that the name leads to another region, and serves the
// right one there again.
func (f *farm) leadsBack(d *Device, m regiontest.Medium) {
	f.t.Helper()
	other := f.region.UUID()
	require.Eventually(f.t, func() bool {
		s := d.Snapshot()
		return s.State == StateWaiting && strings.Contains(s.Cause, uuid.UUID(other).String())
	}, patience, tick)
	require.Contains(f.t, d.Snapshot().Cause, d.Snapshot().RegionUUID.String())
	require.Equal(f.t, make([]byte, block), f.region.Data()[:block], "nothing was replayed")
	f.stop()
	f.start(f.path, m)
}

// reopened serves the region again, after change.
func (f *farm) reopened(change func(r *region.Region) error) {
	f.t.Helper()
	r, err := region.Open(f.path, region.OpenOptions{Wrap: regiontest.ADR.Wrap})
	require.NoError(f.t, err)
	require.NoError(f.t, change(r))
	f.serve(r)
}

// changed is a change of a region's superblock.
func changed(change func(sb *region.Superblock)) func(r *region.Region) error {
	return func(r *region.Region) error {
		return r.Update(func(sb *region.Superblock) error { change(sb); return nil })
	}
}

// rowsOfFailure is the table of design §6.2: how the target can change while the session is lost.
var rowsOfFailure = []struct {
	name   string
	change func(t *testing.T, f *farm, d *Device)
	says   string // the device fails for good, and says so
}{
	{"same contents, new process", func(_ *testing.T, f *farm, _ *Device) { f.start(f.path, regiontest.ADR) }, ""},
	{"another region under the name for a while", func(t *testing.T, f *farm, d *Device) {
		f.start(inMemory(t), regiontest.ADR)
		f.leadsBack(d, regiontest.ADR)
	}, ""},
	{"another region for a while, which failed", func(t *testing.T, f *farm, d *Device) {
		f.start(inMemory(t), regiontest.ADR)
		_ = f.region.Fail(os.ErrDeadlineExceeded)
		f.leadsBack(d, regiontest.ADR)
	}, ""},
	{"another region for a while, which names its owner", func(t *testing.T, f *farm, d *Device) {
		old := f.region.Superblock()
		r, err := region.Open(inMemory(t), region.OpenOptions{Name: "log", CreateSize: regionSize, Wrap: regiontest.ADR.Wrap})
		require.NoError(t, err)
		require.NoError(t, r.Update(func(sb *region.Superblock) error {
			sb.Owner, sb.Epoch, sb.Contents, sb.Clean = old.Owner, old.Epoch, old.Contents, false
			return nil
		}))
		f.serve(r)
		f.leadsBack(d, regiontest.ADR)
	}, ""},
	{"another owner since", func(t *testing.T, f *farm, _ *Device) {
		f.reopened(changed(func(sb *region.Superblock) { sb.Epoch++; sb.Owner.Nonce[0]++ }))
	}, "had another owner since"},
	{"restored from an older copy", func(t *testing.T, f *farm, d *Device) {
		f.reopened(changed(func(sb *region.Superblock) { sb.Epoch = 1 }))
	}, "restored from a copy: it is in epoch"},
	{"contents lost", func(t *testing.T, f *farm, _ *Device) {
		f.reopened(changed(func(sb *region.Superblock) { sb.Contents[0]++ }))
	}, "contents were lost"},
	{"region failed", func(t *testing.T, f *farm, _ *Device) {
		f.reopened(func(r *region.Region) error { _ = r.Fail(os.ErrDeadlineExceeded); return nil })
	}, "region failed"},
	{"region unknown for a while", func(t *testing.T, f *farm, d *Device) {
		f.serve()
		require.Eventually(t, func() bool { return strings.Contains(d.Snapshot().Cause, "no region") }, patience, tick)
		f.stop()
		f.start(f.path, regiontest.ADR)
	}, ""},
	{"region suspect until it is cleared", func(t *testing.T, f *farm, d *Device) {
		r, err := region.Open(f.path, region.OpenOptions{Wrap: regiontest.ADR.Wrap})
		require.NoError(t, err)
		require.NoError(t, r.Update(func(sb *region.Superblock) error { sb.Suspect = true; return nil }))
		f.serve(r)
		require.Eventually(t, func() bool { return strings.Contains(d.Snapshot().Cause, "suspect") }, patience, tick)
		require.NoError(t, r.Update(func(sb *region.Superblock) error { sb.Suspect = false; return nil }))
	}, ""},
}

// TestRowsOfFailure is what a session does that finds the target changed.
func TestRowsOfFailure(t *testing.T) {
	for _, tt := range rowsOfFailure {
		t.Run(tt.name, func(t *testing.T) {
			f := newFarm(t)
			d := f.dial(0)
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)))
			f.stop()
			flush, read := c.Flush(), c.Read(0, block, 0)
			c.Submit(flush, read)
			require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
			tt.change(t, f, d)
			err := c.Wait(flush, read)
			if tt.says == "" {
				require.NoError(t, err)
				require.Equal(t, backendtest.Pattern(block, 2), read.Got)
				require.NoError(t, d.Close())
				return
			}
			require.ErrorIs(t, err, backend.ErrFailed)
			require.ErrorContains(t, err, tt.says)
			require.NotEqual(t, backendtest.Pattern(block, 2), f.region.Data()[:block], "nothing was replayed")
			requireFailed(t, c)
			backendtest.AllBack(t, d)
			require.Equal(t, StateFailed, d.Snapshot().State)
			require.Error(t, d.Close())
		})
	}
}

// What is granted again must be what was granted before: a window is never replayed
// into something else.
func TestCompare(t *testing.T) {
	was := wire.Opened{UUID: [16]byte{1}, Size: 4096, Class: 3, Epoch: 7, ContentsID: [16]byte{2}, Mark: 3}
	leg := &leg{granted: was}
	leg.mark.Store(3)
	for _, tt := range []struct {
		name   string
		change func(g *wire.Opened)
		says   string
	}{
		{"the same, one epoch on", func(*wire.Opened) {}, ""},
		{"many epochs on", func(g *wire.Opened) { g.Epoch = 100 }, ""},
		{"doubt and another key", func(g *wire.Opened) { g.Flags, g.Key = wire.OpenedDoubt, 5 }, ""},
		{"another size", func(g *wire.Opened) { g.Size *= 2 }, "another size or class"},
		{"another class", func(g *wire.Opened) { g.Class = 2 }, "another size or class"},
		{"the same epoch", func(g *wire.Opened) { g.Epoch = 7 }, "went back"},
		{"an epoch before", func(g *wire.Opened) { g.Epoch = 6 }, "went back"},
		{"a mark before", func(g *wire.Opened) { g.Mark = 2 }, "went back"},
		{"a mark further on", func(g *wire.Opened) { g.Mark = 4 }, ""},
		{"other contents", func(g *wire.Opened) { g.ContentsID[0]++ }, "contents were lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := was
			g.Epoch++
			tt.change(&g)
			err := leg.compare(&g)
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			var end *lastingError
			require.ErrorAs(t, err, &end)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

// Another region is none of the device's business: it waits for its own.
func TestElsewhere(t *testing.T) {
	g := &leg{cfg: Config{ID: [16]byte{3}, Region: "log"}, granted: wire.Opened{UUID: [16]byte{1}, Size: 4096, Class: 3, Epoch: 7}}
	for _, tt := range []struct {
		name    string
		err     error
		lasting bool
		says    string
	}{
		{"not the owner", g.refusal(&wire.Refused{Code: wire.CodeNotOwner, UUID: [16]byte{1}}), true, "not the owner"},
		{"taken over", g.refusal(&wire.Refused{Code: wire.CodeNotOwner, UUID: [16]byte{1}, Holder: [16]byte{9}, Epoch: 8}), true,
			"initiator 09000000-0000-0000-0000-000000000000 has had the region since (epoch 8), and what was not flushed is lost (the target refuses"},
		{"taken over by another run", g.refusal(&wire.Refused{Code: wire.CodeNotOwner, UUID: [16]byte{1}, Holder: [16]byte{3}, Epoch: 8}), true, "another pmnbd with this initiator's id has had the region"},
		{"given back", g.refusal(&wire.Refused{Code: wire.CodeNotOwner, UUID: [16]byte{1}, Holder: [16]byte{3}, Epoch: 7}), true, "the target refuses region log: not the owner"},
		{"failed", g.refusal(&wire.Refused{Code: wire.CodeFailed, UUID: [16]byte{1}}), true, "failed"},
		{"not the owner of another", g.refusal(&wire.Refused{Code: wire.CodeNotOwner, UUID: [16]byte{2}}), false, "02000000"},
		{"another failed", g.refusal(&wire.Refused{Code: wire.CodeFailed, UUID: [16]byte{2}}), false, "02000000"},
		{"not the owner of nobody knows which", g.refusal(&wire.Refused{Code: wire.CodeNotOwner}), false, "not the owner"},
		{"suspect", g.refusal(&wire.Refused{Code: wire.CodeSuspect, UUID: [16]byte{1}}), false, "suspect"},
		{"unknown", g.refusal(&wire.Refused{Code: wire.CodeUnknownRegion}), false, "unknown region"},
		{"another was granted", g.compare(&wire.Opened{UUID: [16]byte{2}, Size: 4096, Class: 3, Epoch: 8}), false, "02000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var end *lastingError
			require.ErrorContains(t, tt.err, tt.says)
			require.Equal(t, tt.lasting, errors.As(tt.err, &end), "%v", tt.err)
		})
	}
}

// A device waits for its own region as long as for a target that is away, no longer.
func TestLossTimeoutElsewhere(t *testing.T) {
	f := newFarm(t)
	d := f.dial(50 * time.Millisecond)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	f.stop()
	f.start(inMemory(t), regiontest.ADR)
	require.ErrorContains(t, c.Do(c.Flush()), "away for 50ms")
	requireFailed(t, c)
	require.Error(t, d.Close())
}
