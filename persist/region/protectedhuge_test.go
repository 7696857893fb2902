package region

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
)

// hugePages mounts a hugetlbfs and has the kernel keep n pages of 2 MiB for it, until the test has ended.
func hugePages(t *testing.T, n int) string {
	t.Helper()
	pages, err := os.OpenFile("/proc/sys/vm/nr_hugepages", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs root: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, pages.Close()) })
	require.NoError(t, unix.Flock(int(pages.Fd()), unix.LOCK_EX)) // the number is the host's
	kept := func() (n int) {
		var b [32]byte
		m, _ := pages.ReadAt(b[:], 0)
		_, err := fmt.Sscan(string(b[:m]), &n)
		require.NoError(t, err)
		return n
	}
	keep := func(n int) {
		_, err := pages.WriteAt(fmt.Append(nil, n), 0)
		require.NoError(t, err)
	}
	before := kept()
	keep(before + n)
	t.Cleanup(func() { keep(before) })
	if kept() < before+n {
		t.Skip("the kernel finds no memory for huge pages")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "hugetlbfs", 0, "pagesize=2M"); err != nil {
		t.Skipf("mount hugetlbfs: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// TestProtectedOnHugePages: huge pages are saved and loaded, and are there where a region was lost.
func TestProtectedOnHugePages(t *testing.T) {
	const size = 4 * image.BlockSize
	dir := hugePages(t, (DataOffset+size)/image.BlockSize)
	p := place{filepath.Join(dir, "memory"), t.TempDir()}
	_, err := create(p.memory, CreateOptions{Name: "r", Size: size + 4096, Class: persist.ClassProtected, Save: p.save}, saverIn(bootA))
	require.ErrorIs(t, err, ErrSize, "no whole pages")
	_, err = create(p.memory, CreateOptions{Name: "r", Size: size, Class: persist.ClassProtected, Save: p.save}, saverIn(bootA))
	require.NoError(t, err)
	r := p.open(t, saverIn(bootA))
	grant(t, r)
	store(t, r, persist.Range{Len: size}, 1)
	_, err = r.Save(t.Context())
	require.NoError(t, err)
	p.powerOff(t, r)

	r = p.open(t, saverIn(bootB))
	require.True(t, protection(t, r).Loaded)
	want := make([]byte, size)
	random(want, 1)
	require.Equal(t, want, r.Data())
	grant(t, r)
	p.powerOff(t, r) // without a save

	r = p.open(t, saverIn(bootA))
	require.False(t, protection(t, r).Loaded)
	require.Equal(t, make([]byte, size), r.Data())
}
