package lab_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/test/lab"
)

const (
	reloadFile = "/run/pmnbd.toml"
	otherDisk  = "/dev/ublkb1"
)

// TestReloadUnderLoad takes an export out of the file, and reloads, while somebody writes to a block device of the
// export. The reload fails and the writer notices nothing. A detach ends the writer; then a reload removes the export,
// and another one adds it again, with everything that was synced. A writer on another export goes on all the time.
func TestReloadUnderLoad(t *testing.T) {
	g := lab.Guest{Setup: []string{"devdax", "nbd", "ublk"}, NVDIMM: lab.Memory(t, 128<<20)}
	lab.Run(t, g, func(t *testing.T) {
		sh(t, "pmnbd-target region create disk "+dax)
		target := serve(t, "pmnbd-target", "--listen", "iwarp://127.0.0.1:7204", "--region", "disk="+dax, "--region", "other=/run/other.region,size=64M", "--allow-volatile")
		exports := func(names ...string) {
			text := fmt.Sprintf("allow-volatile = true\nlisten = [\"unix:%s\"]\n", socket)
			for _, name := range names {
				text += fmt.Sprintf("[[export]]\ntarget = %q\n", target.ready[0]+"/"+name)
			}
			require.NoError(t, os.WriteFile(reloadFile, []byte(text), 0o600))
		}
		exports("disk", "other")
		initiator := serve(t, "pmnbd", "--config", reloadFile)
		sh(t, "pmnbd attach --ublk other "+otherDisk)
		other := newWriter(t, otherDisk)
		for _, tt := range []struct {
			way
			refusal string
		}{
			{byAttach, `export "disk" has clients (1): detach or unmount it first`},
			{byUblk, `export "disk" is ` + ublkDisk + `: detach that first`},
		} {
			t.Run(tt.name, func(t *testing.T) {
				sh(t, tt.attach)
				w := newWriter(t, tt.path)
				w.goesOn()
				exports("other")
				require.Error(t, try("pmnbd reload 2>/run/refused"))
				said, err := os.ReadFile("/run/refused")
				require.NoError(t, err)
				require.Contains(t, string(said), tt.refusal)
				w.goesOn()
				other.goesOn()
				sh(t, "pmnbd status disk | grep -q '^export disk: open'")

				sh(t, tt.detach)
				<-w.ended
				require.Error(t, w.err, "its device is gone")
				sh(t, "until pmnbd reload >/run/reload; do sleep 0.05; done; grep 'removed disk' /run/reload; ! pmnbd status disk")
				other.goesOn()
				exports("disk", "other")
				sh(t, "pmnbd reload | grep 'added disk'\n"+tt.attach)
				w.check()
				sh(t, tt.detach)
			})
		}
		other.goesOn()
		other.end()
		<-other.ended
		require.NoError(t, other.err)
		other.check()
		sh(t, "pmnbd detach "+otherDisk+"\n"+way{path: otherDisk}.noErrors())
		initiator.stop()
		target.stop()
	})
}

// writerBlocks is the part of a device that a writer fills, again and again, in blocks.
const writerBlocks = 4 << 10

// A writer writes blocks to a block device and syncs each, until it is told to end or gets an error.
type writer struct {
	t      *testing.T
	path   string
	end    func()
	enough chan struct{}
	ended  chan struct{} // then err says why
	err    error

	mu     sync.Mutex
	more   *sync.Cond
	synced int // blocks
	over   bool
}

func newWriter(t *testing.T, path string) *writer {
	t.Helper()
	w := &writer{t: t, path: path, enough: make(chan struct{}), ended: make(chan struct{})}
	w.more = sync.NewCond(&w.mu)
	w.end = sync.OnceFunc(func() { close(w.enough) })
	t.Cleanup(w.end)
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	block, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	go func() {
		w.err = errors.Join(w.run(f, block), f.Close(), unix.Munmap(block))
		w.mu.Lock()
		w.over = true
		w.more.Broadcast()
		w.mu.Unlock()
		close(w.ended)
	}()
	return w
}

func (w *writer) run(f *os.File, block []byte) error {
	for n := 0; ; n++ {
		select {
		case <-w.enough:
			return nil
		default:
		}
		stamp(block, n)
		if _, err := f.WriteAt(block, int64(n%writerBlocks)*blockSize); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
		w.mu.Lock()
		w.synced = n + 1
		w.more.Broadcast()
		w.mu.Unlock()
	}
}

// goesOn waits until another hundred blocks are synced.
func (w *writer) goesOn() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for until := w.synced + 100; w.synced < until && !w.over; {
		w.more.Wait()
	}
	require.False(w.t, w.over, "the writer on %s has ended", w.path)
}

// check reads back what was synced. The block that came behind it may be there or not.
func (w *writer) check() {
	w.t.Helper()
	f, err := os.OpenFile(w.path, os.O_RDONLY|unix.O_DIRECT, 0)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, f.Close()) }()
	block := aligned(w.t)
	want := bytes.Clone(block)
	for n := max(0, w.synced-writerBlocks); n < w.synced; n++ {
		_, err := f.ReadAt(block, int64(n%writerBlocks)*blockSize)
		require.NoError(w.t, err)
		stamp(want, n)
		if n+writerBlocks == w.synced && !bytes.Equal(want, block) {
			stamp(want, w.synced) // it was under way
		}
		require.True(w.t, bytes.Equal(want, block), "%s: block %d of %d", w.path, n, w.synced)
	}
	w.t.Logf("%s: all %d synced blocks are there", strings.TrimPrefix(w.path, "/dev/"), w.synced)
}
