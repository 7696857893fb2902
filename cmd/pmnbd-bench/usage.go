package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A usage is what the processes of a server have used so far.
type usage struct {
	cpu, front time.Duration  // of all of them, and of the first
	switches   map[int]uint64 // context switches, by thread
}

// used returns what the processes have used.
func used(pids []int) (u usage, err error) {
	u.switches = make(map[int]uint64)
	for i, pid := range pids {
		t, err := cpuTime(pid)
		if err != nil {
			return u, err
		}
		u.cpu += t
		if i == 0 {
			u.front = t
		}
		if err := addSwitches(u.switches, pid); err != nil {
			return u, err
		}
	}
	return u, nil
}

// switched returns the context switches since before. Threads that have ended since do not
// count: a server's threads live as long as the connections, which are still open.
func (u usage) switched(before usage) (n uint64) {
	for thread, count := range u.switches {
		n += count - before.switches[thread]
	}
	return n
}

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every
// architecture that Go runs on.
const tick = 10 * time.Millisecond

// cpuTime returns the CPU time that all threads of the process have used in user and in
// system mode, each rounded down to a tick.
func cpuTime(pid int) (sum time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the command's name in parentheses, which may hold
	// spaces and parentheses itself; utime and stime are fields 14 and 15
	// (proc(5)).
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	for _, f := range fields[11:13] {
		n, err := strconv.ParseUint(string(f), 10, 62)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// addSwitches adds the context switches of each thread of the process, its own and those
// that were forced upon it.
func addSwitches(to map[int]uint64, pid int) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, t := range threads {
		path := filepath.Join("/proc", strconv.Itoa(pid), "task", t.Name(), "status")
		status, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has just ended
		}
		if err != nil {
			return err
		}
		thread, err := strconv.Atoi(t.Name())
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for line := range bytes.Lines(status) {
			name, value, _ := bytes.Cut(line, []byte(":"))
			if !bytes.HasSuffix(name, []byte("voluntary_ctxt_switches")) {
				continue
			}
			n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			to[thread] += n
		}
	}
	return nil
}

// loadAverage returns how many threads ran or wanted to in the last minute, on average.
func loadAverage() (load float64, err error) {
	const path = "/proc/loadavg"
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	if load, err = strconv.ParseFloat(string(first), 64); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return load, nil
}
