// Package numa knows on which node of the machine devices, memory and CPUs are, and
// brings a process to a node.
//
// It exists because a CPU that flushes memory of another socket, or an adapter that
// writes there, pays for the way between (Linux, Documentation/mm/numa.rst). It owns
// what is read of that from sysfs, and the affinity of the process. What belongs near what
// is decided by commands. It imports nothing of ours.
package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// None stands for no node: the device is on none, or nobody knows.
const None = -1

// Sysfs is where sysfs is mounted. Tests have others, which is why functions take it.
const Sysfs = "/sys"

// maxCPU is how many CPUs a unix.CPUSet can name.
const maxCPU = len(unix.CPUSet{}) * strconv.IntSize

// Nodes lists the nodes that have CPUs; none if the kernel knows of no nodes.
func Nodes(sys string) ([]int, error) {
	text, err := attribute(sys, "devices/system/node/has_cpu")
	if err != nil || text == "" {
		return nil, err
	}
	return parseList(text)
}

// CPUs are those of a node.
func CPUs(sys string, node int) (set unix.CPUSet, err error) {
	text, err := attribute(sys, "devices/system/node", fmt.Sprintf("node%d", node), "cpulist")
	if err != nil {
		return set, err
	}
	if text == "" {
		return set, fmt.Errorf("node %d has no CPUs, or is not there", node)
	}
	cpus, err := parseList(text)
	if err != nil {
		return set, fmt.Errorf("CPUs of node %d: %w", node, err)
	}
	for _, c := range cpus {
		set.Set(c)
	}
	return set, nil
}

// OfDevice is the node of the device with directory dir in sysfs: its own, or that of
// what it descends from.
func OfDevice(dir string) (int, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return None, nil
	}
	if err != nil {
		return None, err
	}
	for ; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		text, err := attribute(dir, "numa_node")
		if err != nil {
			return None, err
		}
		if text == "" {
			continue
		}
		node, err := strconv.Atoi(text)
		if err != nil || node < None {
			return None, fmt.Errorf("%s: %q is no node", filepath.Join(dir, "numa_node"), text)
		}
		return node, nil
	}
	return None, nil
}

// parseList reads the kernel's form of sets (cpuset(7), list format): "0-3,8".
func parseList(text string) ([]int, error) {
	var all []int
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no list of numbers", text)
		}
		to, err := strconv.ParseUint(last, 10, 16)
		if err != nil || to < from || to >= uint64(maxCPU) {
			return nil, fmt.Errorf("%q is no list of numbers below %d", text, maxCPU)
		}
		for n := from; n <= to; n++ {
			all = append(all, int(n))
		}
	}
	return all, nil
}

// attribute is a file of sysfs, trimmed; "" if there is none.
func attribute(path ...string) (string, error) {
	b, err := os.ReadFile(filepath.Join(path...))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}
