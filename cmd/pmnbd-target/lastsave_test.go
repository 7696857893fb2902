package main

import (
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/reload"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
)

// A lastSavesRig is a target with three regions of class protected. When the file names the last one alone,
// nobody but the target saves the other two.
type lastSavesRig struct {
	*service
	began chan struct{} // the save of the first region has
	told  chan struct{} // the save of the second one waits until this is closed
}

// newLastSavesRig makes one. The disk of the first region hangs until the second region is being saved. look is called
// when the target looks at that disk.
func newLastSavesRig(t *testing.T, look func()) *lastSavesRig {
	t.Helper()
	const size = 512 << 10
	testhost.CanLock(t, 3*(region.DataOffset+size))
	memory, home := testhost.Memory(t), testhost.Disk(t)
	rig := &lastSavesRig{began: make(chan struct{}), told: make(chan struct{})}
	mends := make(chan struct{})
	begins, mend := sync.OnceFunc(func() { close(rig.began) }), sync.OnceFunc(func() { close(mends) })
	disks := map[string]func(){
		"hangs": func() { begins(); <-mends },
		"well":  func() { <-rig.told; mend() },
		"named": func() {},
	}
	var served atomic.Bool
	file := filepath.Join(home, "target.toml")
	head := "listen = [\"iwarp://127.0.0.1:0\"]\ncontrol = \"unix:" + home + "/\"\n"
	line := func(name string) string {
		return "[[region]]\nname = \"" + name + "\"\npath = \"" + filepath.Join(memory, name) + "\"\nsave = \"" + home + "\"\n"
	}
	require.NoError(t, os.WriteFile(file, []byte(head+line("hangs")+line("well")+line("named")), 0o600))
	args := []string{"--config", file}
	cfg, err := parse(command.NewCall(args, io.Discard, io.Discard), func(set *pflag.FlagSet) { set.Bool("check", false, "") })
	require.NoError(t, err)
	require.NoError(t, cfg.check())

	s := &service{cfg: cfg, said: cfg, args: args, file: file, power: make(daemon.PowerFailure), log: zaptest.NewLogger(t)}
	s.reloader = reload.New(s.log, s.reload)
	for _, n := range cfg.Regions {
		_, err := region.Create(n.Path.string, region.CreateOptions{Name: n.Name, Size: size, Class: persist.ClassProtected, Save: n.Save.string, SaveWithin: 10 * time.Second})
		require.NoError(t, err)
		var opened atomic.Pointer[region.Region]
		o := n.options(false)
		o.Wrap = regiontest.Medium{Image: func() error {
			// Others write to the disk, too: the open, and looks whether it takes a save.
			if r := opened.Load(); r != nil {
				if p, _ := r.Protection(); p.Saving != nil {
					disks[n.Name]()
				} else if n.Name == "hangs" && served.Load() {
					look()
				}
			}
			return nil
		}}.Wrap
		r, err := region.Open(n.Path.string, o)
		require.NoError(t, err)
		opened.Store(r)
		require.NoError(t, r.Zero(persist.Range{Len: 4096}))
		s.regions = append(s.regions, r)
	}
	served.Store(true)
	s.target = target.New(target.Config{Log: daemon.Slog(s.log)}, s.regions)
	s.control, err = cfg.Control.Listen("target")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(head+line("named")), 0o600))
	rig.service = s
	return rig
}

// reloads reloads, and returns when that is through.
func (rig *lastSavesRig) reloads() (changes *reload.Changes, err error) {
	err = rig.reloader.Command().Run(context.Background(), url.Values{}, func(said any) error {
		changes = said.(*reload.Changes)
		return nil
	})
	return changes, err
}

// Nobody but the target saves a region that the file does not name any more. So a disk that hangs holds up
// no other such region, and systemd hears how long the saves may take, also of those that a reload began.
func TestLastSaves(t *testing.T) {
	for name, c := range map[string]struct{ reloads, waits bool }{
		"at the end":                                        {},
		"of a reload that the end waits for":                {reloads: true},
		"of a reload that waits for a disk before it saves": {reloads: true, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "notify")
			t.Setenv("NOTIFY_SOCKET", socket)
			systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			require.NoError(t, err)
			defer func() { require.NoError(t, systemd.Close()) }()
			require.NoError(t, systemd.SetReadDeadline(time.Now().Add(10*time.Second)))

			looks, answers := make(chan struct{}), make(chan struct{})
			begins, answer := sync.OnceFunc(func() { close(looks) }), sync.OnceFunc(func() { close(answers) })
			if !c.waits {
				answer()
			}
			rig := newLastSavesRig(t, func() { begins(); <-answers })
			regions := rig.regions // the reload changes them
			var all sync.WaitGroup
			defer all.Wait()
			tell := sync.OnceFunc(func() { answer(); close(rig.told) })
			defer tell()
			var changes *reload.Changes
			var reloading, ending error
			if c.waits {
				<-looks
			}
			if c.reloads {
				all.Go(func() { changes, reloading = rig.reloads() })
			}
			switch {
			case c.waits:
				require.Eventually(t, func() bool { return len(rig.target.Snapshot()) == 1 }, 10*time.Second, time.Millisecond)
			case c.reloads:
				<-rig.began
			}
			signals := make(chan os.Signal, 1)
			signals <- syscall.SIGTERM
			all.Go(func() { ending = rig.run(io.Discard, signals) })

			asks := regexp.MustCompile(`EXTEND_TIMEOUT_USEC=(\d+)`)
			for granted := time.Duration(0); granted < 4*region.DiskPatience; {
				b := make([]byte, 1024)
				n, err := systemd.Read(b)
				require.NoError(t, err)
				if m := asks.FindSubmatch(b[:n]); m != nil {
					usec, err := strconv.Atoi(string(m[1]))
					require.NoError(t, err)
					granted = time.Duration(usec) * time.Microsecond
				}
			}
			tell()
			all.Wait()
			require.NoError(t, ending)
			require.NoError(t, reloading)
			if c.reloads {
				require.Equal(t, []string{"hangs", "well"}, changes.Removed)
				require.Empty(t, changes.Wrong)
			}
			for _, r := range regions {
				p, _ := r.Protection()
				require.Equal(t, r.Name() != "named", p.Whole, r.Name())
			}
		})
	}
}

// A `pmnbd-target save` returns only when the regions that a reload is removing are saved, too: the script that asked
// for it may cut the power then.
func TestSaveDuringTheLastSaves(t *testing.T) {
	rig := newLastSavesRig(t, func() {})
	var all sync.WaitGroup
	var reloading, saving error
	var changes *reload.Changes
	var saved []string
	all.Go(func() { changes, reloading = rig.reloads() })
	<-rig.began
	one := make(chan struct{}, 3)
	all.Go(func() {
		saving = rig.saveCommands()[0].Run(context.Background(), url.Values{}, func(said any) error {
			v := said.(savedView)
			saved = append(saved, v.Region+v.Error)
			one <- struct{}{}
			return nil
		})
	})
	<-one // that is the region whose disk is well
	close(rig.told)
	all.Wait()
	require.NoError(t, reloading)
	require.NoError(t, saving)
	require.ElementsMatch(t, []string{"hangs", "named", "well"}, saved)
	require.Empty(t, changes.Wrong)
	require.Empty(t, rig.last.underWay, "regions that are closed by now")
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	require.NoError(t, rig.run(io.Discard, signals))
}

func TestLastSavesFor(t *testing.T) {
	const hanging = 4 * region.DiskPatience
	fast := region.Protection{SaveWithin: 10 * time.Minute, Expected: time.Second}
	slow := region.Protection{SaveWithin: time.Minute, Expected: 10 * time.Minute}
	slower := region.Protection{SaveWithin: time.Minute, Expected: time.Minute, Saving: &region.Saving{Left: 30 * time.Minute}}
	begun := region.Protection{SaveWithin: time.Minute, Expected: 10 * time.Minute, Saving: &region.Saving{}}
	for name, c := range map[string]struct {
		all  []region.Protection
		want time.Duration
	}{
		"none":                               {nil, 0},
		"as its owner said":                  {[]region.Protection{fast}, hanging + 10*time.Minute},
		"slower than its owner said":         {[]region.Protection{slow}, hanging + 20*time.Minute},
		"on one disk, for all that is known": {[]region.Protection{slow, slow, fast}, hanging + 40*time.Minute + 2*time.Second},
		"slower than measured":               {[]region.Protection{slower}, hanging + time.Hour},
		"begun, and nothing is counted yet":  {[]region.Protection{begun}, hanging + 20*time.Minute},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, lastSavesFor(c.all)) })
	}
}
