package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A disk is a file of our own in a directory, which an application has without a network block
// device. A write is a pwrite into the page cache, a flush an fdatasync. A request is done when
// send returns, so a disk has a depth of 1.
type disk struct {
	file    *os.File
	payload []byte
	done    int // the slot of the last request
}

func openDisk(dir string, size int64, payload []byte) (*disk, error) {
	f, err := os.CreateTemp(dir, "pmnbd-bench-")
	if err != nil {
		return nil, err
	}
	d := &disk{file: f, payload: payload}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, errors.Join(fmt.Errorf("allocating %d bytes in %s: %w", size, dir, err), d.Close())
	}
	return d, nil
}

func (d *disk) send(rs []request) error {
	for _, r := range rs {
		var err error
		switch r.cmd {
		case cmdWrite:
			_, err = d.file.WriteAt(d.payload[:r.len], r.off)
		case cmdFlush:
			err = d.fdatasync()
		default:
			err = errors.ErrUnsupported
		}
		if err != nil {
			return err
		}
		d.done = r.slot
	}
	return nil
}

func (d *disk) fdatasync() error {
	for {
		err := unix.Fdatasync(int(d.file.Fd()))
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

func (d *disk) recv() (int, error) { return d.done, nil }

func (d *disk) buffered() bool { return false }

func (d *disk) bound(time.Time) error { return nil }

// Close removes the file.
func (d *disk) Close() error {
	return errors.Join(os.Remove(d.file.Name()), d.file.Close())
}
