package iwarp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/rdma"
)

func mapped(t testing.TB, n int) []byte {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m)) })
	return m
}

// ends is a connected pair with a registered region on either side.
type ends struct {
	a, b     *Conn
	ra, rb   *rdma.MemoryRegion
	remoteOf func(*rdma.MemoryRegion, uint64) rdma.Remote
}

func connect(t testing.TB, size int, cfg rdma.ConnConfig) *ends {
	t.Helper()
	p := New(Config{})
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	e := &ends{}
	all := rdma.LocalWrite | rdma.RemoteRead | rdma.RemoteWrite
	got := make(chan error, 1)
	go func() {
		r, err := l.Accept()
		if err != nil {
			got <- err
			return
		}
		d, err := r.OpenDomain()
		if err == nil {
			e.rb, err = d.Register(mapped(t, size), all)
		}
		var c rdma.Conn
		if err == nil {
			c, err = r.Accept(d, cfg, nil)
		}
		if err == nil {
			e.b = c.(*Conn)
		}
		got <- err
	}()
	d, err := p.OpenDomain(context.Background(), l.Addr())
	require.NoError(t, err)
	e.ra, err = d.Register(mapped(t, size), all)
	require.NoError(t, err)
	c, err := d.Dial(context.Background(), l.Addr(), cfg, nil)
	require.NoError(t, err)
	e.a = c.(*Conn)
	require.NoError(t, <-got)
	t.Cleanup(func() {
		require.NoError(t, e.a.Close())
		require.NoError(t, e.b.Close())
	})
	return e
}

func at(r *rdma.MemoryRegion, off uint64) rdma.Remote {
	return rdma.Remote{Key: r.Key, Addr: r.Base + off}
}

func next(t testing.TB, c *Conn) rdma.Completion {
	var cs [1]rdma.Completion
	for {
		n, err := c.Poll(cs[:])
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			return cs[0]
		}
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSmoke(t *testing.T) {
	e := connect(t, 1<<20, rdma.ConnConfig{})
	for i := range e.ra.Mem {
		e.ra.Mem[i] = byte(i * 7)
	}
	require.NoError(t, e.b.PostRecv([]rdma.WorkRequest{{ID: 7, Local: rdma.SGE{Region: e.rb, Len: 64}}}))
	n, err := e.a.Post([]rdma.WorkRequest{
		{ID: 1, Op: rdma.OpWrite, Local: rdma.SGE{Region: e.ra, Off: 4096, Len: 500000}, Remote: at(e.rb, 4096)},
		{ID: 2, Op: rdma.OpSend, Signaled: true, Inline: []byte("hello")},
	})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, rdma.Completion{ID: 7, Op: rdma.OpRecv, Len: 5}, next(t, e.b))
	require.Equal(t, "hello", string(e.rb.Mem[:5]))
	require.Equal(t, e.ra.Mem[4096:504096], e.rb.Mem[4096:504096])
	require.Equal(t, rdma.Completion{ID: 2, Op: rdma.OpSend}, next(t, e.a))
	go func() { _ = e.b.Wait() }()
	_, err = e.a.Post([]rdma.WorkRequest{
		{ID: 3, Op: rdma.OpRead, Local: rdma.SGE{Region: e.ra, Off: 600000, Len: 400000}, Remote: at(e.rb, 4096)},
	})
	require.NoError(t, err)
	require.Equal(t, rdma.Completion{ID: 3, Op: rdma.OpRead}, next(t, e.a))
	require.Equal(t, e.ra.Mem[4096:404096], e.ra.Mem[600000:1000000])
	t.Logf("%+v mulpdu %d", e.a.Stats(), e.a.mulpdu)
}
