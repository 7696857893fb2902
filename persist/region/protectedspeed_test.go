package region

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
)

// BenchmarkSaveAndLoad compares a save and a load of 1 GiB with dd on the same disk, in
// alternating rounds. PMNBD_SAVE_DIR names a directory there, and each of -benchtime's rounds
// writes and reads 2 GiB. PMNBD_TEST_SHM names the memory's directory, which may be on hugetlbfs.
func BenchmarkSaveAndLoad(b *testing.B) {
	save, err := os.MkdirTemp(os.Getenv("PMNBD_SAVE_DIR"), "save")
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(save)) })
	memory := testhost.Memory(b)
	path, other := filepath.Join(memory, "r"), filepath.Join(save, "dd")
	const size = 1<<30 - DataOffset
	_, err = Create(path, CreateOptions{Name: "r", Size: size, Class: persist.ClassProtected, Save: save})
	require.NoError(b, err)
	write := func(more string) time.Duration {
		return dd(b, "if="+path, "of="+other, "oflag=direct", "conv=fdatasync"+more)
	}
	write("") // like the image it has all its blocks when the rounds begin
	var saves, loads, writes, reads []time.Duration
	ourSave := func() {
		r, err := Open(path, OpenOptions{Name: "r", Save: save})
		require.NoError(b, err)
		require.NoError(b, r.Update(func(sb *Superblock) error { sb.Epoch++; return nil }))
		random(r.Data(), r.Superblock().Epoch)
		saved, err := r.Save(context.Background())
		require.NoError(b, err)
		require.EqualValues(b, 1<<30, saved.Bytes)
		saves = append(saves, saved.Took)
		require.NoError(b, r.Close())
	}
	ourLoad := func() {
		require.NoError(b, os.Remove(path))
		r, err := Open(path, OpenOptions{Name: "r", Save: save})
		require.NoError(b, err)
		p, _ := r.Protection()
		require.True(b, p.Loaded)
		loads = append(loads, p.LoadTook)
		require.NoError(b, r.Close())
	}
	theirSave := func() { writes = append(writes, write(",notrunc")) }
	theirLoad := func() {
		reads = append(reads, dd(b, "if="+ImagePath(save, "r"), "skip=1", "of=/dev/null", "iflag=direct"))
	}
	saving, loading := []func(){ourSave, theirSave}, []func(){ourLoad, theirLoad}
	for round := range max(b.N, 3) { // a disk may be slower or faster after a burst: take turns
		for _, all := range [][]func(){saving, loading} {
			for i := range all {
				all[(round+i)%len(all)]()
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	report(b, "save", saves, writes)
	report(b, "load", loads, reads)
}

// dd copies 1 GiB.
func dd(b *testing.B, args ...string) time.Duration {
	began := time.Now()
	out, err := exec.Command("dd", append(args, "bs=2M", "count=512")...).CombinedOutput()
	require.NoError(b, err, "%s", out)
	return time.Since(began)
}

// report shows the medians of ours and of dd's times for 1 GiB, and our speed divided by dd's.
func report(b *testing.B, what string, ours, theirs []time.Duration) {
	slices.Sort(ours)
	slices.Sort(theirs)
	our, their := ours[len(ours)/2].Seconds(), theirs[len(theirs)/2].Seconds()
	b.ReportMetric(1<<30/1e6/our, what+"-MB/s")
	b.ReportMetric(1<<30/1e6/their, what+"-dd-MB/s")
	b.ReportMetric(their/our, what+"/dd")
	b.Log(what, ours, "dd", theirs)
}
