package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// soakRounds returns few, or as many rounds as fit in $PMNBD_SOAK seconds.
func soakRounds(t *testing.T, few int, each time.Duration) int {
	t.Helper()
	s := os.Getenv("PMNBD_SOAK")
	if s == "" {
		return few
	}
	seconds, err := strconv.Atoi(s)
	require.NoError(t, err)
	return max(few, int(time.Duration(seconds)*time.Second/each))
}

// TestTargetIsKilledAgainAndAgain kills the target with SIGKILL again and again and starts it
// at once or after a while. It logs how long the client waits once the target is back.
func TestTargetIsKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	const every = time.Second
	rounds := soakRounds(t, 4, every*3/2)
	r := newRig(t, 3)
	p := r.pulse(t)
	var pauses []time.Duration
	var files, memory [2]int // of the initiator, after the first round and after the last
	r.during(t, func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := range rounds {
			r.target.kill(t)
			if i%2 == 1 {
				<-tick.C // the target is away for a while
			}
			r.serve(t)
			pauses = append(pauses, p.after(t, time.Now()))
			if i == 0 {
				files[0], memory[0] = r.pmnbd.openFiles(t), r.pmnbd.procStatus(t, "VmRSS")
			}
			<-tick.C
		}
	})
	files[1], memory[1] = r.pmnbd.openFiles(t), r.pmnbd.procStatus(t, "VmRSS")
	slices.Sort(pauses)
	t.Logf("%d kills; once the target was back the client waited %v (median), %v at most", rounds, pauses[len(pauses)/2], pauses[len(pauses)-1])
	t.Logf("the initiator has %d descriptors and %d MiB; at first it had %d and %d", files[1], memory[1]/mib, files[0], memory[0]/mib)
	r.verify(t)
	// A connection may be opening or closing.
	require.LessOrEqual(t, files[1], files[0]+2, "descriptors of the initiator")
	require.LessOrEqual(t, memory[1], memory[0]+extraMemory, "KiB of the initiator")
	require.NotContains(t, r.pmnbd.stderr.String(), `"level":"error"`)
	r.stop(t)
}

// TestTargetStandsStill stops a target for longer than the lease. It must still know its owner.
func TestTargetStandsStill(t *testing.T) {
	t.Parallel() // it mostly waits
	r := newRig(t, 1)
	r.during(t, func() {
		r.target.signal(t, syscall.SIGSTOP)
		r.pmnbd.waitLog(t, "the session is interrupted")
		r.target.signal(t, syscall.SIGCONT)
		r.roundTrip(t)
	})
	require.Greater(t, r.inspect(t, r.path).Epoch, uint64(2))
	r.verify(t)
	r.stop(t)
}

// TestInitiatorStandsStill stops an initiator for longer than its lease. If nobody else came it
// is still the owner.
func TestInitiatorStandsStill(t *testing.T) {
	t.Parallel() // it mostly waits
	r := newRig(t, 1)
	require.NoError(t, r.loads[0].run(100))
	r.pmnbd.signal(t, syscall.SIGSTOP)
	r.busyUntilTheLeaseEnds(t)
	r.pmnbd.signal(t, syscall.SIGCONT)
	require.NoError(t, r.loads[0].run(100))
	r.verify(t)
	r.stop(t)
}

// busyUntilTheLeaseEnds waits until the lease of the target's owner has run out.
func (r *rig) busyUntilTheLeaseEnds(t *testing.T) {
	t.Helper()
	control := fmt.Sprintf("%starget-%d.sock", controls(r.home), r.target.cmd.Process.Pid)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	giveUp := time.After(outer)
	for {
		select {
		case <-tick.C:
		case <-giveUp:
			require.FailNow(t, "the lease does not end")
		}
		s := statusOf[targetStatus](t, r.host, "pmnbd-target", "status", "--control", control)
		if s[0].Regions[0].Lease <= 0 {
			return
		}
	}
}

// TestOutOfDescriptors leaves the target no descriptor to spare. It accepts no connection then
// and its existing ones go on. It accepts connections again once it has descriptors.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	limit := func(n int) {
		t.Helper()
		var files unix.Rlimit
		require.NoError(t, unix.Prlimit(r.target.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &files))
		files.Cur = uint64(n)
		require.NoError(t, unix.Prlimit(r.target.cmd.Process.Pid, unix.RLIMIT_NOFILE, &files, nil))
	}
	r.during(t, func() {
		limit(r.target.openFiles(t))
		strangers := []interface{ Close() error }{}
		for range 20 {
			strangers = append(strangers, dialTCP(t, r.uri[len("iwarp://"):])) // the kernel accepts them
		}
		r.roundTrip(t)
		r.proxy.Reset() // the rig's connections come back only in the place of the old ones, or later
		for _, c := range strangers {
			require.NoError(t, c.Close())
		}
		limit(1 << 10)
		r.roundTrip(t)
	})
	r.verify(t)
	r.stop(t)
}
