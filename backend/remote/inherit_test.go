package remote

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
)

// What can happen to a region and its window before a run. Each of these is a run, or something
// between two runs.

func closed(h *host) {
	d, _ := h.run()
	require.NoError(h.t, d.Close())
}

func killed(h *host) {
	d, _ := h.run()
	h.kill(d)
}

// killedDirty is a run that was killed with an acknowledged write in its window.
func killedDirty(h *host) {
	d, c := h.run()
	require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	h.kill(d)
}

func killedFlushed(h *host) {
	d, c := h.run()
	require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	h.kill(d)
}

func interruptedAndClosed(h *host) {
	d, c := h.run()
	h.provider.Cut()
	require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(h.t, d.Close())
}

func failed(h *host) {
	d, c := h.run()
	require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	d.legs[0].lanes[0].abort(&BarrierError{})
	require.Error(h.t, c.Do(c.Flush()))
	require.Error(h.t, d.Close())
}

// madeFile is a run that was killed as soon as it had made its window file.
func madeFile(h *host) {
	f, err := openWindowFile(h.cfg.WindowDir, h.cfg.ID, h.region.UUID())
	require.NoError(h.t, err)
	require.NoError(h.t, f.Close())
}

// another initiator has the region and closes it.
func another(h *host) {
	cfg := h.cfg
	cfg.ID, cfg.StateDir, cfg.WindowDir = [16]byte{7}, h.t.TempDir(), ""
	cfg.Takeover = true
	d, err := Dial(context.Background(), cfg)
	require.NoError(h.t, err)
	require.NoError(h.t, d.Close())
}

func localClients(h *host)  { h.cfg.LocalClients = true }
func remoteClients(h *host) { h.cfg.LocalClients = false }
func lostWindow(h *host)    { require.NoError(h.t, os.Remove(h.file())) }

// superblock changes the region's superblock while the target is down.
func superblock(change func(*region.Superblock)) func(*host) {
	return func(h *host) {
		h.stop()
		r, err := region.Open(h.path, region.OpenOptions{Wrap: regiontest.ADR.Wrap})
		require.NoError(h.t, err)
		require.NoError(h.t, r.Update(func(sb *region.Superblock) error { change(sb); return nil }))
		h.serve(r)
	}
}

func rewritten(change func(*header)) func(*host)     { return func(h *host) { h.rewrite(change) } }
func scribbled(change func(half []byte)) func(*host) { return func(h *host) { h.scribble(change) } }

func badHeader(half []byte) { half[headerPrefix] ^= 1 }

// unsent makes the window one of a run that was killed before it sent OPEN, and unnoted one of a
// run that was killed before it noted the grant.
func unsent(h *header)  { h.State, h.Opened = windowLive, 0 }
func unnoted(h *header) { h.Opened, h.Epoch = 0, h.Epoch-1 }

func badIndex(h *host) {
	b, err := os.ReadFile(h.file())
	require.NoError(h.t, err)
	for i := range headerPage {
		b[headerPage+i] ^= byte(i)
	}
	require.NoError(h.t, os.WriteFile(h.file(), b, 0o600))
}

func shortFile(h *host) { require.NoError(h.t, os.Truncate(h.file(), headerPrefix)) }

// unwrittenBoot makes the boot record as if the run could not write it.
func unwrittenBoot(h *host) {
	records, err := filepath.Glob(filepath.Join(h.cfg.StateDir, "*.boot"))
	require.NoError(h.t, err)
	require.Len(h.t, records, 1)
	require.NoError(h.t, os.Truncate(records[0], 0))
}

// An inheritance is what a run finds, and what it does.
type inheritance struct {
	name   string
	before []func(h *host)
	why    string // the loss that keeps every run from starting; "" if a run starts
	kept   bool   // the lineage goes on
}

var cleanEnds = []inheritance{
	{"a clean end", []func(*host){closed}, "", true},
	{"a clean end, after an interruption", []func(*host){interruptedAndClosed}, "", true},
	{"a clean end, and somebody else since", []func(*host){closed, another}, "somebody else had region", false},
	{"a clean end but for CLOSE, and a RESUME that was not answered", []func(*host){closed,
		superblock(func(sb *region.Superblock) { sb.Clean = false; sb.Epoch += 2 })}, "", true},
	{"the same, and a kill in it", []func(*host){killedFlushed, rewritten(func(h *header) { h.State = windowDrained }),
		superblock(func(sb *region.Superblock) { sb.Epoch++ })}, "", true},
	{"the same by another run of this id", []func(*host){closed,
		superblock(func(sb *region.Superblock) { sb.Clean = false; sb.Epoch++; sb.Owner.Nonce[0]++ })}, "another owner", false},
	{"the same by another run of this id, which closed", []func(*host){closed,
		superblock(func(sb *region.Superblock) { sb.Epoch++; sb.Owner.Nonce[0]++ })}, "somebody else had region", false},
	{"the same, and the contents lost", []func(*host){closed,
		superblock(func(sb *region.Superblock) { sb.Clean = false; sb.Epoch++; sb.Contents[0]++ })}, "contents were lost", false},
	{"a clean end, and the contents lost", []func(*host){closed,
		superblock(func(sb *region.Superblock) { sb.Contents[0]++ })}, "contents of region log were lost", false},
	{"a clean end, and the header damaged", []func(*host){closed, scribbled(badHeader)}, "is damaged", false},
	{"a kill before OPEN was granted", []func(*host){closed, rewritten(unsent)}, "", true},
}

var kills = []inheritance{
	{"a kill", []func(*host){killed}, "", true},
	{"a kill, and another owner since", []func(*host){killedDirty,
		superblock(func(sb *region.Superblock) { sb.Owner.Nonce[0]++; sb.Epoch++ })}, "another owner", false},
	{"a kill, and the contents lost", []func(*host){killed,
		superblock(func(sb *region.Superblock) { sb.Contents[0]++ })}, "contents were lost", false},
	{"a kill, and a boot since that left the file", []func(*host){localClients, killedDirty, (*host).boot}, "", false},
	{"the same file, but nothing tells that this host booted", []func(*host){killed,
		rewritten(func(h *header) { h.Boot[0]++ })}, "from before this host booted", false},
	{"a kill, and the index damaged", []func(*host){killedDirty, badIndex}, "go on where the previous pmnbd ended: ", false},
	{"a kill, and the header damaged", []func(*host){killedDirty, scribbled(badHeader)}, "is damaged", false},
	{"a kill, and most of the header lost", []func(*host){killed, shortFile}, "is damaged", false},
	{"a kill of another release", []func(*host){killedDirty,
		scribbled(func(half []byte) { half[0]++ })}, "Start that release again", false},
	{"a kill before the grant was noted", []func(*host){killed, rewritten(unnoted)}, "", true},
	{"the same, and RESUMEs whose answers were lost, too", []func(*host){killed, rewritten(unnoted),
		superblock(func(sb *region.Superblock) { sb.Epoch += 2 })}, "", true},
	{"the same, and another run of this id since", []func(*host){killed, rewritten(unnoted),
		superblock(func(sb *region.Superblock) { sb.Epoch++; sb.Owner.Nonce[0]++ })}, "somebody else had region", false},
	{"a device that failed", []func(*host){failed}, "the device failed in the previous run: the target could not make barrier", false},
}

var lostWindows = []inheritance{
	{"nothing", nil, "", false},
	{"a file that was only made", []func(*host){madeFile}, "", false},
	{"a kill, and the window lost", []func(*host){killed, lostWindow}, "its window is not in", false},
	{"a kill, the window lost, and another owner since", []func(*host){killed, lostWindow, another}, "somebody else had region log since", false},
	{"a clean end, the window lost, and another owner since", []func(*host){closed, lostWindow, another}, "somebody else had region log since", false},
	{"the same, and a boot since", []func(*host){closed, lostWindow, another, (*host).boot}, "", false},
	{"a kill, the window lost, and a boot since", []func(*host){localClients, killed, lostWindow, (*host).boot}, "", false},
	{"the same with clients elsewhere", []func(*host){localClients, killed, lostWindow, (*host).boot, remoteClients}, "its window is not in", false},
	{"the same with clients elsewhere before", []func(*host){killed, lostWindow, (*host).boot, localClients}, "its window is not in", false},
	{"the same with a record that could not be written", []func(*host){localClients, killed, lostWindow, unwrittenBoot}, "its window is not in", false},
}

func TestInheritance(t *testing.T) {
	for _, tt := range slices.Concat(cleanEnds, kills, lostWindows) {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, false) })
		if tt.why == "" {
			t.Run(tt.name+", accepting a loss that is none", func(t *testing.T) { tt.run(t, true) })
		}
	}
}

func (i *inheritance) run(t *testing.T, acceptLoss bool) {
	h := newHost(t)
	for _, happen := range i.before {
		happen(h)
	}
	h.cfg.AcceptLoss, h.cfg.Takeover = acceptLoss, true // the lease has tests of its own
	var lineage [16]byte
	if found, _ := filepath.Glob(filepath.Join(h.cfg.WindowDir, "*.window")); len(found) > 0 {
		f, err := openWindowFile(h.cfg.WindowDir, h.cfg.ID, h.region.UUID())
		require.NoError(t, err)
		lineage = f.header().Lineage
		require.NoError(t, f.Close())
	}
	if i.why != "" {
		h.refused(i.why)
		h.refused(i.why) // a second start finds the same
		h.cfg.AcceptLoss = true
	}
	d, c := h.run()
	require.Equal(t, i.kept, lineage == d.lineage)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 9), 0), c.Flush()))
	require.NoError(t, d.Close())
	h.cfg.AcceptLoss = false
	closed(h)
}

// Only the initiator of a window adopts it, and only for the window's region.
func TestWindowsAreKeptApart(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other func(t *testing.T, cfg *Config)
		back  bool // the next run can adopt the first one's window
	}{
		{"regions", func(_ *testing.T, cfg *Config) { cfg.Region = "other" }, true},
		{"initiators", func(t *testing.T, cfg *Config) {
			cfg.ID, cfg.StateDir, cfg.Takeover = [16]byte{7}, t.TempDir(), true
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.stop()
			r, err := region.Open(h.path, region.OpenOptions{Wrap: regiontest.ADR.Wrap})
			require.NoError(t, err)
			second, err := region.Open(inMemory(t), region.OpenOptions{Name: "other", CreateSize: regionSize, Wrap: regiontest.ADR.Wrap})
			require.NoError(t, err)
			h.serve(r, second)
			d, c := h.run()
			h.provider.Pause()
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			h.kill(d)
			h.provider.Resume()

			cfg := h.cfg
			tt.other(t, &cfg)
			o, err := Dial(context.Background(), cfg)
			require.NoError(t, err)
			require.NotEqual(t, d.lineage, o.lineage)
			oc := backendtest.NewClient(t, o)
			read := oc.Read(0, block, 0)
			require.NoError(t, oc.Do(read))
			require.Equal(t, make([]byte, block), read.Got)
			require.NoError(t, o.Close())

			if !tt.back {
				h.refused("another owner")
				return
			}
			d, c = h.run()
			read = c.Read(0, block, 0)
			require.NoError(t, c.Do(read))
			require.Equal(t, backendtest.Pattern(block, 1), read.Got)
			require.NoError(t, d.Close())
		})
	}
}

// A window on a disk survives a loss of power as what was last written back. A replay of it would
// put old writes over newer ones that were flushed since.
func TestWindowOfAnotherBoot(t *testing.T) {
	h := newHost(t)
	h.cfg.LocalClients = true
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	written, err := os.ReadFile(h.file())
	require.NoError(t, err)
	young := backendtest.Pattern(block, 2)
	require.NoError(t, c.Do(c.Write(0, young, 0)))
	require.NoError(t, c.Do(c.Flush()))
	h.kill(d)
	require.NoError(t, os.WriteFile(h.file(), written, 0o600))
	h.boot()
	h.cfg.Takeover = true // the lease has tests of its own
	d, c = h.run()
	r := c.Read(0, block, 0)
	require.NoError(t, c.Do(r))
	require.True(t, string(young) == string(r.Got), "an old write came late")
	require.NoError(t, d.Close())
}
