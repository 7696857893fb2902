package lab_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// TestFsyncOverTargetPowerCuts writes and syncs files, record by record, on another machine's
// memory. That machine loses its power in the middle, twice, and boots again. No call may fail,
// the filesystem must be whole, and every synced record must be there.
func TestFsyncOverTargetPowerCuts(t *testing.T) {
	for _, tt := range []struct{ name, mkfs, fsck string }{
		{"ext4", "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0", "e2fsck -fn"},
		{"xfs", "mkfs.xfs -q", "xfs_repair -n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab.Need(t)
			s := newSite(t, "iwarp://10.0.0.1:7204", 384<<20)
			if !lab.Inside() {
				powerCuts(t, s)
				return
			}
			const attach, detach = "pmnbd attach disk /dev/nbd0\n", "pmnbd detach /dev/nbd0\n"
			initiator := initiate(t, s.listen)
			sh(t, attach+tt.mkfs+" /dev/nbd0\n"+mount)
			synced := syncRecords(t)
			log, err := os.ReadFile("/run/pmnbd.log")
			require.NoError(t, err)
			require.GreaterOrEqual(t, bytes.Count(log, []byte("the session goes on")), cuts)
			sh(t, umount+tt.fsck+" /dev/nbd0\n"+detach)
			initiator.stop()

			// This guest has nothing of what was written: all of it comes from the target.
			initiate(t, s.listen)
			sh(t, attach+mount)
			checkRecords(t, synced)
			sh(t, umount+detach+"! dmesg | grep 'error.*nbd0'")
		})
	}
}

// cuts is how many times the target loses its power.
const cuts = 2

// enough is a file that both sides see, in the guest's directory /out. Once it exists the
// writers stop.
const enough = "enough"

// powerCuts runs the test in the initiator's machine and cuts the target's power each time
// another hundred records are synced. The last hundred follow the last cut.
func powerCuts(t *testing.T, s *site) {
	target := s.serve(t, true)
	m := lab.Start(t, s.initiator)
	for cut := 0; ; cut++ {
		n, _ := strconv.Atoi(last(m.Log(), "synced ")) // 0: none yet
		require.NoError(t, m.WaitFor(t.Context(), fmt.Sprintf("synced %d\n", n+100)))
		if cut == cuts {
			break
		}
		target.Kill()
		target = s.serve(t, false)
	}
	require.NoError(t, os.WriteFile(filepath.Join(m.Out, enough), nil, 0o600))
	lab.Finish(t, m)
}

const recordFiles = 4

func recordFile(i int) string { return fmt.Sprintf("/mnt/disk/records%d", i) }

// record returns record n of file i: its length, file and number, then noise that these
// determine, like a long checksum. The lengths make most records begin and end in the middle of
// a block.
func record(i, n int) []byte {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(i))
	binary.LittleEndian.PutUint64(seed[8:], uint64(n))
	noise := rand.NewChaCha8(seed)
	b := make([]byte, 24+noise.Uint64()%8192)
	binary.LittleEndian.PutUint64(b, uint64(len(b)))
	copy(b[8:], seed[:16])
	_, _ = noise.Read(b[24:]) // it never fails
	return b
}

// syncRecords writes all files, one writer for each, until enough exists or all writers have
// failed. Every hundred records it prints how many are synced in all. It returns how many were
// synced of each file.
func syncRecords(t *testing.T) (synced [recordFiles]int) {
	var writers sync.WaitGroup
	var total atomic.Int64
	var errs [recordFiles]error
	for i := range recordFiles {
		writers.Go(func() {
			synced[i], errs[i] = appendRecords(i, func() {
				if n := total.Add(1); n%100 == 0 {
					fmt.Printf("synced %d\n", n)
				}
			})
		})
	}
	writers.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	return synced
}

// appendRecords appends to file i, calls fsync after each record, and then did.
func appendRecords(i int, did func()) (synced int, err error) {
	f, err := os.OpenFile(recordFile(i), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for {
		if _, err := os.Stat("/out/" + enough); !errors.Is(err, fs.ErrNotExist) {
			return synced, err
		}
		if _, err := f.Write(record(i, synced)); err != nil {
			return synced, err
		}
		if err := f.Sync(); err != nil {
			return synced, err
		}
		synced++
		did()
	}
}

// checkRecords checks that each file holds the records that were synced, and nothing else.
func checkRecords(t *testing.T, synced [recordFiles]int) {
	for i, records := range synced {
		f, err := os.Open(recordFile(i))
		require.NoError(t, err)
		for n := range records {
			want := record(i, n)
			got := make([]byte, len(want))
			_, err := io.ReadFull(f, got)
			require.NoError(t, err, "%s: record %d of %d", f.Name(), n, records)
			require.True(t, bytes.Equal(want, got), "%s: record %d of %d is wrong", f.Name(), n, records)
		}
		_, err = f.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, f.Name())
		require.NoError(t, f.Close())
		require.NotZero(t, records)
	}
	t.Logf("synced records, all there: %v", synced)
}
