package lab_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// Where a guest has a region of class protected, and its image.
const (
	protectedMemory = "/dev/shm/disk"
	protectedSave   = "/mnt/save"
)

// A cutting says when the power goes, and what the next boot may find.
type cutting string

const (
	// unsaved: nobody saves. The region is lost.
	unsaved cutting = "unsaved"
	// signalled: somewhere between the signal and a while after the save.
	signalled cutting = "signalled"
	// saved: after the target has said that it has saved. The region is there.
	saved cutting = "saved"
	// resumed: after a save, somebody resumed, and more was synced. The region is lost.
	resumed cutting = "resumed"
)

// protectedCuts is the order of the cuts. A region that was saved is most of what matters.
var protectedCuts = []cutting{
	saved, signalled, signalled, resumed, signalled, saved, unsaved, signalled, signalled, signalled, saved, resumed, signalled, unsaved, signalled, signalled,
}

// A finding is what a boot found, and what was done until its power went. It is all that the host
// knows of a guest.
type finding struct {
	Lost     bool
	Contents string // the contents id
	Losses   int
	Epoch    uint64
	Synced   int // records whose fsync had returned
}

// TestProtectedPowerCuts cuts the power of a machine with a region of class protected while files are
// written and synced there: without a save, after the signal that begins one, during and after it.
// The next boot finds every record whose fsync had returned, or it finds the region lost: empty, with
// other contents, and told. It never finds older records. A save that was announced is never lost.
func TestProtectedPowerCuts(t *testing.T) {
	lab.Need(t)
	if lab.Inside() {
		protectedGuest(t)
		return
	}
	disk := lab.Memory(t, 256<<20)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	was, count := finding{}, map[string]int{}
	for i, how := range append(protectedCuts, "") { // the last boot looks
		more := 5 + rng.IntN(40)
		state, err := json.Marshal(was)
		require.NoError(t, err)
		m := lab.Start(t, lab.Guest{Setup: []string{"fsdax", "nbd"}, NVDIMM: disk, Env: []string{
			"PMNBD_LAB_CUT=" + string(how), "PMNBD_LAB_MORE=" + strconv.Itoa(more), "PMNBD_LAB_WAS=" + string(state),
		}})
		if how == "" {
			lab.Finish(t, m)
		} else {
			cutProtected(t, m, how, rng)
		}
		now := found(t, m)
		if i > 0 {
			before := protectedCuts[i-1]
			what := fmt.Sprintf("cut %d, %s: lost %v, %d of %d records, epoch %d", i, before, now.Lost, now.Synced, was.Synced, now.Epoch)
			t.Log(what)
			switch before {
			case unsaved, resumed:
				require.True(t, now.Lost, what)
			case saved:
				require.False(t, now.Lost, what)
			}
			count[fmt.Sprintf("%s, lost %v", before, now.Lost)]++
		}
		was = now
		if n, err := strconv.Atoi(last(m.Log(), "synced ")); err == nil {
			was.Synced = n
		}
		m.Close()
	}
	t.Logf("%d cuts, none with old contents: %v", len(protectedCuts), count)
}

// cutProtected waits until the guest has come to where its power goes, and a random while.
func cutProtected(t *testing.T, m *lab.Machine, how cutting, rng *rand.Rand) {
	t.Helper()
	mark := map[cutting]string{unsaved: "cut: written\n", signalled: "cut: signalled\n", saved: "region saved", resumed: "cut: resumed\n"}[how]
	err := m.WaitFor(t.Context(), mark)
	if err != nil {
		t.Log(m.Log())
	}
	require.NoError(t, err)
	span := 200 * time.Millisecond
	if how == signalled {
		span += 2 * time.Second // a save takes so long
	}
	select { // no event: the power goes anywhere in what the guest does now
	case <-time.After(time.Duration(rng.Int64N(int64(span)))):
	case <-t.Context().Done():
	}
	m.Kill()
}

// found returns what the guest said that it found.
func found(t *testing.T, m *lab.Machine) (f finding) {
	t.Helper()
	line := last(m.Log(), "found ")
	require.NotEmpty(t, line, m.Log())
	require.NoError(t, json.Unmarshal([]byte(line), &f))
	return f
}

// protectedGuest looks at what the last boot left, and writes on until its power goes.
func protectedGuest(t *testing.T) {
	var was finding
	require.NoError(t, json.Unmarshal([]byte(os.Getenv("PMNBD_LAB_WAS")), &was))
	more, err := strconv.Atoi(os.Getenv("PMNBD_LAB_MORE"))
	require.NoError(t, err)
	first := was == finding{}
	// As an ordinary disk: without DAX.
	sh(t, "umount /mnt/pmem; mkdir -p "+protectedSave+"; mount /dev/pmem0 "+protectedSave)
	if first {
		sh(t, "pmnbd-target region create disk "+protectedMemory+" --class protected --save "+protectedSave+" --size 64M")
	}
	const at = "iwarp://127.0.0.1:7204"
	target := serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", at, "--region", "disk="+protectedMemory+",save="+protectedSave)
	now := inspectProtected(t)
	now.Lost = now.Losses > was.Losses
	if !first {
		require.Equal(t, now.Lost, now.Contents != was.Contents, "a loss has another contents id, and nothing else has")
		require.LessOrEqual(t, now.Losses, was.Losses+1)
		require.GreaterOrEqual(t, now.Epoch, was.Epoch)
	}
	initiate(t, at, "--accept-loss")
	sh(t, attach)
	if first || now.Lost {
		sh(t, "cmp -n $((64 << 20)) /dev/nbd0 /dev/zero\nmkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0\n"+mount)
	} else {
		sh(t, mount)
		now.Synced = wholeRecords(t)
		require.GreaterOrEqual(t, now.Synced, was.Synced, "records that were synced")
	}
	line, err := json.Marshal(now)
	require.NoError(t, err)
	fmt.Printf("found %s\n", line)
	if os.Getenv("PMNBD_LAB_CUT") == "" {
		sh(t, umount+"fsck.ext4 -fn /dev/nbd0\nnbd-client -d /dev/nbd0")
		return
	}
	writeUntilCut(t, target, cutting(os.Getenv("PMNBD_LAB_CUT")), now.Synced, more)
}

// writeUntilCut appends records to those that are there, and does what how says after some.
func writeUntilCut(t *testing.T, target *server, how cutting, from, more int) {
	progress := make(chan int, 1<<16)
	go func() {
		n := from
		_, err := appendRecords(0, from, func() {
			n++
			fmt.Printf("synced %d\n", n) // the host counts it as synced when it reads this
			progress <- n
		})
		fmt.Println("the writer ends:", err)
	}()
	wait := func(n int) {
		for have := range progress {
			if have >= n {
				return
			}
		}
	}
	wait(from + more)
	if how == unsaved {
		fmt.Println("cut: written")
		select {}
	}
	require.NoError(t, target.cmd.Process.Signal(syscall.SIGPWR))
	fmt.Println("cut: signalled")
	if how == resumed {
		sh(t, "until grep -q 'region saved' /run/pmnbd-target.log; do sleep 0.05; done\npmnbd-target resume")
		before := len(progress)
		for range before + more { // some of them may be from before the save
			<-progress
		}
		fmt.Println("cut: resumed")
	}
	select {}
}

// inspectProtected returns what the region's superblock and its image say.
func inspectProtected(t *testing.T) finding {
	out, err := exec.Command("pmnbd-target", "region", "inspect", protectedMemory, "--save", protectedSave, "--json").Output()
	require.NoError(t, err)
	var v struct {
		Contents string `json:"contents_id"`
		Epoch    uint64
		Image    struct{ Losses int }
	}
	require.NoError(t, json.Unmarshal(out, &v))
	return finding{Contents: v.Contents, Losses: v.Image.Losses, Epoch: v.Epoch}
}

// wholeRecords returns how many records the file has, and cuts off what follows: a record that was
// being written.
func wholeRecords(t *testing.T) int {
	f, err := os.OpenFile(recordFile(0), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	end := int64(0)
	for n := 0; ; n++ {
		want := record(0, n)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(f, got); err != nil || !bytes.Equal(got, want) {
			require.NoError(t, f.Truncate(end))
			require.NoError(t, f.Sync())
			require.NoError(t, f.Close())
			return n
		}
		end += int64(len(want))
	}
}
