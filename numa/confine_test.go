package numa

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Confine cannot be undone, so the test runs it in a process of its own.
func TestConfine(t *testing.T) {
	const child = "PMNBD_TEST_CONFINE"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestConfine$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	var all, one, none unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &all))
	last := 0
	for c := range maxCPU {
		if all.IsSet(c) {
			last = c
		} else {
			none.Set(c)
		}
	}
	require.ErrorIs(t, Confine(none), errAffinity)
	one.Set(last)
	asked := none
	asked.Set(last)
	require.NoError(t, Confine(asked), "what an operator took away stays away")

	// Existing threads, and new ones.
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			runtime.LockOSThread() // and never unlock: each goroutine has a thread of its own
			var now unix.CPUSet
			require.NoError(t, unix.SchedGetaffinity(0, &now))
			require.Equal(t, one, now)
		})
	}
	tasks, err := filepath.Glob("/proc/self/task/*")
	require.NoError(t, err)
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		require.NoError(t, err)
		var now unix.CPUSet
		if err := unix.SchedGetaffinity(tid, &now); errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		require.NoError(t, err)
		require.Equal(t, one, now, "thread %d", tid)
	}
	running.Wait()
}
