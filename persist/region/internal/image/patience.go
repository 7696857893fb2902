package image

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long a write or a sync of an image may take. Linux gives a command of a disk
// half a minute, and then resets the disk.
const Patience = time.Minute

// ErrHangs means that a disk did not answer for Patience. What it was asked for may still happen.
var ErrHangs = errors.New("the disk does not answer")

// Await calls f and returns its error, or ErrHangs if f takes longer than Patience. f then goes on.
func Await(f func() error) error {
	var p patient
	return p.do(f)
}

// A patient is a File whose writes and syncs take no longer than Patience. While one that took
// longer goes on, every further one fails at once: a late write must not land behind a newer one.
type patient struct {
	File
	hanging atomic.Int32 // operations that took too long and go on
}

func (p *patient) hangs() bool { return p.hanging.Load() > 0 }

func (p *patient) WriteAt(b []byte, off int64) (int, error) {
	err := p.do(func() error {
		_, err := p.File.WriteAt(b, off)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p *patient) Sync() error { return p.do(p.File.Sync) }

func (p *patient) do(f func() error) error {
	if p.hangs() {
		return fmt.Errorf("%w, and has not done what it was given before", ErrHangs)
	}
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	done, gone := make(chan error), make(chan struct{})
	go func() {
		err := f()
		select {
		case done <- err:
		case <-gone:
			p.hanging.Add(-1)
		}
	}()
	select {
	case err := <-done:
		return err
	case <-patience.C:
		p.hanging.Add(1)
		close(gone)
		return fmt.Errorf("%w for %v", ErrHangs, Patience)
	}
}

// release unmaps a buffer after an operation with it, which returned err. A disk that hangs may
// still read it.
func release(b []byte, err error) error {
	if errors.Is(err, ErrHangs) {
		return err
	}
	return errors.Join(err, unix.Munmap(b))
}
