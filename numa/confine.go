package numa

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// errAffinity means that an operator's taskset or cpuset excludes every CPU that was asked
// for.
var errAffinity = errors.New("this process may use none of its CPUs")

// Confine keeps every thread of the process, including future ones, on those of cpus that the
// process may use. If it may use none of them, Confine fails and changes nothing.
//
// Call it before the process touches its memory: the kernel takes memory from the node of
// the thread that touches it first (numa(7)). Confine works on the whole process because
// goroutines move between threads, and because a goroutine that is locked to a thread pays
// for a switch of threads with every wake-up.
func Confine(cpus unix.CPUSet) error {
	var now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &now); err != nil {
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	for i := range cpus {
		cpus[i] &= now[i]
	}
	if cpus.Count() == 0 {
		return errAffinity
	}
	// A thread inherits the affinity of the thread that makes it. Once every existing
	// thread has it, every new one will.
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
			if err := unix.SchedSetaffinity(tid, &cpus); err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: the thread has ended
				return fmt.Errorf("sched_setaffinity: %w", err)
			}
			done[tid] = true
		}
		if len(done) == before {
			return nil
		}
	}
}
