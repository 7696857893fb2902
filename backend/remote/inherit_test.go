package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/rdma/rdmafake"
)

// A host is where runs of one initiator follow each other.
type host struct {
	*farm
	cfg Config
}

func newHost(t *testing.T) *host {
	f := newFarm(t)
	cfg := (&pair{provider: f.provider, addr: "target", stateDir: t.TempDir()}).config(t)
	cfg.WindowDir, cfg.LossTimeout = inMemory(t), 0
	return &host{f, cfg}
}

// run starts a run.
func (h *host) run() (*Device, *backendtest.Client) {
	h.t.Helper()
	d, err := Dial(context.Background(), h.cfg)
	require.NoError(h.t, err)
	return d, backendtest.NewClient(h.t, d)
}

// refused expects that no run can start, and why.
func (h *host) refused(why string) {
	h.t.Helper()
	_, err := Dial(context.Background(), h.cfg)
	var loss *LossError
	require.ErrorAs(h.t, err, &loss)
	require.ErrorContains(h.t, err, why)
}

// file is the path of the window file.
func (h *host) file() string {
	h.t.Helper()
	found, err := filepath.Glob(filepath.Join(h.cfg.WindowDir, "*.window"))
	require.NoError(h.t, err)
	require.Len(h.t, found, 1)
	return found[0]
}

// kill ends d as SIGKILL would: its file stays as it is, and the target hears nothing.
// What of the process must end, for the test's sake, ends with the file out of reach.
func (h *host) kill(d *Device) {
	h.t.Helper()
	copied := h.file() + ".copy"
	b, err := os.ReadFile(h.file())
	require.NoError(h.t, err)
	require.NoError(h.t, os.WriteFile(copied, b, 0o600))
	require.NoError(h.t, d.leave(false))
	require.NoError(h.t, d.release())
	require.NoError(h.t, os.Rename(copied, h.file()))
}

// What was acknowledged and never flushed is there after a kill, in its order, be the
// next run of another shape or not; and so on for ever.
func TestAdoptedWindow(t *testing.T) {
	h := newHost(t)
	want := make([]byte, regionSize)
	shapes := []struct {
		lanes  int
		window uint64
	}{{1, 16 << 20}, {3, 8 << 20}, {1, 4 << 20}, {5, 32 << 20}}
	var lineage [16]byte
	for round := range uint32(8) {
		shape := shapes[round%4]
		h.cfg.Lanes, h.cfg.Window = shape.lanes, shape.window
		h.cfg.AcceptLoss = round%2 == 1 // there is none
		d, c := h.run()
		if round == 0 {
			lineage = d.lineage
		}
		require.Equal(t, lineage, [16]byte(d.Snapshot().Lineage), "round %d", round)
		for off := 0; off < regionSize; off += 1 << 20 {
			r := c.Read(uint64(off), 1<<20, 0)
			require.NoError(t, c.Do(r))
			require.True(t, string(want[off:off+1<<20]) == string(r.Got), "round %d, from %d", round, off)
		}
		h.provider.Pause() // nothing of it gets to the target
		for i, off := range []int{0, 100, 1<<20 - 50, 50, 3 << 20, 0} {
			data := backendtest.Pattern(block+i*777, round*10+uint32(i))
			copy(want[off:], data)
			require.NoError(t, c.Do(c.Write(uint64(off), data, 0)))
		}
		clear(want[2<<20-1000:][:5000])
		require.NoError(t, c.Do(c.Zero(2<<20-1000, 5000)))
		h.kill(d)
		h.provider.Resume()
	}
	d, c := h.run()
	require.NoError(t, c.Do(c.Flush()))
	require.True(t, string(want) == string(h.region.Data()))
	require.NoError(t, d.Close())
	info, err := os.Stat(h.file())
	require.NoError(t, err)
	require.EqualValues(t, headerPage, info.Size(), "nothing is held that is not needed")
}

// The table of what a run may find, and what it does.
func TestInheritance(t *testing.T) {
	other := func(h *host) {
		cfg := h.cfg
		cfg.ID, cfg.StateDir, cfg.WindowDir = [16]byte{7}, h.t.TempDir(), ""
		d, err := Dial(context.Background(), cfg)
		require.NoError(h.t, err)
		require.NoError(h.t, d.Close())
	}
	restart := func(h *host, change func(*region.Superblock)) {
		h.stop()
		r, err := region.Open(h.path, region.OpenOptions{Wrap: regiontest.ADR.Wrap})
		require.NoError(h.t, err)
		require.NoError(h.t, r.Update(func(sb *region.Superblock) error { change(sb); return nil }))
		h.serve(r)
	}
	for _, tt := range []struct {
		name   string
		before func(h *host) // a run, or what is left of one
		why    string        // no run starts then; "" if one does
		kept   bool          // the lineage goes on
	}{
		{"nothing", func(*host) {}, "", false},
		{"a clean end", func(h *host) { d, _ := h.run(); require.NoError(h.t, d.Close()) }, "", true},
		{"a kill", func(h *host) { d, _ := h.run(); h.kill(d) }, "", true},
		{"a clean end, after an interruption", func(h *host) {
			d, c := h.run()
			h.provider.Cut()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			require.NoError(h.t, d.Close())
		}, "", true},
		{"a clean end, and somebody else since", func(h *host) {
			d, _ := h.run()
			require.NoError(h.t, d.Close())
			other(h)
		}, "somebody else had region", false},
		{"a clean end but for CLOSE, and a RESUME that was not answered", func(h *host) {
			d, _ := h.run()
			require.NoError(h.t, d.Close())
			restart(h, func(sb *region.Superblock) { sb.Clean = false; sb.Epoch += 2 })
		}, "", true},
		{"the same, and a kill in it", func(h *host) {
			d, c := h.run()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
			h.kill(d)
			h.rewrite(func(hd *header) { hd.State = windowDrained })
			restart(h, func(sb *region.Superblock) { sb.Epoch++ })
		}, "", true},
		{"the same by another run of this id", func(h *host) {
			d, _ := h.run()
			require.NoError(h.t, d.Close())
			restart(h, func(sb *region.Superblock) { sb.Clean = false; sb.Epoch++; sb.Owner.Nonce[0]++ })
		}, "another owner", false},
		{"the same by another run of this id, which closed", func(h *host) {
			d, _ := h.run()
			require.NoError(h.t, d.Close())
			restart(h, func(sb *region.Superblock) { sb.Epoch++; sb.Owner.Nonce[0]++ })
		}, "somebody else had region", false},
		{"the same, and the contents lost", func(h *host) {
			d, _ := h.run()
			require.NoError(h.t, d.Close())
			restart(h, func(sb *region.Superblock) { sb.Clean = false; sb.Epoch++; sb.Contents[0]++ })
		}, "contents were lost", false},
		{"a kill, and another owner since", func(h *host) {
			d, c := h.run()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			h.kill(d)
			restart(h, func(sb *region.Superblock) { sb.Owner.Nonce[0]++; sb.Epoch++ })
		}, "another owner", false},
		{"a kill, and the contents lost", func(h *host) {
			d, _ := h.run()
			h.kill(d)
			restart(h, func(sb *region.Superblock) { sb.Contents[0]++ })
		}, "contents were lost", false},
		{"a clean end, and the contents lost", func(h *host) {
			d, _ := h.run()
			require.NoError(h.t, d.Close())
			restart(h, func(sb *region.Superblock) { sb.Contents[0]++ })
		}, "contents of region log were lost", false},
		{"a kill, and the window lost", func(h *host) {
			d, _ := h.run()
			h.kill(d)
			require.NoError(h.t, os.Remove(h.file()))
		}, "its window is not in", false},
		{"a kill, the window lost, and a boot since", func(h *host) {
			h.cfg.LocalClients = true
			d, _ := h.run()
			h.kill(d)
			require.NoError(h.t, os.Remove(h.file()))
			h.boot()
		}, "", false},
		{"the same with clients elsewhere", func(h *host) {
			h.cfg.LocalClients = true
			d, _ := h.run()
			h.kill(d)
			require.NoError(h.t, os.Remove(h.file()))
			h.boot()
			h.cfg.LocalClients = false
		}, "its window is not in", false},
		{"the same with clients elsewhere before", func(h *host) {
			d, _ := h.run()
			h.kill(d)
			require.NoError(h.t, os.Remove(h.file()))
			h.boot()
			h.cfg.LocalClients = true
		}, "its window is not in", false},
		{"the same with a record that could not be written", func(h *host) {
			h.cfg.LocalClients = true
			d, _ := h.run()
			h.kill(d)
			require.NoError(h.t, os.Remove(h.file()))
			require.NoError(h.t, os.Truncate(filepath.Join(h.cfg.StateDir, d.bootRecord(h.region.UUID())), 0))
		}, "its window is not in", false},
		{"a kill, and a boot since that left the file", func(h *host) {
			h.cfg.LocalClients = true
			d, c := h.run()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			h.kill(d)
			h.boot()
		}, "", false},
		{"the same file, but nothing tells that this host booted", func(h *host) {
			d, _ := h.run()
			h.kill(d)
			h.rewrite(func(hd *header) { hd.Boot[0]++ })
		}, "from before this host booted", false},
		{"a kill, and the index damaged", func(h *host) {
			d, c := h.run()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			h.kill(d)
			b, err := os.ReadFile(h.file())
			require.NoError(h.t, err)
			for i := range headerPage {
				b[headerPage+i] ^= byte(i)
			}
			require.NoError(h.t, os.WriteFile(h.file(), b, 0o600))
		}, "go on where the previous pmnbd ended: ", false},
		{"a kill, and the header damaged", func(h *host) {
			d, c := h.run()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			h.kill(d)
			h.scribble(func(half []byte) { half[headerPrefix] ^= 1 })
		}, "is damaged", false},
		{"a clean end, and the header damaged", func(h *host) {
			d, _ := h.run()
			require.NoError(h.t, d.Close())
			h.scribble(func(half []byte) { half[headerPrefix] ^= 1 })
		}, "is damaged", false},
		{"a kill, and most of the header lost", func(h *host) {
			d, _ := h.run()
			h.kill(d)
			require.NoError(h.t, os.Truncate(h.file(), headerPrefix))
		}, "is damaged", false},
		{"a kill of another release", func(h *host) {
			d, c := h.run()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			h.kill(d)
			h.scribble(func(half []byte) { half[0]++ })
		}, "or another release of pmnbd wrote it", false},
		{"a device that failed", func(h *host) {
			d, c := h.run()
			require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			d.leg.lanes[0].abort(&BarrierError{})
			require.Error(h.t, c.Do(c.Flush()))
			require.Error(h.t, d.Close())
		}, "the device failed in the previous run: the target could not make barrier", false},
		{"a file that was only made", func(h *host) {
			f, err := openWindowFile(h.cfg.WindowDir, h.cfg.ID, h.region.UUID())
			require.NoError(h.t, err)
			require.NoError(h.t, f.Close())
		}, "", false},
		{"a kill before OPEN was granted", func(h *host) {
			d, _ := h.run()
			require.NoError(h.t, d.Close())
			h.rewrite(func(hd *header) { hd.State, hd.Opened = windowLive, 0 })
		}, "", true},
		{"a kill before the grant was noted", func(h *host) {
			d, _ := h.run()
			epoch := d.leg.granted.Epoch
			h.kill(d)
			h.rewrite(func(hd *header) { hd.Opened, hd.Epoch = 0, epoch-1 })
		}, "", true},
		{"the same, and RESUMEs whose answers were lost, too", func(h *host) {
			d, _ := h.run()
			epoch := d.leg.granted.Epoch
			h.kill(d)
			h.rewrite(func(hd *header) { hd.Opened, hd.Epoch = 0, epoch-1 })
			restart(h, func(sb *region.Superblock) { sb.Epoch += 2 })
		}, "", true},
		{"the same, and another run of this id since", func(h *host) {
			d, _ := h.run()
			epoch := d.leg.granted.Epoch
			h.kill(d)
			h.rewrite(func(hd *header) { hd.Opened, hd.Epoch = 0, epoch-1 })
			restart(h, func(sb *region.Superblock) { sb.Epoch++; sb.Owner.Nonce[0]++ })
		}, "somebody else had region", false},
	} {
		inherits := func(t *testing.T, acceptLoss bool) {
			h := newHost(t)
			tt.before(h)
			h.cfg.AcceptLoss = acceptLoss
			var lineage [16]byte
			if found, _ := filepath.Glob(filepath.Join(h.cfg.WindowDir, "*.window")); len(found) > 0 {
				f, err := openWindowFile(h.cfg.WindowDir, h.cfg.ID, h.region.UUID())
				require.NoError(t, err)
				lineage = f.header().Lineage
				require.NoError(t, f.Close())
			}
			if tt.why != "" {
				h.refused(tt.why)
				h.refused(tt.why) // it is not forgotten
				h.cfg.AcceptLoss = true
			}
			d, c := h.run()
			require.Equal(t, tt.kept, lineage == d.lineage)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 9), 0), c.Flush()))
			require.NoError(t, d.Close())
			h.cfg.AcceptLoss = false
			d, _ = h.run()
			require.NoError(t, d.Close())
		}
		t.Run(tt.name, func(t *testing.T) { inherits(t, false) })
		if tt.why == "" {
			t.Run(tt.name+", accepting a loss that is none", func(t *testing.T) { inherits(t, true) })
		}
	}
}

// A window is adopted by the initiator and for the region that it is of, by no other.
func TestWindowsAreKeptApart(t *testing.T) {
	for _, tt := range []struct {
		name  string
		other func(t *testing.T, cfg *Config)
		back  bool // the first one's window can be adopted afterwards
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

// What was adopted is durable before the device serves: its session is given back, and
// no barrier of the next one would name it.
func TestAdoptedIsDurable(t *testing.T) {
	h := newHost(t)
	h.stop()
	var lines log
	h.start(h.path, regiontest.Medium{PMem: region.DomainMemory, Data: lines.written})
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(5*block, backendtest.Pattern(block, 1), 0)))
	h.kill(d)
	lines.take()
	d, _ = h.run()
	require.Contains(t, lines.take(), persist.Range{Off: 5 * block, Len: block})
	require.NoError(t, d.Close())
}

// rewrite changes the header of the window file.
func (h *host) rewrite(change func(*header)) {
	f, err := openWindowFile(h.cfg.WindowDir, h.cfg.ID, h.region.UUID())
	require.NoError(h.t, err)
	f.update(change)
	require.NoError(h.t, f.Close())
}

// scribble changes both halves of the header's page.
func (h *host) scribble(change func(half []byte)) {
	b, err := os.ReadFile(h.file())
	require.NoError(h.t, err)
	change(b[:headerPage/2])
	change(b[headerPage/2:])
	require.NoError(h.t, os.WriteFile(h.file(), b, 0o600))
}

// Whoever starts a run may give up while the target cannot end the barrier of what was
// adopted; the next one adopts it again.
func TestAdoptionGivenUp(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	cfg := p.config(t)
	cfg.WindowDir, cfg.LossTimeout = inMemory(t), 0
	h := &host{&farm{t: t, region: p.region}, cfg}
	d, c := h.run()
	want := backendtest.Pattern(block, 1)
	require.NoError(t, c.Do(c.Write(0, want, 0)))
	h.kill(d)
	release := p.sync.block()
	ctx, stop := context.WithCancel(context.Background())
	gaveUp := make(chan error, 1)
	go func() { _, err := Dial(ctx, h.cfg); gaveUp <- err }()
	for range 3 { // those of the superblock, for RESUME
		<-p.sync.began
		next := p.sync.block()
		release()
		release = next
	}
	<-p.sync.began
	stop()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	release()
	d, c = h.run()
	r := c.Read(0, block, 0)
	require.NoError(t, c.Do(r))
	require.True(t, string(want) == string(r.Got))
	require.NoError(t, d.Close())
}

// boot makes all that the runs before have left be of another boot of their host.
func (h *host) boot() {
	other := uuid.New()
	records, err := filepath.Glob(filepath.Join(h.cfg.StateDir, "*.boot"))
	require.NoError(h.t, err)
	for _, r := range records {
		require.NoError(h.t, os.WriteFile(r, []byte(other.String()), 0o600))
	}
	if found, _ := filepath.Glob(filepath.Join(h.cfg.WindowDir, "*.window")); len(found) > 0 {
		h.rewrite(func(hd *header) { hd.Boot = other })
	}
}

// On a disk a window survives the loss of power as what it was a while before. Nothing of
// it may come after what was flushed since.
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
	d, c = h.run()
	r := c.Read(0, block, 0)
	require.NoError(t, c.Do(r))
	require.True(t, string(young) == string(r.Got), "an old write came late")
	require.NoError(t, d.Close())
}

// A header that was being written when the process was killed does not count: the one
// before does. One that was damaged is not believed.
func TestHeaderCrash(t *testing.T) {
	dir := t.TempDir()
	open := func() (*windowFile, error) { return openWindowFile(dir, [16]byte{1}, [16]byte{2}) }
	f, err := open()
	require.NoError(t, err)
	require.Zero(t, f.header().State)
	f.update(func(h *header) { h.State, h.Epoch = windowLive, 1 })
	f.update(func(h *header) { h.State, h.Epoch = windowDrained, 2 })
	require.NoError(t, f.Close())
	path := filepath.Join(dir, "01000000-0000-0000-0000-000000000000-02000000-0000-0000-0000-000000000000.window")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := 0; cut < headerPage/2; cut += 7 { // half 0 has generation 2
		b := append([]byte(nil), whole...)
		b[cut] ^= 1
		require.NoError(t, os.WriteFile(path, b, 0o600))
		f, err := open()
		require.NoError(t, err)
		h := f.header()
		require.True(t, h.Epoch == 2 && h.State == windowDrained || h.Epoch == 1 && h.State == windowLive, "byte %d", cut)
		require.NoError(t, f.Close())
	}
	b := make([]byte, headerPage)
	b[5] = 1
	require.NoError(t, os.WriteFile(path, b, 0o600))
	f, err = open()
	require.NoError(t, err)
	require.Equal(t, windowDamaged, f.header().State)
	require.NoError(t, f.wipe())
	require.Equal(t, header{}, f.header())
	require.NoError(t, f.Close())
	wiped, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, make([]byte, headerPage), wiped, "nothing is left that another release would believe")
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	_, err = open()
	require.ErrorContains(t, err, "others have access")
}

// A full filesystem shows at the start, not as SIGBUS under a write.
func TestWindowFileNeedsRoom(t *testing.T) {
	f, err := openWindowFile(inMemory(t), [16]byte{1}, [16]byte{2})
	require.NoError(t, err)
	f.update(func(h *header) { h.Lanes, h.Entries, h.Chunks, h.Stripe = 1, 16, 1<<20, stripe })
	require.ErrorContains(t, f.shape(), "use a smaller window")
	require.NoError(t, f.Close())
}

// An adoption that cannot be done leaves the window as it is.
func TestAdoptionWaits(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	h.provider.Pause()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 3), 0)))
	h.kill(d)
	h.provider.Resume()
	h.stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Dial(ctx, h.cfg)
	require.Error(t, err)
	var loss *LossError
	require.False(t, errors.As(err, &loss))
	h.start(h.path, regiontest.ADR)
	d, c = h.run()
	r := c.Read(0, block, 0)
	require.NoError(t, c.Do(r))
	require.Equal(t, backendtest.Pattern(block, 3), r.Got)
	require.NoError(t, d.Close())
	require.ErrorIs(t, c.Do(c.Flush()), backend.ErrClosed)
}

// A process whose state directory is another does not find the lock there, and must not
// take the window of one that lives: it would replay what that has in hand, and then
// shorten the file under it.
func TestWindowOfTheLiving(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	cfg := h.cfg
	cfg.StateDir = t.TempDir()
	for range 2 {
		_, err := Dial(context.Background(), cfg)
		require.ErrorContains(t, err, "another pmnbd of this host and id")
	}
	require.NoError(t, c.Do(c.Flush()))
	require.NoError(t, d.Close())
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}
