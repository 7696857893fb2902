package attach

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"pmnbd/backend"
	"pmnbd/backend/mem"
	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/kernel"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/internal/logtest"
	"pmnbd/nbd"
	"pmnbd/nbd/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A serving is a pmnbd with one export, "log", in memory.
type serving struct {
	server *nbd.Server
	dev    *mem.Device
	shown  *status.Server
	ended  chan error
}

// An offer is what a serving serves.
type offer struct {
	session     remote.Snapshot
	size        uint64 // 0: 1 MiB
	largest     uint32 // request; 0: the device's
	readOnly    bool
	connections int // 0: 16
	// header is asked for each time; nil: one
	header func() status.Header
}

// A capped device takes smaller requests.
type capped struct {
	*mem.Device
	largest uint32
}

func (d capped) Info() backend.Info {
	i := d.Device.Info()
	i.MaxRequest = d.largest
	return i
}

var (
	regionID = uuid.MustParse("8a242a0a-db70-4e74-9ce1-39347455d2d5")
	lineage  = uuid.MustParse("d4f1b0a2-3a0e-4b55-8a52-0c7d6f0e1b11")
)

// session is one of the region's that goes on from the others.
func session() remote.Snapshot {
	return remote.Snapshot{RegionUUID: regionID, Lineage: lineage, State: remote.StateOpen}
}

// startServing serves on dir/s.
func startServing(t *testing.T, dir string, place *status.Place, o offer) *serving {
	t.Helper()
	log := zaptest.NewLogger(t)
	s := &serving{ended: make(chan error, 1)}
	var err error
	s.dev, err = mem.New(cmp.Or(o.size, 1<<20))
	require.NoError(t, err)
	var dev backend.Device = s.dev
	if o.largest > 0 {
		dev = capped{s.dev, o.largest}
	}
	s.server, err = nbd.New(nbd.Config{Log: logtest.On(log.Core()), MaxConnections: cmp.Or(o.connections, 16)}, nbd.Export{Name: "log", Device: dev, ReadOnly: o.readOnly})
	require.NoError(t, err)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	go func() { s.ended <- s.server.Serve(l) }()
	control, err := place.Listen("log")
	require.NoError(t, err)
	if o.header == nil {
		h := status.NewHeader(report.Program)
		o.header = func() status.Header { return h }
	}
	s.shown = status.Serve(control, nil, log, func() status.Document {
		uri := "nbd+unix:///log?socket=" + url.QueryEscape(l.Addr().String())
		e := report.Export{Snapshot: s.server.Snapshot()[0], Listen: []string{uri}, Device: o.session}
		return report.Document{Header: o.header(), Exports: []report.Export{e}}
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

// serve is a pmnbd that goes on from the one before.
func (b *bench) serve(t *testing.T) *serving {
	t.Helper()
	return startServing(t, b.dir, &b.place, offer{session: session()})
}

func (b *bench) keeper(connections int) *Keeper {
	return b.host().keeper(Config{Device: b.dev, Control: b.place, Timeout: time.Hour, Connections: connections})
}

// remembered is the file of the attachment.
func (b *bench) remembered() string { return filepath.Join(b.root, "run", "nbd0.json") }

// attach attaches the device with one connection.
func (b *bench) attach() (*Attachment, error) {
	k := b.keeper(1)
	defer k.Close()
	return k.Attach(b.t.Context())
}

func (b *bench) detach(t *testing.T, force bool) (bool, error) {
	return b.host().detach(t.Context(), b.dev, force)
}

func TestAttachAndDetach(t *testing.T) {
	b := newBench(t)
	_, err := b.attach()
	require.ErrorContains(t, err, "no pmnbd serves an export on a unix socket")
	s := b.serve(t)
	defer s.stop(t)

	was, err := b.detach(t, false)
	require.NoError(t, err)
	require.False(t, was)

	a, err := b.attach()
	require.NoError(t, err)
	require.Equal(t, "log: 1048576 bytes, connections: 1", a.String())
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
	require.NoFileExists(t, b.remembered())
}

func TestSomebodyElses(t *testing.T) {
	for _, backend := range []string{"", "pmnbd:another's"} {
		b := newBench(t)
		s := b.serve(t)
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
	s := b.serve(t)
	defer s.stop(t)
	k := b.keeper(1)
	client := k.host.client
	k.host.client = func() (*kernel.Client, error) {
		b.fakeKernel.attach("them")
		return client()
	}
	defer k.Close()
	_, err := k.Attach(t.Context())
	require.ErrorIs(t, err, kernel.ErrInUse)
	_, err = b.detach(t, false)
	require.ErrorIs(t, err, errForeign)
}

func TestNoModule(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	defer s.stop(t)
	k := b.keeper(1)
	k.host.client = func() (*kernel.Client, error) { return nil, kernel.ErrNoModule }
	defer k.Close()
	_, err := k.Attach(t.Context())
	require.ErrorIs(t, err, kernel.ErrNoModule)
	require.NoFileExists(t, b.remembered())
}

// A device goes on with a server that goes on where its own ended, and with no other.
func TestAttachAgain(t *testing.T) {
	shown := func(change func(s *remote.Snapshot)) offer {
		s := session()
		change(&s)
		return offer{session: s}
	}
	for _, tc := range []struct {
		name string
		next offer
		err  string
	}{
		{"after a restart, clean or not", shown(func(s *remote.Snapshot) { s.Epoch++ }), ""},
		{"after two", shown(func(s *remote.Snapshot) { s.Epoch += 2; s.Unclean = true }), ""},
		{"waiting for its target", shown(func(s *remote.Snapshot) { s.State = remote.StateWaiting }), ""},
		{"one that lost something", shown(func(s *remote.Snapshot) { s.Lineage = uuid.New() }), "acknowledged writes may have been lost"},
		{"one that does not say", shown(func(s *remote.Snapshot) { s.Lineage = uuid.Nil }), "acknowledged writes may have been lost"},
		{"another region", shown(func(s *remote.Snapshot) { s.RegionUUID = uuid.Nil }), "became region or mirror 00000000"},
		{"failed", shown(func(s *remote.Snapshot) { s.State, s.Cause = remote.StateFailed, "disk on fire" }), "disk on fire"},
		{"larger requests", offer{session: session(), largest: 1 << 20}, ""},
		{"smaller requests", offer{session: session(), largest: 256 << 10}, "takes requests of 262144 bytes, the device sends up to 524288"},
		{"another size", offer{session: session(), size: 2 << 20}, "the server has 2097152 bytes, the device 1048576"},
		{"read-only", offer{session: session(), readOnly: true}, "the server was made read-only: true, the device: false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			s := startServing(t, b.dir, &b.place, offer{session: session(), largest: 512 << 10})
			_, err := b.attach()
			require.NoError(t, err)
			require.Equal(t, "512", b.read("queue/max_sectors_kb"))
			s.stop(t)
			s = startServing(t, b.dir, &b.place, tc.next)
			_, err = b.attach()
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.True(t, dead(b.socks[0]), "it was given nothing")
				s.stop(t)
				s = b.serve(t)
				_, err = b.attach()
			}
			require.NoError(t, err)
			require.False(t, dead(b.socks[0]))
			require.Equal(t, "512", b.read("queue/max_sectors_kb"))
			s.stop(t)
		})
	}
}

// TestAttachAgainMirror: a device of a mirror goes on whichever member is the first in sync, and also if a member was
// replaced. pmnbd 0.1.0 remembered the region of a member in place of the mirror.
func TestAttachAgainMirror(t *testing.T) {
	set, first, second, third := uuid.New(), regionID, uuid.New(), uuid.New()
	// mirror is a session of a mirror of two members. That with the first region is the first in sync.
	mirror := func(set uuid.UUID, regions ...uuid.UUID) remote.Snapshot {
		s := session()
		s.RegionUUID, s.Mirror = regions[0], &remote.MirrorSnapshot{Set: set, Regions: regions}
		return s
	}
	lost := mirror(set, first, second)
	lost.Lineage = uuid.New()
	old := mirror(set, first, second)
	old.Mirror.Regions = nil
	const another, loss = "became region or mirror", "acknowledged writes may have been lost"
	for _, tc := range []struct {
		name       string
		next       remote.Snapshot
		remembered uuid.UUID
		err        string
	}{
		{"the same member", mirror(set, first, second), set, ""},
		{"another member", mirror(set, second, first), set, ""},
		{"a replaced member", mirror(set, second, third), set, ""},
		{"another mirror", mirror(uuid.New(), first, second), set, another},
		{"another lineage", lost, set, loss},
		{"0.1.0, the same member", mirror(set, first, second), first, ""},
		{"0.1.0, another member", mirror(set, second, first), first, ""},
		{"0.1.0, and its pmnbd still serves", old, first, ""},
		{"0.1.0, another mirror", mirror(uuid.New(), second, third), first, another},
		{"0.1.0, another lineage", lost, first, loss},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			s := startServing(t, b.dir, &b.place, offer{session: mirror(set, first, second)})
			a, err := b.attach()
			s.stop(t)
			require.NoError(t, err)
			if tc.remembered != set {
				a.Region = tc.remembered
				l, err := b.host().lock(t.Context(), b.dev)
				require.NoError(t, err)
				require.NoError(t, l.save(a))
				l.unlock()
			}
			s = startServing(t, b.dir, &b.place, offer{session: tc.next})
			defer s.stop(t)
			_, err = b.attach()
			if tc.err != "" {
				require.ErrorIs(t, err, errNotFollowing)
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestFits(t *testing.T) {
	offered := wire.Export{Size: 1 << 20, Flags: wire.FlagSendFlush | wire.FlagSendFUA}
	sizes := wire.BlockSizes{Min: 1, MaxPayload: 1 << 20}
	a := Attachment{Size: 1 << 20, BlockSize: 512, Flags: wire.FlagSendFlush}
	require.NoError(t, a.fits(offered, sizes, 1<<20), "more is no harm")
	a.Flags |= wire.FlagSendTrim
	require.ErrorContains(t, a.fits(offered, sizes, 1<<20), "flags 0x20 are missing")
	a.Flags, sizes.Min = 0, 4096
	require.ErrorContains(t, a.fits(offered, sizes, 1<<20), "blocks of 4096 bytes")
}

// Nothing is attached to a server that cannot be read from now.
func TestAttachWaiting(t *testing.T) {
	b := newBench(t)
	o := offer{session: session()}
	o.session.State, o.session.Cause = remote.StateWaiting, "gone fishing"
	s := startServing(t, b.dir, &b.place, o)
	defer s.stop(t)
	_, err := b.attach()
	require.ErrorContains(t, err, "waiting: gone fishing")
	require.NoFileExists(t, b.sysfs("pid"))
}

// A device that cannot be opened is not left behind.
func TestAttachUnopened(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	defer s.stop(t)
	require.NoError(t, os.Remove(filepath.Join(b.root, "dev/nbd0")))
	_, err := b.attach()
	require.ErrorContains(t, err, "cannot be opened")
	require.NoFileExists(t, b.sysfs("pid"))
	require.NoFileExists(t, b.remembered())
}
