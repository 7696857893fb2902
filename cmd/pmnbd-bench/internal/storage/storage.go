// Package storage says what a directory or a block device is kept on, as far as Linux tells: what
// kind of disk, whether it has a volatile write cache, and whether an fsync there reaches it at all.
//
// It exists because an fsync costs a hundred times more on one disk than on another, so a latency
// means little without the kind of the disk. It reads /proc and /sys, and guesses nothing: what they
// do not say is Unknown. It imports internal/plain.
package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pmnbd/internal/plain"
)

// A Kind is what a disk is, in the words that a report prints.
type Kind string

// The kinds say what an fsync waits for.
const (
	Unknown   Kind = "unknown"
	Memory    Kind = "memory"
	Rotating  Kind = "rotating disk"
	Cached    Kind = "SSD with a volatile write cache"
	Protected Kind = "SSD without a volatile write cache"
	Virtual   Kind = "virtual or cloud disk"
	PMem      Kind = "persistent memory"
	Network   Kind = "network block device"
)

// Meaning says what an fsync on a disk of this kind waits for.
func (k Kind) Meaning() string {
	switch k {
	case Memory:
		return "An fsync does nothing there, and everything is lost with the machine's power."
	case Rotating:
		return "An fsync waits for the platter to turn, which takes milliseconds."
	case Cached:
		return "An fsync empties the drive's cache into flash, often in 0.3 to 5 ms. Most consumer SSDs are like this. Some SATA SSDs with power-loss protection report a volatile cache, too."
	case Protected:
		return "The drive reports that what it has acknowledged survives a power loss, as SSDs with power-loss protection do. An fsync then costs a write, some 10 to 100 µs, and no flush."
	case Virtual:
		return "The machine cannot see what is behind it: an fsync may end in the host's memory, on the host's SSD or across a network. Only its provider can say."
	case PMem:
		return "Persistent memory of this machine."
	case Network:
		return "What an fsync does is up to the server."
	}
	return "Nothing here says what kind of disk it is, so look it up before you draw a conclusion: kinds differ by a factor of 100."
}

// Storage is what something is kept on.
type Storage struct {
	Kind Kind `json:"kind"`
	// Why is the evidence for Kind.
	Why        string `json:"why"`
	Filesystem string `json:"filesystem,omitempty"`
	// Device is the kernel's name of the whole disk, such as "vda".
	Device     string `json:"device,omitempty"`
	Vendor     string `json:"vendor,omitempty"`
	Model      string `json:"model,omitempty"`
	WriteCache string `json:"write_cache,omitempty"` // as queue/write_cache says
	Rotational string `json:"rotational,omitempty"`  // "0" or "1", as queue/rotational says
	// NoSync says why an fsync there does not make anything durable; "" if nothing says so.
	NoSync string `json:"no_sync,omitempty"`

	stat string // the file with the disk's counters, or ""
}

// A System is the machine to ask.
type System struct {
	// Root is the directory that has its /proc and /sys; "" is this machine.
	Root string
}

// Directory says what a directory is kept on.
func (s System) Directory(dir string) (Storage, error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return Storage{}, err
	}
	mounts, err := s.mounts()
	if err != nil {
		return Storage{}, err
	}
	return s.directory(path, mounts, 0), nil
}

// Device says what the block device with the number dev, from stat(2), is.
func (s System) Device(dev uint64) Storage {
	return s.block(number(dev), 0)
}

func number(dev uint64) string { return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev)) }

// layers bounds how many devices may lie on top of each other.
const layers = 8

func (s System) directory(path string, mounts []mount, depth int) Storage {
	m, ok := holding(mounts, path)
	if !ok || depth > layers {
		return Storage{Kind: Unknown, Why: "no mount holds " + plain.Text(path)}
	}
	st := s.filesystem(m, mounts, depth)
	st.Filesystem = plain.Text(m.kind)
	if st.NoSync == "" {
		st.NoSync = m.noSync()
	}
	return st
}

// filesystem says what a mounted filesystem is kept on.
func (s System) filesystem(m mount, mounts []mount, depth int) Storage {
	switch m.kind {
	case "tmpfs", "ramfs", "hugetlbfs", "devtmpfs":
		return Storage{Kind: Memory, Why: "its filesystem is " + m.kind, NoSync: "its filesystem is " + m.kind + ", which is in memory"}
	case "overlay":
		upper, ok := m.option("upperdir")
		if !ok || upper == m.point {
			return Storage{Kind: Unknown, Why: "its filesystem is overlay, and says nothing of what is below"}
		}
		if _, err := os.Stat(s.path(upper)); err != nil {
			return Storage{Kind: Unknown, Why: "its filesystem is overlay, over a directory that cannot be seen from here"}
		}
		return s.directory(upper, mounts, depth+1)
	case "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "lustre", "fuse.sshfs":
		return Storage{Kind: Unknown, Why: "its filesystem is " + m.kind + ": what an fsync does is up to the server"}
	}
	if !strings.HasPrefix(m.number, "0:") {
		return s.block(m.number, depth+1)
	}
	// btrfs and others have numbers of their own, but name the device.
	if dev, err := os.ReadFile(s.path("/sys/class/block", filepath.Base(m.source), "dev")); err == nil && strings.HasPrefix(m.source, "/dev/") {
		return s.block(strings.TrimSpace(string(dev)), depth+1)
	}
	return Storage{Kind: Unknown, Why: fmt.Sprintf("its filesystem is %s, which names no device that Linux knows", plain.Text(m.kind))}
}

func (s System) path(parts ...string) string {
	return filepath.Join(append([]string{s.Root, "/"}, parts...)...)
}

// block says what the block device "major:minor" is.
func (s System) block(number string, depth int) Storage {
	link := s.path("/sys/dev/block", number)
	dir, err := filepath.EvalSymlinks(link)
	if err != nil || depth > layers {
		return Storage{Kind: Unknown, Why: "/sys/dev/block has no device " + number}
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	st := Storage{
		Device: plain.Text(filepath.Base(dir)),
		Vendor: attribute(dir, "device/vendor"), Model: attribute(dir, "device/model"),
		WriteCache: attribute(dir, "queue/write_cache"), Rotational: attribute(dir, "queue/rotational"),
	}
	// Drivers of persistent memory count nothing unless somebody asks for it: 0 writes would mean nothing.
	if attribute(dir, "queue/iostats") != "0" {
		st.stat = filepath.Join(dir, "stat")
	}
	s.judge(&st, dir, depth)
	return st
}

// attribute reads a file of sysfs; "" if there is none.
func attribute(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return plain.Text(strings.TrimSpace(string(b)))
}

// Counters returns how many writes and how many flushes the disk has completed since the machine
// started, of everybody. ok is false if Linux does not count them.
func (s Storage) Counters() (writes, flushes uint64, ok bool) {
	if s.stat == "" {
		return 0, 0, false
	}
	b, err := os.ReadFile(s.stat)
	if err != nil {
		return 0, 0, false
	}
	// Documentation/block/stat.rst: the 5th figure is writes, the 16th flushes, since Linux 5.5.
	fields := strings.Fields(string(b))
	if len(fields) < 16 {
		return 0, 0, false
	}
	writes, err = strconv.ParseUint(fields[4], 10, 64)
	flushes, err2 := strconv.ParseUint(fields[15], 10, 64)
	return writes, flushes, errors.Join(err, err2) == nil
}

// lower returns the devices of which the one in dir is made.
func lower(dir string) (numbers []string) {
	entries, err := os.ReadDir(filepath.Join(dir, "slaves"))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if n := attribute(dir, "slaves/"+e.Name()+"/dev"); n != "" {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}
