package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Device is /dev/nbdX.
type Device struct {
	Index uint32
	// Root is the directory that has dev and sys: "/", or a copy in a test.
	Root string
}

// ParseDevice parses a path such as /dev/nbd0.
func ParseDevice(path string) (Device, error) {
	digits, ok := strings.CutPrefix(path, "/dev/nbd")
	index, err := strconv.ParseUint(digits, 10, 20) // a minor number
	if !ok || err != nil || path != fmt.Sprintf("/dev/nbd%d", index) {
		return Device{}, fmt.Errorf("%q is not an nbd device: use /dev/nbd0, /dev/nbd1, …", path)
	}
	return Device{uint32(index), "/"}, nil
}

// String returns the path of the device.
func (d Device) String() string { return fmt.Sprintf("/dev/nbd%d", d.Index) }

// A State is what sysfs says about a device.
type State struct {
	// Attached is set if the device has a server, or if it had one and a process still
	// has the device open.
	Attached bool
	PID      int // of the thread that has attached the device
	// Backend is the Config.Backend of whoever attached the device. Most programs set
	// none.
	Backend string
}

// State reads the state of the device. While the device is held, that state stays true.
func (d Device) State() (s State, err error) {
	pid, err := d.read("pid")
	if gone(err) {
		return s, nil
	}
	if err == nil {
		s.PID, err = strconv.Atoi(pid)
	}
	if err != nil {
		return s, fmt.Errorf("find out who attached %v: %w", d, err)
	}
	s.Attached = true
	s.Backend, err = d.read("backend")
	if gone(err) {
		// The device was attached by ioctl or by an old kernel, or the kernel is just
		// detaching it: the pid goes first.
		if _, err = d.read("pid"); gone(err) {
			return State{}, nil
		}
	}
	if err != nil {
		return s, fmt.Errorf("find out who attached %v: %w", d, err)
	}
	return s, nil
}

// gone reports whether an attribute does not exist. It exists only while the device is
// attached.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// sysfs returns the path of an attribute.
func (d Device) sysfs(name string) string {
	return filepath.Join(d.Root, "sys/block", "nbd"+strconv.FormatUint(uint64(d.Index), 10), name)
}

func (d Device) read(name string) (string, error) {
	b, err := os.ReadFile(d.sysfs(name))
	return strings.TrimSuffix(string(b), "\n"), err
}

// Hold opens the device. Until the caller closes it, the kernel gives the index to nobody
// else. So a State that is read meanwhile and a command that is sent meanwhile are about
// the same attachment. If exclusive is set and a file system, swap or another layer is on
// the device, Hold returns ErrInUse.
func (d Device) Hold(exclusive bool) (*os.File, error) {
	flag := os.O_RDONLY
	if exclusive {
		flag |= unix.O_EXCL
	}
	f, err := os.OpenFile(filepath.Join(d.Root, d.String()), flag, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%w: a file system, swap or another layer is on %v", ErrInUse, d)
	}
	return f, err
}

const maxSectors = "queue/max_sectors_kb"

// LargestRequest returns the size in bytes of the largest request that the kernel makes.
func (d Device) LargestRequest() (uint64, error) {
	s, err := d.read(maxSectors)
	var kb uint64
	if err == nil {
		kb, err = strconv.ParseUint(s, 10, 32)
	}
	if err != nil {
		return 0, fmt.Errorf("find the largest request of %v: %w", d, err)
	}
	return kb << 10, nil
}

// LimitRequests keeps the kernel from making requests of more than size bytes. The kernel
// first waits for the replies to outstanding requests (queue_attr_store in
// block/blk-sysfs.c, since Linux 6.11), so the device needs a server.
func (d Device) LimitRequests(size uint32) error {
	now, err := d.LargestRequest()
	if err != nil || uint64(size) >= now {
		return err
	}
	if err := os.WriteFile(d.sysfs(maxSectors), strconv.AppendUint(nil, uint64(size)>>10, 10), 0); err != nil {
		return fmt.Errorf("limit the requests of %v: %w", d, err)
	}
	return nil
}

// pollState is how often WaitReleased looks. The kernel does not report when it releases a
// device.
const pollState = 50 * time.Millisecond

// WaitReleased waits until the kernel has released the device that backend attached, which
// is when no process has it open any more. If ctx ends first it returns ErrInUse.
func (d Device) WaitReleased(ctx context.Context, backend string) error {
	tick := time.NewTicker(pollState)
	defer tick.Stop()
	for {
		if s, err := d.State(); err != nil || !s.Attached || s.Backend != backend {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %v is disconnected and its I/O fails, but a process still has it open or mounted", ErrInUse, d)
		case <-tick.C:
		}
	}
}
