package iwarp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

// truncated maps a file of size bytes and then truncates it to its first page. Touching the
// rest raises SIGBUS.
func truncated(t testing.TB, size int) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(int64(size)))
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	require.NoError(t, f.Truncate(4096))
	require.NoError(t, f.Close())
	return mem
}

// If memory cannot be touched, the connection whose request needed it fails at both ends,
// whatever the request was. The process and its other connections go on.
func TestFaultOnMemory(t *testing.T) {
	const gone = 8192
	for _, c := range []struct {
		name string
		op   rdma.Opcode
	}{{"Write", rdma.OpWrite}, {"Read", rdma.OpRead}, {"Send", rdma.OpSend}} {
		t.Run(c.name, func(t *testing.T) {
			e := connect(t, 1<<16, rdma.ConnConfig{})
			broken, err := e.b.d.Register(truncated(t, 1<<16), rdmatest.All)
			require.NoError(t, err)
			require.NoError(t, e.b.PostRecv([]rdma.WorkRequest{{ID: 1, Local: rdma.SGE{Region: broken, Off: gone, Len: 4096}}}))
			// The first page still works.
			post(t, e.a, []rdma.WorkRequest{
				{Op: rdma.OpWrite, Local: rdma.SGE{Region: e.ra, Len: 4096}, Remote: at(broken, 0)},
				{ID: 2, Op: c.op, Signaled: true, Local: rdma.SGE{Region: e.ra, Len: 4096}, Remote: at(broken, gone)},
			})
			theirs := make(chan error, 1)
			go func() {
				for {
					if err := e.b.Wait(); err != nil {
						theirs <- err
						return
					}
				}
			}()
			var cs [2]rdma.Completion
			for err = nil; err == nil; err = e.a.Wait() {
				_, _ = e.a.Poll(cs[:]) // Wait returns the error, too
			}
			if c.op != rdma.OpRead { // after a Read, the socket's reset may overtake the Terminate
				require.ErrorIs(t, err, rdma.ErrRemoteOp)
			}
			var fault *rdma.FaultError
			err = <-theirs
			require.ErrorAs(t, err, &fault)
			require.Same(t, broken, fault.Region)
			require.NotErrorIs(t, err, rdma.ErrLost)
			require.NotZero(t, fault.Addr)
		})
	}
}

// Only a fault on memory is caught. Other panics go on.
func TestCaughtIsNarrow(t *testing.T) {
	r := &region{public: &rdma.MemoryRegion{}}
	broken := func(f func()) (fault *rdma.FaultError) {
		defer r.caught(false, &fault)
		f()
		return nil
	}
	require.Nil(t, broken(func() {}))
	require.PanicsWithValue(t, "ours", func() { _ = broken(func() { panic("ours") }) })
	require.Panics(t, func() {
		var b []byte
		_ = broken(func() { b[len(b)]++ })
	})
	require.Panics(t, func() {
		var p *region
		_ = broken(func() { p.key++ })
	})
}

func BenchmarkMove(b *testing.B) {
	r := &region{public: &rdma.MemoryRegion{}}
	dst, src := make([]byte, 4096), make([]byte, 4096)
	for _, c := range []struct {
		name string
		f    func()
	}{{"copy", func() { copy(dst, src) }}, {"move", func() { _ = r.move(dst, src) }}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.f()
			}
		})
	}
}
