package numa

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrAffinity means that no CPU of those asked for is one that the process may use:
// an operator's taskset or cpuset has decided otherwise.
var ErrAffinity = errors.New("none of its CPUs may be used by this process")

// Confine keeps every thread of the process, also those to come, on cpus, as far as
// the process may use them already. It is what can be done honestly in Go: a
// goroutine that polls moves between threads, and one that is locked to a thread pays
// for a switch of threads with every wake-up. Memory follows: the kernel takes it from
// the node of the thread that touches it first (numa(7)). Call it before memory is
// touched.
func Confine(cpus unix.CPUSet) error {
	var now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &now); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	for i := range cpus {
		cpus[i] &= now[i]
	}
	if cpus.Count() == 0 {
		return ErrAffinity
	}
	// A thread inherits the affinity of the one that makes it. When all that there
	// are have it, so will all others.
	for done := map[int]bool{}; ; {
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		before := len(done)
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || done[tid] {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &cpus); err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: it ended
				return fmt.Errorf("sched_setaffinity: %w", err)
			}
			done[tid] = true
		}
		if len(done) == before {
			return nil
		}
	}
}
