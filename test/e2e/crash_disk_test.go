package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A disk is a file system on a file, so that a test can break it.
type disk struct{ dir string }

// newDisk mounts a disk of size bytes.
func newDisk(t *testing.T, size int64) disk {
	t.Helper()
	need(t, peer{"mkfs.ext4", "e2fsprogs"}, peer{"mount", "mount"})
	h := newHost(t)
	image, d := filepath.Join(h.disk, "image"), disk{filepath.Join(h.disk, "mnt")}
	f, err := os.Create(image)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	require.NoError(t, f.Close())
	require.NoError(t, os.Mkdir(d.dir, 0o700))
	out, err := exec.Command("mkfs.ext4", "-q", "-m0", image).CombinedOutput()
	require.NoError(t, err, "%s", out)
	if out, err := exec.Command("mount", "-o", "loop", image, d.dir).CombinedOutput(); err != nil {
		t.Skipf("mount a file: %v: %s (needs root and a loop device)", err, out)
	}
	// Detached, as it is busy while anybody on the machine looks at a file on it.
	t.Cleanup(func() { require.NoError(t, unix.Unmount(d.dir, unix.MNT_DETACH)) })
	return d
}

// fill leaves no free block.
func (d disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.dir, "fill"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for n := 1 << 20; n >= 512; {
		if _, err := f.Write(make([]byte, n)); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			n /= 2
		}
	}
}

// remount makes the disk read-only, or writable again.
func (d disk) remount(t *testing.T, how string) {
	t.Helper()
	out, err := exec.Command("mount", "-o", "remount,"+how, d.dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// die makes the file system refuse everything from now on and write back nothing that it holds,
// as ext4 does when its disk is gone (FS_IOC_SHUTDOWN, linux/fs.h).
func (d disk) die(t *testing.T) {
	t.Helper()
	const shutdown, noLogFlush = 0x8004587d, 2
	f, err := os.Open(d.dir)
	require.NoError(t, err)
	defer func() { _ = f.Close() }() // the file system is dead
	require.NoError(t, unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush))
}

// TestDiskIsFull fills the disk of a region. A region gets all its blocks when it is made, so a
// full disk does not matter, neither in service nor at the target's next start.
func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	d := newDisk(t, 96<<20)
	r := newRigOn(t, d.dir, 1)
	r.during(t, func() {
		d.fill(t)
		r.roundTrip(t)
		r.target.kill(t)
		r.serve(t)
		r.roundTrip(t)
	})
	r.verify(t)
	code, _, stderr := r.result(t, "pmnbd-target", "region", "create", "more", filepath.Join(d.dir, "more"), "--size", "16M")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no space left")
	require.NoFileExists(t, filepath.Join(d.dir, "more"))
	r.stop(t)
}

// TestDiskIsReadOnly makes the disk read-only. The target cannot start until it is writable;
// the client waits.
func TestDiskIsReadOnly(t *testing.T) {
	t.Parallel()
	d := newDisk(t, 96<<20)
	r := newRigOn(t, d.dir, 1)
	r.during(t, func() {
		r.target.kill(t)
		d.remount(t, "ro")
		code, _, stderr := r.result(t, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", "rig="+r.path)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "read-only file system")
		d.remount(t, "rw")
		r.serve(t)
		r.roundTrip(t)
	})
	r.verify(t)
	r.stop(t)
}

// TestDiskDies ends the disk under a region. The region fails and names the reason, no FLUSH
// succeeds any more, and another region of the same target goes on.
func TestDiskDies(t *testing.T) {
	t.Parallel()
	d := newDisk(t, 96<<20)
	otherRegionGoesOn(t, filepath.Join(d.dir, "victim"), func() { d.die(t) }, syscall.EIO)
}

// TestRegionIsTruncated shortens a region's file, so that touching its pages raises SIGBUS. In
// the target that is an error of this region, and of nothing else.
func TestRegionIsTruncated(t *testing.T) {
	t.Parallel()
	victim := filepath.Join(newHost(t).disk, "victim")
	otherRegionGoesOn(t, victim, func() { require.NoError(t, os.Truncate(victim, dataOffset)) }, syscall.EIO)
}

// otherRegionGoesOn kills the region at victim, in a target that serves another one.
func otherRegionGoesOn(t *testing.T, victim string, kill func(), want syscall.Errno) {
	t.Helper()
	h := newHost(t)
	h.run(t, "pmnbd-target", "region", "create", "victim", victim, "--size", "16M")
	target, uri := h.target(t, "victim="+victim, "other="+h.region(t, "other", "64M"))
	pmnbd, unix, _ := h.initiator(t, uri, "victim")
	_, otherNBD, _ := h.initiator(t, uri, "other")
	load := newLoad(t, otherNBD, 0, 1)
	c := dialNBD(t, unix)
	data := noise(t, 1<<20)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())
	load.during(t, func() {
		kill()
		// pmnbd acknowledges a WRITE before anybody can know.
		if err := c.write(0, bytes.Repeat(data[:1024], 1024)); err != nil {
			require.ErrorIs(t, err, want)
		}
		require.ErrorIs(t, c.flush(), want)
		require.ErrorIs(t, c.write(0, data), want, "the region must stay failed")
		require.ErrorIs(t, c.flush(), want)
		require.ErrorIs(t, c.read(0, make([]byte, 4096)), want)
	})
	require.Contains(t, h.run(t, "pmnbd-target", "status"), "region victim: FAILED")
	c.close()
	pmnbd.kill(t)
	code, _, stderr := h.result(t, "pmnbd", "serve", "--target", uri+"/victim", "--listen", "tcp:0")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "failed")
	select {
	case <-target.done:
		require.Fail(t, "the target has ended")
	default:
	}
}
