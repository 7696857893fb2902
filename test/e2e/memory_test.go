package e2e

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// How much each process may hold beyond what it is configured to hold, in KiB.
const (
	mib         = 1 << 10
	extraMemory = 64 * mib
	// growth is by how much the peak of one phase may exceed that of an earlier phase. In a
	// soak a leak of one byte per request would be several times as much. What Go's collector
	// has not collected yet varies by less.
	growth = 12 * mib
)

// plainBinaries builds our binaries without the race detector, whose memory would hide theirs.
func plainBinaries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir, "pmnbd/cmd/pmnbd", "pmnbd/cmd/pmnbd-target").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// procStatus returns a number of /proc/PID/status. Memory is in KiB.
func (p *process) procStatus(t *testing.T, field string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(status), "\n"+field+":")
	require.True(t, ok, field)
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return n
}

// resetPeak restarts the peak of the resident memory (proc(5), clear_refs).
func (p *process) resetPeak(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0))
}

// ticks returns the CPU time that p has used, in hundredths of a second.
func (p *process) ticks(t *testing.T) (sum int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	require.NoError(t, err)
	for _, f := range strings.Fields(string(stat))[13:15] { // our names contain no spaces
		n, err := strconv.Atoi(f)
		require.NoError(t, err)
		sum += n
	}
	return sum
}

// TestMemory checks under mixed verified load on several connections that neither process holds
// more memory than it is configured for, and that it does not grow. With PMNBD_SOAK=seconds the
// load lasts that long, and idle processes must then use no CPU.
func TestMemory(t *testing.T) {
	const conns, regionSize, window = 4, 64 * mib, 64 * mib
	soak := 0
	if s := os.Getenv("PMNBD_SOAK"); s != "" {
		var err error
		soak, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	seed := binary.NativeEndian.Uint64(b[:])
	t.Logf("seed %d", seed)

	h := newHost(t)
	path := h.region(t, "memory", "64M")
	bin := plainBinaries(t)
	target := startCommand(t, exec.Command(filepath.Join(bin, "pmnbd-target"), "serve", "--control", controls(h.home), "--listen", "iwarp://127.0.0.1:0", "--region", "memory="+path))
	uri := target.waitReady(t)[0]
	socket := filepath.Join(h.home, "memory.sock")
	pmnbd := startCommand(t, exec.Command(filepath.Join(bin, "pmnbd"), "serve", "--control", controls(h.home), "--state-dir", h.home, "--window-dir", h.home,
		"--target", uri+"/memory", "--listen", "unix:"+socket, "--window", "64M"))
	nbd := pmnbd.waitReady(t)[0]

	var loads []*verifiedLoad
	for i := range uint64(conns) {
		loads = append(loads, newLoad(t, nbd, i*loadSize, seed))
	}
	phase := func(ops int) {
		t.Helper()
		errs := make([]error, conns)
		var all sync.WaitGroup
		for i, l := range loads {
			all.Go(func() { errs[i] = l.run(ops) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	type peaks struct{ pmnbd, target int }
	measure := func(ops int) peaks {
		t.Helper()
		pmnbd.resetPeak(t)
		target.resetPeak(t)
		phase(ops)
		p := peaks{pmnbd.procStatus(t, "VmHWM"), target.procStatus(t, "VmHWM")}
		require.LessOrEqual(t, p.pmnbd, window+extraMemory, "KiB of the initiator")
		require.LessOrEqual(t, p.target, regionSize+extraMemory, "KiB of the target")
		return p
	}

	const ops = 1500 // per connection
	phase(ops)       // after it every page and every buffer has been used
	first := measure(ops)
	end := time.Now().Add(time.Duration(soak) * time.Second)
	last, phases := measure(ops), 3
	for said := time.Now(); time.Now().Before(end); phases++ {
		last = measure(ops)
		if time.Since(said) > 20*time.Second {
			said = time.Now()
			t.Logf("%d requests: peak of the initiator %d MiB, of the target %d MiB (its region: %d)", phases*conns*ops, last.pmnbd/mib, last.target/mib, regionSize/mib)
		}
	}
	t.Logf("%d requests, all verified; peaks of the first phase and the last: initiator %d, %d MiB; target %d, %d MiB, %d of them its region",
		phases*conns*ops, first.pmnbd/mib, last.pmnbd/mib, first.target/mib, last.target/mib, regionSize/mib)
	require.LessOrEqual(t, last.pmnbd, first.pmnbd+growth, "KiB: the initiator grows")
	require.LessOrEqual(t, last.target, first.target+growth, "KiB: the target grows")

	if soak > 0 {
		idle(t, pmnbd, target)
	}
	for _, l := range loads {
		l.n.close()
	}
	pmnbd.stop(t)
	target.stop(t)
}

// idle watches processes for ten seconds without requests.
func idle(t *testing.T, ps ...*process) {
	t.Helper()
	const watched = 10 * time.Second
	const most = 5 // hundredths of a second: half a percent
	before := make([]int, len(ps))
	for i, p := range ps {
		before[i] = p.ticks(t)
	}
	<-time.After(watched) // the test measures that nothing happens
	for i, p := range ps {
		used := p.ticks(t) - before[i]
		t.Logf("%s: %d ms of CPU in %v without requests", filepath.Base(p.cmd.Path), used*10, watched)
		require.LessOrEqual(t, used, most, p.name)
	}
}
