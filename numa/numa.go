// Package numa finds the NUMA nodes of devices and confines a process to CPUs, only for
// packages of this module; it promises nothing to other programs.
//
// A CPU that flushes memory of another node is slower, and so is an adapter that writes
// there (Linux, Documentation/mm/numa.rst). The package only reads sysfs and sets the
// affinity. The commands decide what belongs near what.
//
// Nodes and CPUs have the kernel's numbers, from 0. Functions that read sysfs take the
// directory where it is mounted, [Sysfs], so that tests can pass another.
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

// None stands for no node: a device has none, or its node is not known.
const None = -1

// Sysfs is where sysfs is mounted.
const Sysfs = "/sys"

// maxCPU is the number of CPUs that a unix.CPUSet has room for.
const maxCPU = len(unix.CPUSet{}) * strconv.IntSize

// Nodes returns the nodes that have CPUs. A kernel without NUMA has none.
func Nodes(sys string) ([]int, error) {
	text, err := attribute(sys, "devices/system/node/has_cpu")
	if err != nil || text == "" {
		return nil, err
	}
	return parseList(text)
}

// CPUs returns the CPUs of a node. A node without CPUs is an error.
func CPUs(sys string, node int) (set unix.CPUSet, err error) {
	text, err := attribute(sys, "devices/system/node", fmt.Sprintf("node%d", node), "cpulist")
	if err != nil {
		return set, err
	}
	if text == "" {
		return set, fmt.Errorf("node %d has no CPUs, or does not exist", node)
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

// OfDevice returns the node of the device whose directory in sysfs is dir: its own, or that of
// its nearest ancestor that has one. It is None if there is none, or no such device.
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
			return None, fmt.Errorf("%s: %q is not a node", filepath.Join(dir, "numa_node"), text)
		}
		return node, nil
	}
	return None, nil
}

// parseList parses a set in the kernel's list format, such as "0-3,8" (cpuset(7)).
func parseList(text string) ([]int, error) {
	var all []int
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is not a list of numbers", text)
		}
		to, err := strconv.ParseUint(last, 10, 16)
		if err != nil || to < from || to >= uint64(maxCPU) {
			return nil, fmt.Errorf("%q is not a list of numbers below %d", text, maxCPU)
		}
		for n := from; n <= to; n++ {
			all = append(all, int(n))
		}
	}
	return all, nil
}

// attribute returns the text of a file of sysfs without surrounding space, or "" if there is
// no such file.
func attribute(path ...string) (string, error) {
	b, err := os.ReadFile(filepath.Join(path...))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}
