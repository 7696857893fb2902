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
	// Root is where /dev and /sys are: "/", or a test's copy.
	Root string
}

// ParseDevice reads /dev/nbdX.
func ParseDevice(path string) (Device, error) {
	digits, ok := strings.CutPrefix(path, "/dev/nbd")
	index, err := strconv.ParseUint(digits, 10, 20) // a minor number
	if !ok || err != nil || path != fmt.Sprintf("/dev/nbd%d", index) {
		return Device{}, fmt.Errorf("%q is no device of the nbd client: use /dev/nbd0, /dev/nbd1, …", path)
	}
	return Device{uint32(index), "/"}, nil
}

// String is the device's path.
func (d Device) String() string { return fmt.Sprintf("/dev/nbd%d", d.Index) }

// A State is what sysfs says of a device.
type State struct {
	// Attached: it has a server, or had one and somebody has it open still.
	Attached bool
	PID      int // of the thread that attached it
	// Backend is what that one said whose it is; most say nothing.
	Backend string
}

// State reads the device's state. It lasts while the device is held.
func (d Device) State() (s State, err error) {
	pid, err := d.read("pid")
	if gone(err) {
		return s, nil
	}
	if err == nil {
		s.PID, err = strconv.Atoi(pid)
	}
	if err != nil {
		return s, fmt.Errorf("who has %v: %w", d, err)
	}
	s.Attached = true
	s.Backend, err = d.read("backend")
	if gone(err) {
		// Attached by ioctl or by an old kernel; or it is just going, its pid first.
		if _, err = d.read("pid"); gone(err) {
			return State{}, nil
		}
	}
	if err != nil {
		return s, fmt.Errorf("who has %v: %w", d, err)
	}
	return s, nil
}

// gone tells whether an attribute is not there. It ends with the attachment.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// sysfs is the path of an attribute.
func (d Device) sysfs(name string) string {
	return filepath.Join(d.Root, "sys/block", "nbd"+strconv.FormatUint(uint64(d.Index), 10), name)
}

func (d Device) read(name string) (string, error) {
	b, err := os.ReadFile(d.sysfs(name))
	return strings.TrimSuffix(string(b), "\n"), err
}

// Hold opens the device. An open device keeps its configuration: until it is closed
// the kernel gives the index to nobody else, so that a State read meanwhile and a
// command sent then are about the same attachment. Exclusive fails with ErrInUse where
// a file system, swap or another layer has it.
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

// LargestRequest is how many bytes the kernel puts into a request.
func (d Device) LargestRequest() (uint64, error) {
	s, err := d.read(maxSectors)
	var kb uint64
	if err == nil {
		kb, err = strconv.ParseUint(s, 10, 32)
	}
	if err != nil {
		return 0, fmt.Errorf("the largest request of %v: %w", d, err)
	}
	return kb << 10, nil
}

// LimitRequests keeps the kernel from making requests of more than size bytes. It waits
// until those that it has are answered (queue_attr_store in block/blk-sysfs.c, since
// Linux 6.11), so the device needs a server.
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

// pollState is how often WaitReleased looks: the kernel tells nobody when it lets go.
const pollState = 50 * time.Millisecond

// WaitReleased waits until what backend attached is not any more: nobody has the device
// open. It is ErrInUse when ctx ends before that.
func (d Device) WaitReleased(ctx context.Context, backend string) error {
	tick := time.NewTicker(pollState)
	defer tick.Stop()
	for {
		if s, err := d.State(); err != nil || !s.Attached || s.Backend != backend {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %v is disconnected and its I/O fails, but somebody has it open or mounted still", ErrInUse, d)
		case <-tick.C:
		}
	}
}
