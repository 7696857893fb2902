package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"pmnbd/backend/mem"
	"pmnbd/backend/remote"
	"pmnbd/nbd"
	"pmnbd/nbd/kernel"
	"pmnbd/status"
)

// A serving is a pmnbd with one export, "log", in memory.
type serving struct {
	server *nbd.Server
	dev    *mem.Device
	shown  *status.Server
	ended  chan error
}

var region = uuid.MustParse("8a242a0a-db70-4e74-9ce1-39347455d2d5")

// startServing serves on dir/s, and shows the given session.
func startServing(t *testing.T, dir string, place *status.Place, shown remote.Snapshot) *serving {
	t.Helper()
	log := zaptest.NewLogger(t)
	s := &serving{ended: make(chan error, 1)}
	var err error
	s.dev, err = mem.New(1 << 20)
	require.NoError(t, err)
	s.server, err = nbd.New(nbd.Config{Logger: log, MaxConnections: 16}, nbd.Export{Name: "log", Device: s.dev})
	require.NoError(t, err)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	go func() { s.ended <- s.server.Serve(l) }()
	control, err := place.Listen("log")
	require.NoError(t, err)
	s.shown = status.Serve(control, log, func() any {
		e := exportReport{Snapshot: s.server.Snapshot()[0], Listen: []string{uri(l, "nbd", "log")}, Device: shown}
		return report{status.NewHeader(program), []exportReport{e}}
	})
	return s
}

func (s *serving) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, s.shown.Close())
	require.NoError(t, s.server.Shutdown(t.Context()))
	require.NoError(t, <-s.ended)
	require.NoError(t, s.dev.Close())
}

// A bench is a host with a fake kernel, and a place for a pmnbd.
type bench struct {
	*fakeKernel
	dir   string
	place status.Place
	dev   kernel.Device
}

func newBench(t *testing.T) *bench {
	b := &bench{fakeKernel: newKernel(t), dir: t.TempDir()}
	require.NoError(t, b.place.Set("unix:"+b.dir+"/"))
	b.dev = kernel.Device{Root: b.root}
	return b
}

func (b *bench) keeper(connections int) *keeper {
	return &keeper{host: b.host(), dev: b.dev, control: b.place, timeout: time.Hour, socks: make([]sock, connections)}
}

// attach runs pmnbd attach with one connection.
func (b *bench) attach() (string, error) {
	var out bytes.Buffer
	err := b.keeper(1).run(&out, io.Discard)
	return out.String(), err
}

func (b *bench) detach(t *testing.T, force bool) (bool, error) {
	return b.host().detach(t.Context(), b.dev, force)
}

func session(epoch uint64, unclean bool) remote.Snapshot {
	return remote.Snapshot{RegionUUID: region, Epoch: epoch, Unclean: unclean, State: remote.StateOpen}
}

func TestAttachAndDetach(t *testing.T) {
	b := newBench(t)
	_, err := b.attach()
	require.ErrorContains(t, err, "no pmnbd serves an export on a unix socket")
	s := startServing(t, b.dir, &b.place, session(7, false))
	defer s.stop(t)

	was, err := b.detach(t, false)
	require.NoError(t, err)
	require.False(t, was)

	out, err := b.attach()
	require.NoError(t, err)
	require.Equal(t, "attached /dev/nbd0 to log: 1048576 bytes, connections: 1\n", out)
	require.Len(t, b.socks, 1)
	require.False(t, dead(b.socks[0]), "the kernel's connection is its own")
	_, err = b.attach()
	require.NoError(t, err, "again")

	was, err = b.detach(t, false)
	require.NoError(t, err)
	require.True(t, was)
	was, err = b.detach(t, false)
	require.NoError(t, err)
	require.False(t, was, "idempotent")
	names, err := filepath.Glob(filepath.Join(b.root, "run", "*"))
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestSomebodyElses(t *testing.T) {
	for _, backend := range []string{"", "pmnbd:another's"} {
		b := newBench(t)
		s := startServing(t, b.dir, &b.place, session(7, false))
		b.fakeKernel.attach(backend)
		_, err := b.attach()
		require.ErrorIs(t, err, errForeign)
		require.ErrorContains(t, err, "attached by pid 77")
		require.ErrorContains(t, err, backend)
		_, err = b.detach(t, true)
		require.ErrorIs(t, err, errForeign)
		require.FileExists(t, b.sysfs("pid"))
		s.stop(t)
	}
}

// Whoever attaches between our look and our command keeps the device.
func TestAttachedMeanwhile(t *testing.T) {
	b := newBench(t)
	s := startServing(t, b.dir, &b.place, session(7, false))
	defer s.stop(t)
	k := b.keeper(1)
	client := k.host.client
	k.host.client = func() (*kernel.Client, error) {
		b.fakeKernel.attach("them")
		return client()
	}
	require.ErrorIs(t, k.run(io.Discard, io.Discard), kernel.ErrInUse)
	_, err := b.detach(t, false)
	require.ErrorIs(t, err, errForeign)
}

func TestNoModule(t *testing.T) {
	b := newBench(t)
	s := startServing(t, b.dir, &b.place, session(7, false))
	defer s.stop(t)
	k := b.keeper(1)
	k.host.client = func() (*kernel.Client, error) { return nil, kernel.ErrNoModule }
	require.ErrorIs(t, k.run(io.Discard, io.Discard), kernel.ErrNoModule)
	require.NoFileExists(t, filepath.Join(b.root, "run", "nbd0.json"))
}

func TestDetachWhileOpen(t *testing.T) {
	b := newBench(t)
	s := startServing(t, b.dir, &b.place, session(7, false))
	defer s.stop(t)
	_, err := b.attach()
	require.NoError(t, err)
	b.opened = true
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = b.host().detach(ctx, b.dev, true)
	require.ErrorIs(t, err, kernel.ErrInUse)
	_, err = b.attach()
	require.ErrorContains(t, err, "was detached, but somebody has it open")
	b.release()
	_, err = b.attach()
	require.NoError(t, err)
}

// A device goes on with a clean restart, and with nothing else.
func TestAttachAgain(t *testing.T) {
	other := session(8, false)
	other.RegionUUID = uuid.Nil
	failed := session(8, false)
	failed.State, failed.Cause = remote.StateFailed, "disk on fire"
	for _, tc := range []struct {
		name string
		next remote.Snapshot
		err  string
	}{
		{"the same process", session(7, false), ""},
		{"the same process, after an unclean end of another", session(7, true), ""},
		{"clean restart", session(8, false), ""},
		{"unclean end", session(8, true), "without giving its session back"},
		{"somebody else in between", session(9, false), "epoch 7 became epoch 9"},
		{"the epoch went back", session(6, false), "epoch 7 became epoch 6"},
		{"another region", other, "became region 00000000"},
		{"failed", failed, "disk on fire"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			s := startServing(t, b.dir, &b.place, session(7, false))
			_, err := b.attach()
			require.NoError(t, err)
			s.stop(t)
			s = startServing(t, b.dir, &b.place, tc.next)
			defer s.stop(t)
			_, err = b.attach()
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.True(t, dead(b.socks[0]), "it was given nothing")
				return
			}
			require.NoError(t, err)
			require.False(t, dead(b.socks[0]))
			a, err := b.host().load(b.dev)
			require.NoError(t, err)
			require.Equal(t, tc.next.Epoch, a.Epoch)
		})
	}
}

// A kept device is one whose keeper runs in the test.
type kept struct {
	stop  *os.File    // closing it stops the keeper
	lines chan string // what it logs
	ended chan error
}

func keep(t *testing.T, k *keeper) *kept {
	_, err := k.supply(true)
	require.NoError(t, err)
	c := &kept{lines: make(chan string, 64), ended: make(chan error, 1)}
	log := zaptest.NewLogger(t).WithOptions(zap.Hooks(func(e zapcore.Entry) error { c.lines <- e.Message; return nil }))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	c.stop = w
	go func() {
		err := k.keep(r, log)
		k.close()
		_ = r.Close()
		c.ended <- err
	}()
	t.Cleanup(func() { _ = w.Close() })
	return c
}

func TestKeeper(t *testing.T) {
	b := newBench(t)
	s := startServing(t, b.dir, &b.place, session(7, false))
	c := keep(t, b.keeper(3))
	live := func() (n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, fd := range b.socks {
			if !dead(fd) {
				n++
			}
		}
		return n
	}
	require.Equal(t, 3, live())

	// One alone, as when a request takes too long.
	require.NoError(t, unix.Shutdown(b.socks[1], unix.SHUT_RDWR))
	require.Equal(t, "connections replaced", <-c.lines)
	require.Equal(t, 3, live())

	b.mu.Lock()
	b.unseen = 1
	b.mu.Unlock()
	s.stop(t)
	require.Equal(t, "connections ended", <-c.lines)
	s = startServing(t, b.dir, &b.place, session(8, false))
	for line := range c.lines {
		if line == "connections replaced" {
			break
		}
	}
	require.Equal(t, 3, live())
	a, err := b.host().load(b.dev)
	require.NoError(t, err)
	require.Equal(t, uint64(8), a.Epoch)

	was, err := b.detach(t, false)
	require.NoError(t, err)
	require.True(t, was)
	require.NoError(t, <-c.ended, "it ends with the device")
	s.stop(t)
}

func TestKeeperStops(t *testing.T) {
	b := newBench(t)
	s := startServing(t, b.dir, &b.place, session(7, false))
	c := keep(t, b.keeper(2))
	require.NoError(t, c.stop.Close())
	require.NoError(t, <-c.ended)
	require.FileExists(t, b.sysfs("pid"), "it stays attached")

	err := b.keeper(3).run(io.Discard, io.Discard)
	require.ErrorContains(t, err, "use --connections 2")
	c = keep(t, b.keeper(2)) // takes over
	s.stop(t)
	require.Equal(t, "connections ended", <-c.lines)
	s = startServing(t, b.dir, &b.place, session(8, true))
	require.ErrorIs(t, <-c.ended, errNotFollowing)
	s.stop(t)
}

func TestParseAttach(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want want
		err  string
	}{
		{args: []string{"/dev/nbd3"}},
		{args: []string{"log", "/dev/nbd3"}, want: want{export: "log"}},
		{args: []string{"nbd+unix:///a%20b?socket=/run/x%26y", "/dev/nbd3"}, want: want{"a b", "/run/x&y"}},
		{args: []string{"nbd+unix:///?socket=/run/x", "/dev/nbd3", "--timeout", "90s"}, want: want{"", "/run/x"}},
		{args: nil, err: "/dev/nbdX is missing"},
		{args: []string{"/dev/sda"}, err: "use /dev/nbd0"},
		{args: []string{"/dev/nbd3", "log"}, err: "use /dev/nbd0"},
		{args: []string{"a", "/dev/nbd3", "b"}, err: "too many"},
		{args: []string{"nbd+unix:///a", "/dev/nbd3"}, err: "nbd+unix:///EXPORT?socket=PATH"},
		{args: []string{"nbd+unix://host/a?socket=x", "/dev/nbd3"}, err: "nbd+unix:///EXPORT?socket=PATH"},
		{args: []string{"/dev/nbd3", "--connections", "0"}, err: "use 1 to 64"},
		{args: []string{"/dev/nbd3", "--connections", "65"}, err: "use 1 to 64"},
		{args: []string{"/dev/nbd3", "--timeout", "10ms"}, err: "use whole seconds"},
	} {
		k, err := parseAttach(tc.args, io.Discard)
		if tc.err != "" {
			require.ErrorContains(t, err, tc.err, tc.args)
			continue
		}
		require.NoError(t, err, tc.args)
		require.Equal(t, tc.want, k.want)
		require.Equal(t, kernel.Device{Index: 3, Root: "/"}, k.dev)
	}
	for _, args := range [][]string{{"attach", "--help"}, {"detach", "--help"}} {
		var out, errs bytes.Buffer
		require.Zero(t, run(args, &out, &errs))
		require.Contains(t, out.String(), "--timeout")
	}
	for _, args := range [][]string{{"attach"}, {"detach"}, {"detach", "/dev/nbd"}, {"detach", "/dev/nbd0", "--timeout", "0s"}} {
		require.Equal(t, 2, run(args, io.Discard, io.Discard), args)
	}
}

func TestFindSource(t *testing.T) {
	place := status.Place{}
	require.NoError(t, place.Set("unix:"+t.TempDir()+"/"))
	l, err := place.Listen("both")
	require.NoError(t, err)
	served := report{Header: status.NewHeader(program), Exports: []exportReport{
		{Snapshot: nbd.Snapshot{Name: "log"}, Listen: []string{"nbd://127.0.0.1:1/log", "nbd+unix:///log?socket=/s"}},
		{Snapshot: nbd.Snapshot{Name: "data"}, Listen: []string{"nbd+unix:///data?socket=/s"}},
		{Snapshot: nbd.Snapshot{Name: "tls"}, Listen: []string{"nbds+unix:///tls?socket=/s", "nbds://127.0.0.1:1/tls"}},
	}}
	s := status.Serve(l, zaptest.NewLogger(t), func() any { return served })
	defer func() { require.NoError(t, s.Close()) }()
	for _, tc := range []struct {
		want   want
		export string
		err    string
	}{
		{want{"data", ""}, "data", ""},
		{want{"data", "/s"}, "data", ""},
		{want{"", "/s"}, "log", ""},
		{want{"", ""}, "", "several could be meant, name one: nbd+unix:///log?socket=/s nbd+unix:///data?socket=/s"},
		{want{"tls", ""}, "", `no pmnbd serves export "tls" on a unix socket without TLS`},
		{want{"log", "/other"}, "", `no pmnbd serves export "log" on /other`},
		{want{"other", ""}, "", `no pmnbd serves export "other"`},
	} {
		found, err := findSource(t.Context(), &place, tc.want)
		if tc.err != "" {
			require.ErrorContains(t, err, tc.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tc.export, found.export)
		require.Equal(t, "/s", found.socket)
	}
}
