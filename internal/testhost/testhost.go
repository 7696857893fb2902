// Package testhost gives tests what they need of the machine that they run on, or skips them: a
// directory in memory, where nothing waits for a disk and a region is of class volatile; one on a
// disk, where it is of class file; memory that may be locked; IPv6. The directory of testing.T.TempDir is
// in memory on some systems and on a disk on others. It is only for this module.
package testhost

import (
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MemoryEnv and DiskEnv name the environment variables with the directories in which Memory and
// Disk make theirs. A test that runs other tests sets them, and removes what they leave if they end
// by a panic.
const (
	MemoryEnv = "PMNBD_TEST_MEMORY"
	DiskEnv   = "PMNBD_TEST_DISK"
)

// T is what this package needs of a test. It is a testing.TB or a rapid.T.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(f func())
}

// room is the least size in bytes of what Memory makes directories in. A test takes less than 100 MiB of it, and several
// run at a time.
const room = 256 << 20

// Memory returns a new directory on a tmpfs, by default in /dev/shm. It skips the test if that is small, as it is in
// most containers. The directory goes when the test has ended.
func Memory(t T) string {
	t.Helper()
	dir := in(t, MemoryEnv, "/dev/shm")
	if fs := filesystem(t, dir); uint64(fs.Bsize)*fs.Blocks < room {
		t.Skipf("%s has less than %d MiB: make it larger (docker run --shm-size=1g), or name another directory in memory in %s", filepath.Dir(dir), room>>20, MemoryEnv)
	}
	return dir
}

// Disk returns a new directory on a disk, by default in /var/tmp, which outlives reboots and so is
// rarely in memory. It skips the test if it is. The directory goes when the test has ended.
func Disk(t T) string {
	t.Helper()
	dir := in(t, DiskEnv, "/var/tmp")
	if filesystem(t, dir).Type == unix.TMPFS_MAGIC {
		t.Skipf("%s is in memory: name a directory on a disk in %s", dir, DiskEnv)
	}
	return dir
}

// filesystem tells of the filesystem that dir is on.
func filesystem(t T, dir string) (fs unix.Statfs_t) {
	t.Helper()
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatalf("find the filesystem of %s: %v", dir, err)
	}
	return fs
}

// IPv6 skips the test if nothing can listen on ::1, as in most containers.
func IPv6(t T) {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatalf("close a listener: %v", err)
	}
}

// CanLock skips the test if it may not lock n bytes of memory at a time, as a region of class
// protected is. Many users may lock 8 MiB.
func CanLock(t T, n int) {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatalf("map %d bytes: %v", n, err)
	}
	refused := unix.Mlock(mem)
	if err := unix.Munmap(mem); err != nil {
		t.Fatalf("unmap %d bytes: %v", n, err)
	}
	if refused != nil {
		t.Skipf("lock %d bytes of memory: %v (ulimit -l, or root)", n, refused)
	}
}

// in returns a new directory in the one that env names, by default in byDefault.
func in(t T, env, byDefault string) string {
	t.Helper()
	parent := os.Getenv(env)
	if parent == "" {
		parent = byDefault
	}
	dir, err := os.MkdirTemp(parent, "pmnbd-test-")
	if err != nil {
		t.Fatalf("make a directory for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatalf("remove a directory of the test: %v", err)
		}
	})
	return dir
}
