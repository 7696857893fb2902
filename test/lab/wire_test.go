package lab_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/test/lab"
)

// Two machines. The target's power is cut while the initiator writes and flushes; it
// boots again, and what was flushed is there.
func TestTargetPowerCut(t *testing.T) {
	lab.Need(t)
	for _, tt := range []struct {
		name, listen string
		device       []string
	}{
		{"iwarp in Go", "iwarp://10.0.0.1:7204", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setup := append([]string{"wire"}, tt.device...)
			a, b := lab.Wire(t.TempDir())
			target := lab.Guest{Setup: append(setup, "devdax"), NVDIMM: lab.Memory(t, 64<<20), Wire: a}
			initiator := lab.Guest{Setup: append(setup, "nbd"), Wire: b}
			serving := func(before string) *lab.Machine {
				target.Command = []string{"sh", "-c", before + " exec pmnbd-target serve --insecure-no-auth --listen " + tt.listen + " --region disk=" + dax}
				m := lab.Start(t, target)
				require.NoError(t, m.WaitFor(t.Context(), "ready "))
				return m
			}
			t.Run("written", func(t *testing.T) {
				if lab.Inside() {
					initiate(t, tt.listen)
					sh(t, attach)
					writeUntilError(t)
					return
				}
				at := serving("pmnbd-target region create disk " + dax + " &&")
				m := lab.Start(t, initiator)
				require.NoError(t, m.WaitFor(t.Context(), "flushed 100\n"))
				at.Kill()
				lab.Finish(t, m)
				log := m.Log()
				_, last, _ := strings.Cut(log[strings.LastIndex(log, "\nflushed "):], " ")
				last, _, _ = strings.Cut(last, "\n")
				initiator.Env = []string{"FLUSHED=" + last}
			})
			t.Run("read", func(t *testing.T) {
				if lab.Inside() {
					initiate(t, tt.listen)
					sh(t, attach)
					readFlushed(t)
					return
				}
				if initiator.Env == nil {
					t.Skip("nothing was written")
				}
				serving("")
				lab.Finish(t, lab.Start(t, initiator))
			})
		})
	}
}

const blockSize = 4096

// openDisk opens the block device without the page cache, and makes the memory that
// this takes: one block.
func openDisk(t *testing.T) (*os.File, []byte) {
	t.Helper()
	f, err := os.OpenFile("/dev/nbd0", os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	block, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(block)) })
	return f, block
}

// stamp fills block with n.
func stamp(block []byte, n int) {
	for i := 0; i < len(block); i += 8 {
		binary.LittleEndian.PutUint64(block[i:], uint64(n))
	}
}

// writeUntilError writes and flushes block after block, and says each time how many
// are flushed. Beside it others write into the second half of the device, and flush
// nothing. The device's failure ends it.
func writeUntilError(t *testing.T) {
	var load sync.WaitGroup
	for part := range 2 {
		f, block := openDisk(t)
		load.Go(func() {
			for n := 0; ; n++ {
				if _, err := f.WriteAt(block, 32<<20+int64(2*(n%1000)+part)*blockSize); err != nil {
					return
				}
			}
		})
	}
	f, block := openDisk(t)
	flushed := 0
	var err error
	for err == nil {
		stamp(block, flushed)
		if _, err = f.WriteAt(block, int64(flushed)*blockSize); err == nil {
			err = unix.Fdatasync(int(f.Fd()))
		}
		if err == nil {
			flushed++
			fmt.Printf("flushed %d\n", flushed)
		}
	}
	load.Wait()
	require.ErrorIs(t, err, syscall.EIO)
}

// readFlushed checks what writeUntilError has flushed.
func readFlushed(t *testing.T) {
	flushed, err := strconv.Atoi(os.Getenv("FLUSHED"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, flushed, 100)
	f, block := openDisk(t)
	want := bytes.Clone(block)
	for n := range flushed {
		_, err := f.ReadAt(block, int64(n)*blockSize)
		require.NoError(t, err)
		stamp(want, n)
		require.Equal(t, want, block, "block %d of %d", n, flushed)
	}
	t.Logf("%d blocks that were flushed are there", flushed)
}
