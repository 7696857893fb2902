package lab_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/test/lab"
)

// A site is two machines on a wire: the target's, which has the NVDIMM, and the initiator's.
type site struct {
	listen            string
	target, initiator lab.Guest
}

// onSites runs fn for each transport between the machines.
func onSites(t *testing.T, fn func(t *testing.T, s *site)) {
	lab.Need(t)
	for _, tt := range []struct {
		name, listen string
		device       []string
	}{
		{"iwarp in Go", "iwarp://10.0.0.1:7204", nil},
		{"rxe", "rdma://10.0.0.1:7204", []string{"rxe"}},
		{"siw", "rdma://10.0.0.1:7204", []string{"siw"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.device != nil {
				needVerbs(t)
			}
			fn(t, newSite(t, 0, tt.listen, 64<<20, tt.device...))
		})
	}
}

// newSite links two machines with the given RDMA devices by wire n. The target's has an NVDIMM of
// size bytes.
func newSite(t *testing.T, n int, listen string, size int64, devices ...string) *site {
	setup := slices.Clip(append([]string{"wire"}, devices...))
	a, b := lab.Wire(t.TempDir(), n)
	return &site{
		listen,
		lab.Guest{Setup: append(setup, "devdax"), NVDIMM: lab.Memory(t, size), Wires: []*lab.End{a}},
		lab.Guest{Setup: append(setup, "nbd", "ublk"), Wires: []*lab.End{b}},
	}
}

// serve boots the target's machine, which serves the region disk; first makes the region.
func (s *site) serve(t *testing.T, first bool) *lab.Machine {
	t.Helper()
	script := "pmnbd-target serve --insecure-no-auth --listen " + s.listen + " --region disk=" + dax
	if first {
		script = "pmnbd-target region create disk " + dax + " && " + script
	}
	g := s.target
	g.Command = []string{"sh", "-c", script}
	m := lab.Start(t, g)
	require.NoError(t, m.WaitFor(t.Context(), "ready "))
	return m
}

// last returns what follows word in the last whole line of log that begins with it.
func last(log, word string) string {
	log = log[:strings.LastIndexByte(log, '\n')+1]
	i := strings.LastIndex("\n"+log, "\n"+word)
	if i < 0 {
		return ""
	}
	line, _, _ := strings.Cut(log[i+len(word):], "\n")
	return line
}

// TestTargetPowerCut cuts the target's power while the initiator writes and flushes, and nobody
// waits for the target: the device must fail. The target boots again and must have everything
// that was flushed.
func TestTargetPowerCut(t *testing.T) {
	onSites(t, func(t *testing.T, s *site) {
		t.Run("written", func(t *testing.T) {
			if lab.Inside() {
				// Software adapters on a busy host stand still for less than this.
				initiate(t, s.listen, "--loss-timeout", "30s")
				sh(t, attach)
				require.ErrorIs(t, writeBlocks(t, math.MaxInt), syscall.EIO)
				return
			}
			target := s.serve(t, true)
			m := lab.Start(t, s.initiator)
			require.NoError(t, m.WaitFor(t.Context(), "flushed 100\n"))
			target.Kill()
			lab.Finish(t, m)
			s.initiator.Env = []string{"FLUSHED=" + last(m.Log(), "flushed ")}
		})
		t.Run("read", func(t *testing.T) {
			if lab.Inside() {
				initiate(t, s.listen, "--accept-loss")
				sh(t, attach)
				flushed, err := strconv.Atoi(os.Getenv("FLUSHED"))
				require.NoError(t, err)
				require.GreaterOrEqual(t, flushed, 100)
				readBlocks(t, flushed)
				return
			}
			if s.initiator.Env == nil {
				t.Skip("nothing was written")
			}
			s.serve(t, false)
			lab.Finish(t, lab.Start(t, s.initiator))
		})
	})
}

// TestTargetComesBack does the same with an initiator that waits. The target comes back and
// nobody notices more than a pause.
func TestTargetComesBack(t *testing.T) {
	onSites(t, func(t *testing.T, s *site) {
		if lab.Inside() {
			initiate(t, s.listen)
			sh(t, attach)
			require.NoError(t, writeBlocks(t, 300))
			readBlocks(t, 300)
			return
		}
		target := s.serve(t, true)
		m := lab.Start(t, s.initiator)
		require.NoError(t, m.WaitFor(t.Context(), "flushed 100\n"))
		target.Kill()
		s.serve(t, false)
		lab.Finish(t, m)
	})
}

const blockSize = 4096

// openDisk opens the block device without the page cache, and returns one block of memory that
// is aligned for that.
func openDisk(t *testing.T) (*os.File, []byte) {
	t.Helper()
	f, err := os.OpenFile("/dev/nbd0", os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f, aligned(t)
}

// aligned returns one block of memory that O_DIRECT takes.
func aligned(t *testing.T) []byte {
	t.Helper()
	block, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(block)) })
	return block
}

// stamp fills block with n.
func stamp(block []byte, n int) {
	for i := 0; i < len(block); i += 8 {
		binary.LittleEndian.PutUint64(block[i:], uint64(n))
	}
}

// writeBlocks writes and flushes n blocks, one after the other, and prints after each how many
// are flushed. Meanwhile others write to the second half of the device and flush nothing. An
// error ends it.
func writeBlocks(t *testing.T, n int) error {
	var load sync.WaitGroup
	done := make(chan struct{})
	for part := range 2 {
		f, block := openDisk(t)
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					if _, err := f.WriteAt(block, 32<<20+int64(2*(i%1000)+part)*blockSize); err != nil {
						return
					}
				}
			}
		})
	}
	f, block := openDisk(t)
	var err error
	for i := 0; i < n && err == nil; i++ {
		stamp(block, i)
		if _, err = f.WriteAt(block, int64(i)*blockSize); err == nil {
			err = unix.Fdatasync(int(f.Fd()))
		}
		if err == nil {
			fmt.Printf("flushed %d\n", i+1)
		}
	}
	close(done)
	load.Wait()
	return err
}

// readBlocks checks the first n blocks that writeBlocks wrote.
func readBlocks(t *testing.T, n int) {
	f, block := openDisk(t)
	want := bytes.Clone(block)
	for i := range n {
		_, err := f.ReadAt(block, int64(i)*blockSize)
		require.NoError(t, err)
		stamp(want, i)
		require.Equal(t, want, block, "block %d of %d", i, n)
	}
	t.Logf("all %d flushed blocks are there", n)
}
