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
	for _, tt := range synced {
		t.Run(tt.name(), func(t *testing.T) {
			lab.Need(t)
			s := newSite(t, 0, "iwarp://10.0.0.1:7204", 384<<20)
			if !lab.Inside() {
				powerCuts(t, s)
				return
			}
			tt.run(t, s.listen, func() records { return syncRecords(t, records{}) })
		})
	}
}

// TestFsyncOverTargetKills does the same with a target that is killed, and starts again.
func TestFsyncOverTargetKills(t *testing.T) {
	g := lab.Guest{Setup: []string{"devdax", "nbd", "ublk"}, NVDIMM: lab.Memory(t, 384<<20)}
	lab.Run(t, g, func(t *testing.T) {
		args := []string{"--listen", "iwarp://127.0.0.1:7204", "--region", "disk=" + dax}
		for _, tt := range synced {
			t.Run(tt.name(), func(t *testing.T) {
				sh(t, "pmnbd-target region create --force disk "+dax+"; rm -f /dev/shm/pmnbd*/* /run/pmnbd.log")
				target := serve(t, "pmnbd-target", args...)
				tt.run(t, target.ready[0], func() records {
					type result struct {
						records
						error
					}
					ended, more := make(chan result, 1), make(chan int, 100)
					go func() {
						n, err := trySyncRecords(records{}, more)
						ended <- result{n, err}
					}()
					for range cuts {
						<-more
						target.kill()
						target = serve(t, "pmnbd-target", args...)
						for len(more) > 0 { // those from before
							<-more
						}
					}
					<-more
					require.NoError(t, os.WriteFile("/out/"+enough, nil, 0o600))
					r := <-ended
					require.NoError(t, r.error)
					return r.records
				})
				target.stop()
			})
		}
	})
}

// synced are the filesystems and devices on which records are synced.
var synced = []onDisk{{filesystems[0], byAttach}, {xfs, byAttach}, {filesystems[0], byUblk}, {xfs, byUblk}}

// onDisk is a filesystem on a block device.
type onDisk struct {
	fs filesystem
	on way
}

func (d onDisk) name() string { return d.fs.name + " on " + filepath.Base(d.on.path) }

// run makes the filesystem, has the records written while the target goes away and comes back, and
// checks the filesystem and the records, these with another pmnbd too.
func (d onDisk) run(t *testing.T, target string, write func() records) {
	plug, unplug := d.on.attach+"\n", d.on.detach+"\n"
	initiator := initiate(t, target)
	sh(t, plug+d.fs.mkfs+" "+d.on.path+"\n"+d.on.mount())
	synced := write()
	log, err := os.ReadFile("/run/pmnbd.log")
	require.NoError(t, err)
	require.GreaterOrEqual(t, bytes.Count(log, []byte("the session goes on")), cuts)
	sh(t, umount+d.fs.fsck+" "+d.on.path+"\n"+unplug)
	initiator.stop()

	// This guest has nothing of what was written: all of it comes from the target.
	initiator = initiate(t, target)
	sh(t, plug+d.on.mount())
	checkRecords(t, synced)
	sh(t, umount+unplug+d.on.noErrors())
	initiator.stop()
}

// Pieces of scripts.
const (
	disk     = " /dev/nbd0\n"
	plug     = "pmnbd attach disk /dev/nbd0\n"
	unplug   = "pmnbd detach /dev/nbd0\n"
	noErrors = "! dmesg | grep 'error.*nbd0'\n"
)

// cuts is how many times the target loses its power.
const cuts = 2

// enough is a file that both sides see, in the guest's directory /out. Once it exists the
// writers stop, and the guest removes it.
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

// records is how many records each file has.
type records [recordFiles]int

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

// syncRecords writes all files, one writer for each, behind the records that they have, until
// enough exists or all writers have failed. Whenever the files have another hundred synced records
// together, it prints how many. It returns how many each file has now.
func syncRecords(t *testing.T, synced records) records {
	synced, err := trySyncRecords(synced, nil)
	require.NoError(t, err)
	return synced
}

// trySyncRecords is syncRecords for a goroutine of its own. What it prints also goes to more, if that
// is not nil.
func trySyncRecords(synced records, more chan<- int) (records, error) {
	var writers sync.WaitGroup
	var total atomic.Int64
	var errs [recordFiles]error
	for _, n := range synced {
		total.Add(int64(n))
	}
	for i := range recordFiles {
		writers.Go(func() {
			synced[i], errs[i] = appendRecords(i, synced[i], func() {
				if n := total.Add(1); n%100 == 0 {
					fmt.Printf("synced %d\n", n)
					if more != nil {
						more <- int(n)
					}
				}
			})
		})
	}
	writers.Wait()
	return synced, errors.Join(append(errs[:], os.Remove("/out/"+enough))...)
}

// appendRecords appends to file i, which has from records, calls fsync after each record, and then
// did. It returns how many records the file has now.
func appendRecords(i, from int, did func()) (synced int, err error) {
	synced = from
	f, err := os.OpenFile(recordFile(i), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return synced, err
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
func checkRecords(t *testing.T, synced records) {
	for i, count := range synced {
		f, err := os.Open(recordFile(i))
		require.NoError(t, err)
		for n := range count {
			want := record(i, n)
			got := make([]byte, len(want))
			_, err := io.ReadFull(f, got)
			require.NoError(t, err, "%s: record %d of %d", f.Name(), n, count)
			require.True(t, bytes.Equal(want, got), "%s: record %d of %d is wrong", f.Name(), n, count)
		}
		_, err = f.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, f.Name())
		require.NoError(t, f.Close())
		require.NotZero(t, count)
	}
	t.Logf("synced records, all there: %v", synced)
}
