package numa

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What Confine does cannot be undone, so that a process of its own does it.
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
	require.ErrorIs(t, Confine(none), ErrAffinity)
	one.Set(last)
	asked := none
	asked.Set(last)
	require.NoError(t, Confine(asked), "what an operator took away stays away")

	// Threads that were there, and threads that come.
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			runtime.LockOSThread() // not unlocked: each has a thread of its own
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
			continue // it ended
		}
		require.NoError(t, err)
		require.Equal(t, one, now, "thread %d", tid)
	}
	running.Wait()
}

func TestPlace(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.ErrorContains(t, Place(mem, None), "no such node")
	require.ErrorContains(t, Place(mem, maxNodes), "no such node")
	require.NoError(t, Place(nil, 0))
	nodes, err := Nodes(Sysfs)
	require.NoError(t, err)
	if len(nodes) == 0 {
		t.Skip("the kernel has no NUMA nodes")
	}
	err = Place(mem, nodes[0])
	if errors.Is(err, unix.EPERM) {
		t.Skip("a filter of system calls forbids mbind(2): CAP_SYS_NICE is missing")
	}
	require.NoError(t, err)
	mem[0] = 1
	maps, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		t.Skipf("placed, but nothing shows it: %v", err)
	}
	require.True(t, strings.Contains(string(maps), fmt.Sprintf(" prefer:%d ", nodes[0])), "%s", maps)
}
