package storage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// judge decides the kind of the disk in dir, a directory of sysfs.
func (s System) judge(st *Storage, dir string, depth int) {
	switch name := st.Device; {
	case strings.HasPrefix(name, "ram"), strings.HasPrefix(name, "zram"):
		st.Kind, st.Why = Memory, name+" is a disk in memory"
		st.NoSync = st.Why
	case strings.HasPrefix(name, "nbd"), strings.HasPrefix(name, "rbd"), strings.HasPrefix(name, "drbd"):
		st.Kind, st.Why = Network, "its driver is for disks of other machines"
	case strings.HasPrefix(name, "ublk"):
		st.Kind, st.Why = Unknown, "a program on this machine serves it"
	case strings.HasPrefix(name, "pmem"):
		st.Kind, st.Why = PMem, "its driver is for persistent memory"
	case strings.HasPrefix(name, "loop"):
		s.judgeLoop(st, dir, depth)
	case len(lower(dir)) > 0:
		s.judgeStack(st, lower(dir), depth)
	default:
		s.judgeDisk(st, dir)
	}
}

// judgeDisk decides for a disk that has a driver of its own.
func (s System) judgeDisk(st *Storage, dir string) {
	if why := s.virtual(st, dir); why != "" {
		st.Kind, st.Why = Virtual, why
		return
	}
	switch {
	case attribute(dir, "device/transport") != "" && attribute(dir, "device/transport") != "pcie":
		st.Kind, st.Why = Network, "its transport is "+attribute(dir, "device/transport")
	case st.Rotational == "1":
		st.Kind, st.Why = Rotating, "queue/rotational is 1"
	case st.Rotational == "":
		st.Kind, st.Why = Unknown, "there is no queue/rotational"
	case st.WriteCache == "write back":
		st.Kind, st.Why = Cached, "queue/rotational is 0, and queue/write_cache is write back"
	case st.WriteCache == "write through":
		st.Kind, st.Why = Protected, "queue/rotational is 0, and queue/write_cache is write through"
	default:
		st.Kind, st.Why = Unknown, "there is no queue/write_cache"
	}
}

// hypervisors are what vendors and models of disks have that a hypervisor or a cloud makes.
var hypervisors = []string{
	"qemu", "virtual", "vbox", "vmware", "xen", "msft", "google", "nvme_card", "amazon elastic", "amazon ec2", "alibaba", "oracle",
	"digitalocean", "nutanix", "bhyve",
}

// virtual says why a disk is one of a virtual machine, or "".
func (s System) virtual(st *Storage, dir string) string {
	for _, part := range strings.Split(dir, "/") {
		switch {
		case strings.HasPrefix(part, "virtio"):
			return "its driver is virtio"
		case strings.HasPrefix(part, "vmbus"), strings.HasPrefix(part, "VMBUS"):
			return "its driver is Hyper-V's"
		}
	}
	if strings.HasPrefix(st.Device, "xvd") {
		return "its driver is Xen's"
	}
	for _, text := range []string{st.Vendor, st.Model} {
		if slices.ContainsFunc(hypervisors, func(h string) bool { return strings.Contains(strings.ToLower(text), h) }) {
			return "it calls itself " + text
		}
	}
	if s.Hypervisor() {
		return "this machine is virtual, and a disk that was handed through to it looks the same"
	}
	return ""
}

// Hypervisor reports whether the machine is virtual, as far as its CPU says.
func (s System) Hypervisor() bool {
	b, err := os.ReadFile(s.path("/proc/cpuinfo"))
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(b), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			return slices.Contains(strings.Fields(value), "hypervisor")
		}
	}
	return false
}

// judgeLoop decides for a loop device: it is what its file is kept on.
func (s System) judgeLoop(st *Storage, dir string, depth int) {
	st.Kind, st.Why = Unknown, "it is a loop device, and says nothing of its file"
	file := attribute(dir, "loop/backing_file")
	mounts, err := s.mounts()
	if file == "" || err != nil {
		return
	}
	below := s.directory(filepath.Dir(file), mounts, depth+1)
	st.Kind, st.Why, st.NoSync = below.Kind, "its file is on "+named(below)+": "+below.Why, below.NoSync
}

// judgeStack decides for a device that is made of others, as those of LVM and md are.
func (s System) judgeStack(st *Storage, numbers []string, depth int) {
	var names []string
	for i, n := range numbers {
		below := s.block(n, depth+1)
		names = append(names, named(below))
		if i == 0 {
			st.Kind, st.Why, st.NoSync = below.Kind, below.Why, below.NoSync
			if st.Vendor == "" && st.Model == "" {
				st.Vendor, st.Model = below.Vendor, below.Model
			}
		} else if below.Kind != st.Kind {
			st.Kind, st.Why = Unknown, "its disks are of several kinds"
		}
	}
	st.Why = "it is made of " + strings.Join(names, ", ") + ": " + st.Why
}

func named(s Storage) string {
	if s.Device != "" {
		return s.Device
	}
	return s.Filesystem
}
