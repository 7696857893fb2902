//go:build verbs && cgo

package verbs

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

func (b bench) caps(t *testing.T) {
	a, _ := rdmatest.Connect(t, b.p, b.addr, rdmatest.Config{ConnConfig: rdma.ConnConfig{MaxReads: 3, MaxReadsIn: 5}})
	caps := a.Conn.Caps()
	require.Equal(t, 3, caps.MaxReads)
	require.Equal(t, b.dev.dma, caps.PlacesByDMA)
	require.Equal(t, b.dev.caps.iwarp == 0 || !b.dev.dma, caps.OrderedPlacement)
	_, err := a.Conn.Post([]rdma.WorkRequest{{Op: rdma.OpSend, Inline: make([]byte, caps.MaxInline+1)}})
	require.ErrorIs(t, err, rdma.ErrLocalAccess)
	if !caps.PersistentFlush {
		_, err := a.Conn.Post([]rdma.WorkRequest{{Op: rdma.OpFlush}})
		require.ErrorIs(t, err, rdma.ErrNotSupported)
	}
}

// The lanes of a session are connections that share a domain at each end. A dialer asks for
// them with private data.
func (b bench) lanes(t *testing.T) {
	l, err := b.p.Listen(t.Context(), b.addr)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(l.Addr(), strings.TrimSuffix(b.addr, "0")), l.Addr())
	defer func() { require.NoError(t, l.Close()) }()
	ours, err := b.p.OpenDomain(t.Context(), l.Addr())
	require.NoError(t, err)
	defer func() { require.NoError(t, ours.Close()) }()
	r, err := ours.Register(rdmatest.Memory(t, 4096), rdma.LocalWrite)
	require.NoError(t, err)
	var theirs rdma.Domain
	var q *rdma.MemoryRegion
	for lane := range 3 {
		dialled := make(chan error, 1)
		var x rdma.Conn
		go func() {
			var err error
			x, err = ours.Dial(t.Context(), l.Addr(), rdma.ConnConfig{PrivateData: make([]byte, lane*28)}, []rdma.WorkRequest{{Local: rdma.SGE{Region: r, Len: 64}}})
			dialled <- err
			if err != nil {
				_ = l.Close() // or Accept waits for ever
			}
		}()
		req, err := l.Accept()
		if err != nil {
			require.NoError(t, errors.Join(<-dialled, err))
		}
		if theirs == nil {
			theirs, err = req.OpenDomain()
			require.NoError(t, err)
			defer func() { require.NoError(t, theirs.Close()) }()
			q, err = theirs.Register(rdmatest.Memory(t, 4096), rdma.LocalWrite)
			require.NoError(t, err)
		}
		y, err := req.Accept(theirs, rdma.ConnConfig{}, []rdma.WorkRequest{{Local: rdma.SGE{Region: q, Len: 64}}})
		require.NoError(t, err)
		defer func() { require.NoError(t, y.Close()) }()
		require.NoError(t, <-dialled)
		defer func() { require.NoError(t, x.Close()) }()
		cs := make([]rdma.Completion, 1)
		for _, way := range [][2]rdma.Conn{{x, y}, {y, x}} {
			_, err = way[0].Post([]rdma.WorkRequest{{Op: rdma.OpSend, Inline: []byte("hello")}})
			require.NoError(t, err)
			next(t, way[1], cs, 1)
		}
	}
}

func (b bench) registration(t *testing.T) {
	d, err := b.p.OpenDomain(t.Context(), b.addr)
	require.NoError(t, err)
	mem := rdmatest.Memory(t, 4096)
	_, err = d.Register(nil, rdma.RemoteRead)
	require.ErrorIs(t, err, rdma.ErrLocalAccess)
	_, err = d.Register(mem, rdma.RemoteWrite|rdma.PageCache)
	require.ErrorIs(t, err, rdma.ErrNotSupported)
	require.ErrorContains(t, err, "/dev/daxX.Y")
	_, err = d.Register(mem, rdma.RemoteWrite|rdma.RemoteFlush)
	require.ErrorIs(t, err, rdma.ErrNotSupported, "anonymous memory is not persistent")
	r, err := d.Register(mem, rdma.RemoteWrite)
	require.NoError(t, err)
	require.Equal(t, rdma.RemoteWrite|rdma.LocalWrite, r.Access)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "again")
	_, err = d.Register(mem, rdma.RemoteWrite)
	require.ErrorIs(t, err, rdma.ErrClosed)
	_, err = d.Dial(t.Context(), b.addr, rdma.ConnConfig{}, nil)
	require.ErrorIs(t, err, rdma.ErrClosed)
}

// When locked memory runs out, the error names the remedy. Only a process without
// CAP_IPC_LOCK has that limit, so the test runs itself again as such a process.
func (b bench) lockedMemory(t *testing.T) {
	const mark = "PMNBD_TEST_MEMLOCK"
	if os.Getenv(mark) == "" {
		cmd := exec.Command("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", os.Args[0], "-test.run=^TestDevice$/^LockedMemory$", "-test.v")
		cmd.Env = append(os.Environ(), mark+"=1")
		if os.Geteuid() != 0 {
			t.Skip("it takes root to drop CAP_IPC_LOCK")
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "PASS: TestDevice/LockedMemory")
		return
	}
	d, err := b.p.OpenDomain(t.Context(), b.addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}))
	_, err = d.Register(rdmatest.Memory(t, 1<<20), rdma.RemoteWrite)
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorContains(t, err, "LimitMEMLOCK=infinity")
}

// next waits for n completions of c. Nobody else may poll c.
func next(t testing.TB, c rdma.Conn, cs []rdma.Completion, n int) {
	for n > 0 {
		got, err := c.Poll(cs)
		if got == 0 && err == nil {
			err = c.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		n -= got
	}
}

// pair makes a connected pair on which the test itself waits and polls.
func (b bench) pair(t testing.TB, p rdma.Provider) (ends [2]rdma.Conn, regions [2]*rdma.MemoryRegion) {
	t.Helper()
	l, err := p.Listen(t.Context(), b.addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	d, err := p.OpenDomain(t.Context(), l.Addr())
	require.NoError(t, err)
	dialled := make(chan error, 1)
	go func() {
		c, err := d.Dial(t.Context(), l.Addr(), rdma.ConnConfig{}, nil)
		ends[0] = c
		dialled <- err
		if err != nil {
			_ = l.Close() // or Accept waits for ever
		}
	}()
	req, err := l.Accept()
	if err != nil {
		require.NoError(t, errors.Join(<-dialled, err))
	}
	e, err := req.OpenDomain()
	require.NoError(t, err)
	ends[1], err = req.Accept(e, rdma.ConnConfig{}, nil)
	require.NoError(t, err)
	require.NoError(t, <-dialled)
	for i, d := range []rdma.Domain{d, e} {
		regions[i], err = d.Register(rdmatest.Memory(t, 1<<20), rdmatest.All)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, ends[i].Close())
			require.NoError(t, d.Close())
		})
	}
	return ends, regions
}

// round returns a function that does what a write and its barrier cost: Writes and a Send,
// which a Send answers.
func round(t testing.TB, ends [2]rdma.Conn, r [2]*rdma.MemoryRegion, size uint32) func() {
	var batch []rdma.WorkRequest
	for i := range uint64(8) {
		batch = append(batch, rdma.WorkRequest{
			Op: rdma.OpWrite, Local: rdma.SGE{Region: r[0], Off: i << 16, Len: size}, Remote: rdma.Remote{Key: r[1].Key, Addr: r[1].Base + i<<16},
		})
	}
	batch = append(batch, rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("barrier"), Signaled: true})
	ack := []rdma.WorkRequest{{Op: rdma.OpSend, Inline: []byte("ack"), Signaled: true}}
	recvs := [2][]rdma.WorkRequest{}
	cs := make([]rdma.Completion, 8)
	for i := range recvs {
		recvs[i] = []rdma.WorkRequest{{Local: rdma.SGE{Region: r[i], Off: 1<<20 - 64, Len: 64}}}
	}
	return func() {
		for i := range ends {
			if err := ends[i].PostRecv(recvs[i]); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := ends[0].Post(batch); n != len(batch) || err != nil {
			t.Fatal(n, err)
		}
		next(t, ends[1], cs, 1)
		if n, err := ends[1].Post(ack); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		next(t, ends[1], cs, 1)
		next(t, ends[0], cs, 2)
	}
}

func (b bench) allocations(t *testing.T) {
	ends, regions := b.pair(t, b.p)
	f := round(t, ends, regions, 4096)
	f()
	require.Zero(t, testing.AllocsPerRun(50, f))
}

// A Wait that polls for a while sleeps when nothing comes, and Close wakes it.
func (b bench) spin(t *testing.T) {
	p, err := New(Config{Spin: 100 * time.Microsecond})
	require.NoError(t, err)
	ends, regions := b.pair(t, p)
	round(t, ends, regions, 64)()
	failed := make(chan error)
	go func() { failed <- ends[0].Wait() }()
	require.NoError(t, ends[0].Close())
	require.ErrorIs(t, <-failed, rdma.ErrClosed)
}

// Native FLUSH makes persistent memory durable. To a device, only /dev/daxX.Y is such
// memory. A build that cannot post FLUSH registers memory for it all the same, because its
// peers may post it.
func (b bench) flush(t *testing.T) {
	found, err := filepath.Glob("/dev/dax*")
	require.NoError(t, err)
	switch {
	case len(found) == 0:
		t.Skip("no /dev/daxX.Y")
	case b.dev.caps.flush_persistent == 0:
		t.Skipf("%s has no FLUSH", b.dev.name)
	}
	f, err := os.OpenFile(found[0], os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	const size = 2 << 20
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	if CanFlush {
		rdmatest.Flush(t, b.p, b.addr, mem)
		return
	}
	d, err := b.p.OpenDomain(t.Context(), b.addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	_, err = d.Register(mem, rdmatest.All|rdma.RemoteFlush)
	require.NoError(t, err)
	t.Skip("this build cannot post FLUSH: it needs rdma-core 45 and the tag verbs_flush")
}

// ip runs a command that changes the machine's network.
func ip(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
}

// netdev returns the interface that has b's address.
func (b bench) netdev(t *testing.T) string {
	host, _, err := net.SplitHostPort(b.addr)
	require.NoError(t, err)
	all, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range all {
		addrs, err := i.Addrs()
		require.NoError(t, err)
		for _, a := range addrs {
			if a.(*net.IPNet).IP.String() == host {
				return i.Name
			}
		}
	}
	require.Fail(t, "no interface has "+host)
	return ""
}

// When a device is removed, its connections fail, and the removal does not hang because of us. The
// kernel takes one end after the other: the first has the removal as its cause, the second may hear
// sooner that its peer has disconnected. The listener serves again when the device is back.
func (b bench) removal(t *testing.T, kind, link string) {
	dev := b.netdev(t)
	// librdmacm lets go of a device only when it finds others (see reap).
	ip(t, "ip", "link", "add", "spare", "type", "dummy")
	ip(t, "ip", "link", "set", "spare", "up")
	ip(t, "rdma", "link", "add", "spare0", "type", kind, "netdev", "spare")
	l, err := b.p.Listen(t.Context(), b.addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	t.Run("while connected", func(t *testing.T) {
		x, y := rdmatest.ConnectTo(t, b.p, l, rdmatest.Config{})
		gone := exec.Command("rdma", "link", "delete", link)
		require.NoError(t, gone.Start())
		accepted := make(chan error)
		go func() { // only Accept notices the removal
			req, err := l.Accept()
			if err == nil {
				err = req.Reject([]byte("back again"))
			}
			accepted <- err
		}()
		causes := [2]error{x.Failed(t), y.Failed(t)}
		require.ErrorIs(t, errors.Join(causes[:]...), rdma.ErrDevice)
		for i, e := range []*rdmatest.End{x, y} {
			require.ErrorIs(t, causes[i], rdma.ErrLost)
			e.Close(t)
			require.NoError(t, e.Domain.Close())
		}
		require.NoError(t, gone.Wait(), "the kernel waits until nobody has the device open")

		ip(t, "rdma", "link", "add", link, "type", kind, "netdev", dev)
		var refused *rdma.RejectError
		for refused == nil { // until the listener has noticed
			d, err := b.p.OpenDomain(t.Context(), l.Addr())
			require.NoError(t, err)
			_, err = d.Dial(t.Context(), l.Addr(), rdma.ConnConfig{}, nil)
			require.NoError(t, d.Close())
			if !errors.As(err, &refused) {
				require.ErrorIs(t, err, rdma.ErrLost)
			}
		}
		require.NoError(t, <-accepted)
	})
}

func Benchmark(b *testing.B) {
	d := find(b)
	for name, size := range map[string]uint32{"64B": 64, "4K": 4096, "64K": 64 << 10} {
		b.Run("8 writes and a barrier/"+name, func(b *testing.B) {
			ends, regions := d.pair(b, d.p)
			f := round(b, ends, regions, min(size, 1<<16-64))
			b.SetBytes(int64(8 * size))
			for b.Loop() {
				f()
			}
		})
	}
}
