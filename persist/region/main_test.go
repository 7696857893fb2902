package region

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSize = 64 << 10

// bootA and bootB are two boots of the test's host.
var bootA, bootB = [16]byte{0xa}, [16]byte{0xb}

// A host is a medium for tests: this machine, except for what its fields say.
type host struct {
	memoryOf func(*os.File) (medium.Memory, error)
	bootID   func() ([16]byte, error)
	sync     func(fd int) error
	// lines and header write back bytes of the data extent and of the superblock.
	lines, header func([]byte)
	// back, unless nil, writes back everything instead of them: n bytes at off of mem.
	back  func(mem []byte, off, n uint64)
	fence func()
	bad   func() ([]persist.Range, error) // of the file
	mend  func(off, n uint64) error       // of the file
	// mounts are where memory is mounted, beside what the machine has.
	mounts []string
}

var thisHost host

func (h host) Identify(f *os.File) (medium.Memory, error) {
	if h.memoryOf != nil {
		return h.memoryOf(f)
	}
	return thisMachine.Identify(f)
}

func (h host) Bad(f *os.File, m *medium.Memory) ([]persist.Range, error) {
	if h.bad != nil {
		return h.bad()
	}
	return thisMachine.Bad(f, m)
}

func (h host) Mend(f *os.File, off, n uint64) error {
	if h.mend != nil {
		return h.mend(off, n)
	}
	return thisMachine.Mend(f, off, n)
}

func (h host) MemoryMounts() ([]string, error) {
	points, err := thisMachine.MemoryMounts()
	return append(points, h.mounts...), err
}

func (h host) BootID() ([16]byte, error) {
	if h.bootID != nil {
		return h.bootID()
	}
	return thisMachine.BootID()
}

func (h host) Sync(f *os.File) error {
	if h.sync != nil {
		return h.sync(int(f.Fd()))
	}
	return thisMachine.Sync(f)
}

func (h host) WriteBack(mem []byte, off, n uint64) {
	if h.back != nil {
		h.back(mem, off, n)
		return
	}
	hook := h.header
	if off >= DataOffset {
		hook = h.lines
	}
	if hook == nil {
		thisMachine.WriteBack(mem, off, n)
		return
	}
	hook(mem[off : off+n])
}

func (h host) Fence() {
	if h.fence != nil {
		h.fence()
		return
	}
	thisMachine.Fence()
}

// syncing returns h with another sync.
func (h host) syncing(sync func(fd int) error) host {
	h.sync = sync
	return h
}

// hostOf returns a machine on which every file has one class, in one boot.
func hostOf(class persist.Class, boot [16]byte) host {
	return host{
		memoryOf: func(*os.File) (medium.Memory, error) { return medium.Memory{Class: class, Flags: unix.MAP_SHARED}, nil },
		bootID:   func() ([16]byte, error) { return boot, nil },
	}
}

var fileHost, volatileHost = hostOf(persist.ClassFile, bootA), hostOf(persist.ClassVolatile, bootA)

// onEachClass runs a test for each class.
func onEachClass(t *testing.T, f func(t *testing.T, h host)) {
	for _, class := range []persist.Class{persist.ClassVolatile, persist.ClassFile, persist.ClassPMem} {
		t.Run(class.String(), func(t *testing.T) { f(t, hostOf(class, bootA)) })
	}
}

// created makes a region named "r" in a new file, on h.
func created(t testing.TB, h host) string {
	t.Helper()
	path := filepath.Join(testhost.Disk(t), "region")
	_, err := create(path, CreateOptions{Name: "r", Size: testSize}, h)
	require.NoError(t, err)
	return path
}

// opened opens a region and closes it when the test ends.
func opened(t testing.TB, path string, o OpenOptions, h host) *Region {
	t.Helper()
	o.AllowVolatile = true
	armed := false // the test's hooks must not see what opening makes durable
	if hook := h.sync; hook != nil {
		h.sync = func(fd int) error {
			if !armed {
				return unix.Fdatasync(fd)
			}
			return hook(fd)
		}
	}
	if hook := h.header; hook != nil {
		h.header = func(b []byte) {
			if armed {
				hook(b)
			}
		}
	}
	r, err := open(path, o, h)
	require.NoError(t, err)
	armed = true
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// FlushAll makes the whole data extent durable.
func (r *Region) FlushAll() error { return r.Flush([]persist.Range{{Len: r.size}}) }

// header returns the superblock's copies from the file.
func header(t testing.TB, path string) (h [2 * CopySize]byte) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	require.NoError(t, readHeader(f, &medium.Memory{}, h[:]))
	require.NoError(t, f.Close())
	return h
}

// setHeader overwrites the superblock's copies.
func setHeader(t testing.TB, path string, h [2 * CopySize]byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(h[:], 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// held lists the descriptors and mappings of files below dir that this process has.
func held(t testing.TB, dir string) (all []string) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(to, dir) {
			all = append(all, fmt.Sprintf("fd %s: %s", fd.Name(), to))
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, dir) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}
