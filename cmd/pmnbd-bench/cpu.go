package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every
// architecture that Go runs on.
const tick = 10 * time.Millisecond

// cpuTime returns the CPU time that all threads of the processes have used in user and in
// system mode, each rounded down to a tick.
func cpuTime(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
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
	}
	return sum, nil
}
