// Package rdmatest is the test suite for providers of package rdma, only for tests of this
// module; it promises nothing to other programs.
//
// It lets sessions and devices rely on the contract instead of on a transport's habits. It
// also has helpers for tests elsewhere: mapped memory, and connected pairs with a goroutine
// at each end that waits and polls as the contract asks.
package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/rdma"
)

// patience ends a test that hangs. No test measures time by it.
const patience = 30 * time.Second

// Memory maps n bytes for the length of the test.
func Memory(t testing.TB, n int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m)) })
	return m
}

// All is every right but RemoteFlush.
const All = rdma.LocalWrite | rdma.RemoteRead | rdma.RemoteWrite

// An End is one end of a connection, with a domain and a region of its own. A goroutine,
// its driver, loops over Wait and Poll until the connection fails.
type End struct {
	Conn   rdma.Conn
	Domain rdma.Domain
	Region *rdma.MemoryRegion

	polling     sync.Mutex // keeps the completions in order
	completions chan rdma.Completion
	done        chan struct{}
	err         error // valid once done is closed
}

// drive starts the driver.
func (e *End) drive() {
	e.completions = make(chan rdma.Completion, 1<<16)
	e.done = make(chan struct{})
	go func() {
		defer close(e.done)
		for e.err == nil {
			if e.err = e.poll(); e.err == nil {
				e.err = e.Conn.Wait()
			}
		}
		_ = e.poll() // Wait may fail while completions are left
	}()
}

// poll passes on the completions that are there.
func (e *End) poll() error {
	e.polling.Lock()
	defer e.polling.Unlock()
	var cs [8]rdma.Completion
	for {
		n, err := e.Conn.Poll(cs[:])
		if n == 0 || err != nil {
			return err
		}
		for _, c := range cs[:n] {
			e.completions <- c
		}
	}
}

// Next waits for the next completion. If the connection fails first, the test fails.
func (e *End) Next(t testing.TB) rdma.Completion {
	t.Helper()
	select {
	case c := <-e.completions:
		return c
	default:
	}
	select {
	case c := <-e.completions:
		return c
	case <-e.done:
		select {
		case c := <-e.completions:
			return c
		default:
		}
		require.NoError(t, e.err, "while a completion was due")
	case <-time.After(patience):
		require.Fail(t, "no completion", "%s has none.%s", e.describe(), standstill())
	}
	panic("unreachable")
}

// describe names the end in a failure.
func (e *End) describe() string {
	return fmt.Sprintf("The connection to %s, of which %d bytes of Writes and Read Responses have arrived,", e.Conn.RemoteAddr(), e.Conn.Arrived())
}

// Failed waits until the connection has failed, and returns its error.
func (e *End) Failed(t testing.TB) error {
	t.Helper()
	select {
	case <-e.done:
	case <-time.After(patience):
		require.Fail(t, "the connection lives on", "%s has not failed.%s", e.describe(), standstill())
	}
	return e.err
}

// Post posts all of wrs and then polls, because a completion that is there by then need not
// wake the driver.
func (e *End) Post(t testing.TB, wrs ...rdma.WorkRequest) {
	t.Helper()
	n, err := e.Conn.Post(wrs)
	require.NoError(t, err)
	require.Equal(t, len(wrs), n)
	_ = e.poll() // the driver meets the error, too
}

// Recv posts a receive of n bytes at off of the region.
func (e *End) Recv(t testing.TB, id, off uint64, n uint32) {
	t.Helper()
	require.NoError(t, e.Conn.PostRecv([]rdma.WorkRequest{{ID: id, Local: e.Local(off, n)}}))
}

// Local returns n bytes at off of the end's own region.
func (e *End) Local(off uint64, n uint32) rdma.SGE {
	return rdma.SGE{Region: e.Region, Off: off, Len: n}
}

// At returns what the peer names to reach off of this end's region.
func (e *End) At(off uint64) rdma.Remote {
	return rdma.Remote{Key: e.Region.Key, Addr: e.Region.Base + off}
}

// Close closes the connection and waits for the driver to end.
func (e *End) Close(t testing.TB) {
	t.Helper()
	require.NoError(t, e.Conn.Close())
	_ = e.Failed(t)
}

// A Config says what Connect makes. Zero values mean defaults.
type Config struct {
	rdma.ConnConfig
	// Size is that of each region, in bytes; 0 means 1 MiB.
	Size int
	// Access is that of the responder's region. 0 means All.
	Access rdma.Access
	// Memory maps the memory of both regions. nil means the function Memory.
	Memory func(t testing.TB, n int) []byte
}

// Connect makes a connected pair through a listener of its own: a dials and b accepts. The
// test's cleanup closes everything.
func Connect(t testing.TB, p rdma.Provider, listenAddr string, cfg Config) (a, b *End) {
	t.Helper()
	l, err := p.Listen(context.Background(), listenAddr)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return ConnectTo(t, p, l, cfg)
}

// ConnectTo is Connect through l.
func ConnectTo(t testing.TB, p rdma.Provider, l rdma.Listener, cfg Config) (a, b *End) {
	t.Helper()
	if cfg.Size == 0 {
		cfg.Size = 1 << 20
	}
	if cfg.Access == 0 {
		cfg.Access = All
	}
	if cfg.Memory == nil {
		cfg.Memory = Memory
	}
	a, b = &End{}, &End{}
	d, err := p.OpenDomain(context.Background(), l.Addr())
	require.NoError(t, err)
	a.open(t, d, cfg.Memory(t, cfg.Size), All)

	var wg sync.WaitGroup
	var dialErr error
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if a.Conn, dialErr = a.Domain.Dial(ctx, l.Addr(), cfg.ConnConfig, nil); dialErr != nil {
			_ = l.Close() // or Accept waits for ever
		}
	})
	req, err := l.Accept()
	if err != nil {
		wg.Wait()
		require.NoError(t, errors.Join(dialErr, err))
	}
	d, err = req.OpenDomain()
	require.NoError(t, err)
	b.open(t, d, cfg.Memory(t, cfg.Size), cfg.Access)
	b.Conn, err = req.Accept(b.Domain, cfg.ConnConfig, nil)
	wg.Wait()
	require.NoError(t, errors.Join(dialErr, err))
	for _, e := range []*End{a, b} {
		e.drive()
		t.Cleanup(func() { e.Close(t) })
	}
	return a, b
}

// open gives e the domain d, and registers mem in it as e's region.
func (e *End) open(t testing.TB, d rdma.Domain, mem []byte, a rdma.Access) {
	t.Helper()
	e.Domain = d
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	r, err := d.Register(mem, a)
	require.NoError(t, err)
	e.Region = r
}
