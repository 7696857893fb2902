package lab_test

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/test/lab"
)

// TestMdFsync writes and syncs files on the kernel's RAID 1 over two exports, each of a region alone
// (docs/mirror.md has the recipe). A loses its power, the array goes on without it, and A is copied
// to in full. Then B loses its power for good, and A must have everything that was flushed.
func TestMdFsync(t *testing.T) {
	lab.Need(t)
	if _, err := exec.LookPath("mdadm"); err != nil {
		t.Skip("needs mdadm")
	}
	p := newMirrored(t, 128<<20)
	if !lab.Inside() {
		p.mdPowerCuts(t)
		return
	}
	a := p.a.half(t, "a")
	p.b.half(t, "b")
	// The bitmap has a bit for each 64 KiB. With a large chunk some other write hides what md forgets.
	sh(t, mdadm+"modprobe raid1\npmnbd attach a /dev/nbd0\npmnbd attach b /dev/nbd1\n"+
		"mdadm --create /dev/md0 --run --assume-clean --level=1 --raid-devices=2 --bitmap=internal --bitmap-chunk=64K /dev/nbd0 /dev/nbd1\n"+
		"mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/md0 64M\n"+mountMd)

	var load sync.WaitGroup
	var synced records
	var written int
	var errs [2]error
	stop, block := make(chan struct{}), aligned(t)
	load.Go(func() {
		defer close(stop)
		synced, errs[0] = trySyncRecords(records{}, nil)
	})
	load.Go(func() { written, errs[1] = writeSparsely(block, stop) })

	sh(t, "until grep 'nbd0.*(F)' /proc/mdstat; do sleep 0.2; done\necho 'md: goes on without A'\n"+
		mdadm+"mdadm /dev/md0 --remove /dev/nbd0\npmnbd detach /dev/nbd0\n")
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	<-a.done // with an error: it could not flush
	sh(t, "until timeout 3 bash -c '</dev/tcp/10.0.0.1/7204' 2>/dev/null; do sleep 0.2; done\n")
	p.a.half(t, "a", "--accept-loss")
	sh(t, mdadm+"pmnbd attach a /dev/nbd0\nmdadm --zero-superblock /dev/nbd0\nmdadm /dev/md0 --add /dev/nbd0\n"+
		"mdadm --wait /dev/md0 || true\ngrep UU /proc/mdstat\necho 'md: has both'\n")
	load.Wait()
	require.NoError(t, errors.Join(errs[:]...))

	sh(t, mdadm+umount+"fsck.ext4 -fn /dev/md0\nmdadm --stop /dev/md0\nmdadm --assemble --run /dev/md0 /dev/nbd0\n"+mountMd)
	checkRecords(t, synced)
	checkSparsely(t, block, written)
	sh(t, umount+mdadm+"mdadm --stop /dev/md0\n")
}

// Pieces of scripts.
const (
	mdadm   = "export MDADM_NO_UDEV=1\n" // without udev mdadm makes the nodes of devices itself
	mountMd = "mkdir -p /mnt/disk; mount /dev/md0 /mnt/disk\n"
)

// half serves the region as an export of its own, which fails if the target stays away.
func (s *site) half(t *testing.T, name string, more ...string) *server {
	t.Helper()
	return serve(t, "pmnbd", append([]string{
		"--target", s.listen + "/disk", "--export", name, "--listen", "unix:/run/" + name + ".sock",
		"--id", initiatorID, "--loss-timeout", "10s",
	}, more...)...)
}

// mdPowerCuts runs the test in the initiator's machine.
func (p *mirrored) mdPowerCuts(t *testing.T) {
	a, b := p.a.serve(t, true), p.b.serve(t, true)
	s := &story{t: t, m: lab.Start(t, p.initiator)}
	s.record()
	a.Kill()
	s.await("md: goes on without A")
	s.record()
	p.a.serve(t, false)
	s.await("md: has both")
	s.record()
	b.Kill()
	s.record()
	s.enough()
	lab.Finish(t, s.m)
}

// Behind the filesystem on /dev/md0.
const (
	sparseFrom = 65 << 20
	sparseStep = 64 << 10
	sparseMost = 800
)

// writeSparsely writes to /dev/md0, ten times a second, a block that is followed by nothing else in
// its part of the array. It flushes nothing: the filesystem's flushes do. It returns how many it has
// written when stop is closed.
func writeSparsely(block []byte, stop <-chan struct{}) (n int, err error) {
	f, err := os.OpenFile("/dev/md0", os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ; n < sparseMost; n++ {
		select {
		case <-stop:
			return n, f.Sync()
		case <-tick.C:
		}
		stamp(block, n+1)
		if _, err := f.WriteAt(block, sparseFrom+int64(n)*sparseStep); err != nil {
			return n, err
		}
	}
	return n, f.Sync()
}

// checkSparsely checks that the n blocks that writeSparsely wrote are there.
func checkSparsely(t *testing.T, block []byte, n int) {
	f, err := os.OpenFile("/dev/md0", os.O_RDONLY|unix.O_DIRECT, 0)
	require.NoError(t, err)
	want := make([]byte, blockSize)
	var lost []int
	for i := range n {
		_, err := f.ReadAt(block, sparseFrom+int64(i)*sparseStep)
		require.NoError(t, err)
		if stamp(want, i+1); string(want) != string(block) {
			lost = append(lost, i)
		}
	}
	require.NoError(t, f.Close())
	require.Empty(t, lost, "blocks that were flushed and are not there, of %d", n)
	t.Logf("all %d sparse blocks are there", n)
}
