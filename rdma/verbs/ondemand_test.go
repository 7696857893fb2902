//go:build verbs && cgo

package verbs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
	"pmnbd/test/lab"
)

// onDemandFlag is IBV_ACCESS_ON_DEMAND.
const onDemandFlag = 1 << 6

// Files with DAX in the lab. rxe has no on-demand paging in Linux 6.12; a newer one has it
// and misplaces bytes; a repaired one works.
func TestOnDemandPaging(t *testing.T) {
	for _, tt := range []struct{ name, kernel, rxe string }{
		{"rxe of 6.12", "", "rxe"},
		{"rxe of backports", "backports", "rxe"},
		{"rxe repaired", "backports", "rxe-repaired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := lab.Guest{Kernel: tt.kernel, Setup: []string{tt.rxe, "fsdax"}, NVDIMM: lab.Memory(t, 64<<20)}
			lab.Run(t, g, func(t *testing.T) {
				b := find(t)
				b.fileWithDAX(t)
				if tt.rxe == "rxe-repaired" {
					b.onDemand(t)
				}
			})
		})
	}
}

const pmem = "/mnt/pmem"

// daxMemory maps a new file of n bytes, with DAX.
func daxMemory(t testing.TB, n int) []byte {
	_, mem := daxFile(t, n)
	return mem
}

func daxFile(t testing.TB, n int) (*os.File, []byte) {
	t.Helper()
	f, err := os.CreateTemp(pmem, "")
	require.NoError(t, err)
	_, err = f.Write(make([]byte, n))
	require.NoError(t, err)
	mem, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED_VALIDATE|unix.MAP_SYNC)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, unix.Munmap(mem))
		require.NoError(t, f.Close())
		require.NoError(t, os.Remove(f.Name()))
	})
	return f, mem
}

// A file with DAX cannot be pinned. A device that needs no pins and places bytes where it
// should takes the file. The error of any other device names the remedy.
func (b bench) fileWithDAX(t *testing.T) {
	if _, err := os.Stat(filepath.Join(pmem, "lost+found")); err != nil {
		t.Skip("no file system with DAX on " + pmem)
	}
	mem := daxMemory(t, 64<<10)
	x, y := rdmatest.Connect(t, b.p, b.addr, rdmatest.Config{})
	d := y.Domain.(*domain)
	if b.dev.caps.odp != 0 {
		r, err := d.add(mem, rdmatest.All, onDemandFlag)
		require.NoError(t, err)
		copy(x.Region.Mem, "to be kept")
		x.Post(t, rdma.WorkRequest{Op: rdma.OpWrite, Signaled: true, Local: x.Local(0, 10), Remote: rdma.Remote{Key: r.Key, Addr: r.Base + 100}})
		x.Next(t)
		if bytes.Equal(mem[100:110], []byte("to be kept")) {
			_, err = d.Register(mem, rdmatest.All)
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, d.dev.onDemand(), errMisplaces)
	}
	_, err := d.Register(mem, rdmatest.All)
	require.ErrorIs(t, err, rdma.ErrNotSupported)
	require.ErrorContains(t, err, "use /dev/daxX.Y")
	t.Log(err)
}

// onDemand tests what a device must do with the files that it takes.
func (b bench) onDemand(t *testing.T) {
	t.Run("Conformance", func(t *testing.T) {
		rdmatest.RunOn(t, daxMemory, b.p, b.addr)
	})
	t.Run("NoFlush", func(t *testing.T) {
		_, y := rdmatest.Connect(t, b.p, b.addr, rdmatest.Config{})
		_, err := y.Domain.Register(daxMemory(t, 4096), rdmatest.All|rdma.RemoteFlush)
		require.ErrorIs(t, err, rdma.ErrNotSupported)
		require.ErrorContains(t, err, "use /dev/daxX.Y")
	})
	t.Run("Synced", func(t *testing.T) {
		// A sync takes the pages from the device, so that it notices new changes.
		x, at, f, mem := b.served(t)
		for c := byte('b'); c < 'f'; c++ {
			require.NoError(t, f.Sync())
			copy(x.Region.Mem, bytes.Repeat([]byte{c}, 64<<10))
			x.Post(t, write64K(x, at(100)))
			x.Next(t)
			require.Equal(t, x.Region.Mem[:64<<10], mem[100:100+64<<10])
		}
	})
	t.Run("Hole", func(t *testing.T) {
		x, at, f, mem := b.served(t)
		require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 256<<10, 512<<10))
		other, check := fill(t)
		copy(x.Region.Mem, bytes.Repeat([]byte{'b'}, 64<<10))
		x.Post(t, write64K(x, at(0)), write64K(x, at(512<<10)))
		require.Equal(t, rdma.OpWrite, x.Next(t).Op, "beside the hole")
		require.Error(t, x.Failed(t), "no block is free for it")
		check()
		require.NoError(t, other.Truncate(0))
		require.Equal(t, x.Region.Mem[:64<<10], mem[:64<<10])
		require.Equal(t, make([]byte, 512<<10), mem[256<<10:768<<10])
	})
	for name, op := range map[string]rdma.Opcode{"TruncatedWrite": rdma.OpWrite, "TruncatedRead": rdma.OpRead} {
		t.Run(name, func(t *testing.T) {
			x, at, f, mem := b.served(t)
			require.NoError(t, f.Truncate(servedSize/2))
			_, check := fill(t)
			wr := write64K(x, at(servedSize/2))
			wr.Op = op
			x.Post(t, write64K(x, at(0)), wr)
			require.Equal(t, rdma.OpWrite, x.Next(t).Op, "what is left of it")
			require.Error(t, x.Failed(t))
			check()
			require.Equal(t, bytes.Repeat([]byte{'a'}, servedSize/2), mem[:servedSize/2])
		})
	}
}

// servedSize is the length of the file that served makes, in bytes.
const servedSize = 1 << 20

// served makes a file that y registers, the peer of x. Its bytes are all 'a', but for those
// that x can write.
func (b bench) served(t *testing.T) (x *rdmatest.End, at func(off uint64) rdma.Remote, f *os.File, mem []byte) {
	f, mem = daxFile(t, servedSize)
	x, y := rdmatest.Connect(t, b.p, b.addr, rdmatest.Config{Size: servedSize})
	r, err := y.Domain.Register(mem, rdmatest.All)
	require.NoError(t, err)
	copy(x.Region.Mem, bytes.Repeat([]byte{'a'}, servedSize))
	at = func(off uint64) rdma.Remote { return rdma.Remote{Key: r.Key, Addr: r.Base + off} }
	x.Post(t, rdma.WorkRequest{Op: rdma.OpWrite, Signaled: true, Local: x.Local(0, servedSize), Remote: at(0)})
	x.Next(t)
	require.Equal(t, x.Region.Mem, mem)
	return x, at, f, mem
}

// fill gives all free blocks to another file. check looks for stray bytes in that file.
func fill(t *testing.T) (other *os.File, check func()) {
	other, err := os.CreateTemp(pmem, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, other.Close())
		require.NoError(t, os.Remove(other.Name()))
	})
	chunk := bytes.Repeat([]byte{'o'}, 64<<10)
	for err == nil {
		_, err = other.Write(chunk)
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	return other, func() {
		all, err := os.ReadFile(other.Name())
		require.NoError(t, err)
		require.Empty(t, bytes.Trim(all, "o"))
	}
}

// write64K is a Write of 64 KiB.
func write64K(x *rdmatest.End, to rdma.Remote) rdma.WorkRequest {
	return rdma.WorkRequest{Op: rdma.OpWrite, Signaled: true, Local: x.Local(0, 64<<10), Remote: to}
}
