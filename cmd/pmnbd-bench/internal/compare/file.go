package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/pmnbd-bench/internal/storage"
)

// An openFile is a file or a block device, and the lane of one writer. An operation is what programs do:
// pwrite into the page cache, then fdatasync.
type openFile struct {
	f       *os.File
	payload []byte
}

func (w *openFile) commit(op []extent) error {
	for _, e := range op {
		if _, err := w.f.WriteAt(w.payload[:e.len], e.off); err != nil {
			return err
		}
	}
	for {
		err := unix.Fdatasync(int(w.f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

func (w *openFile) run(workers []*worker, s span) error {
	return workers[0].alone(w.commit, s) // an openFile has one
}

// alone does the operations of a worker that has a lane of its own.
func (w *worker) alone(commit func([]extent) error, s span) error {
	for now := time.Now(); w.goesOn(s, now); {
		if s.stop.Load() {
			return errInterrupted
		}
		op, counts := w.stream.next()
		began := now
		if err := commit(op); err != nil {
			return err
		}
		now = time.Now()
		if err := w.count(s, began, now, counts); err != nil {
			return err
		}
	}
	return nil
}

// bound does nothing: nobody can interrupt an fdatasync.
func (w *openFile) bound(time.Time) error { return nil }

func (w *openFile) close() error { return w.f.Close() }

// openPath opens a directory or a block device.
func openPath(ctx context.Context, o Operand, cfg *Config, payload []byte) (*place, error) {
	info, err := os.Stat(o.Path)
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return openDirectory(o, cfg, payload)
	case mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0:
		return openDevice(ctx, o, cfg, payload)
	case mode.IsRegular():
		return nil, flags.Usagef("%s is a file: give its directory, in which compare makes a file of its own", o.Path)
	}
	return nil, flags.Usagef("%s is neither a directory nor a block device", o.Path)
}

// openDirectory makes a file of the area's size.
func openDirectory(o Operand, cfg *Config, payload []byte) (p *place, err error) {
	p = &place{Subject: Subject{Label: o.Label, Given: o.Given, Form: FormDirectory}}
	st, err := cfg.System.Directory(o.Path)
	if err != nil {
		return nil, err
	}
	p.keptOn(st)
	f, err := os.CreateTemp(o.Path, "pmnbd-bench-")
	if err != nil {
		return nil, err
	}
	p.end = func() error { return os.Remove(f.Name()) }
	p.Size = cfg.Area
	err = unix.Fallocate(int(f.Fd()), 0, 0, cfg.Area)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil // the filling allocates
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = p.openFiles(f.Name(), cfg, payload)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("a file of %d bytes: %w", cfg.Area, err), p.close())
	}
	return p, nil
}

// openFiles opens a path as often as the most writers need.
func (p *place) openFiles(path string, cfg *Config, payload []byte) error {
	for range cfg.writers() {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		p.lanes = append(p.lanes, &openFile{f: f, payload: payload})
	}
	return nil
}

// openDevice opens a block device whose contents may be lost. While it is open nobody can mount it.
func openDevice(ctx context.Context, o Operand, cfg *Config, payload []byte) (*place, error) {
	if !slices.Contains(cfg.Overwrite, o.Path) {
		return nil, flags.Usagef("it is a block device, whose first %v would be overwritten: say so with --overwrite %s", flags.Size(cfg.Area), o.Path)
	}
	f, err := os.OpenFile(o.Path, os.O_RDWR|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		if !cfg.Force {
			return nil, errors.New("it is in use, mounted or as a part of another device: --force overwrites it all the same")
		}
		f, err = os.OpenFile(o.Path, os.O_RDWR, 0)
	}
	if err != nil {
		return nil, err
	}
	p := &place{Subject: Subject{Label: o.Label, Given: o.Given, Form: FormDevice}, end: f.Close}
	if err := p.examine(ctx, f, cfg); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if err := p.openFiles(o.Path, cfg, payload); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// examine looks what a device is and whether it has contents.
func (p *place) examine(ctx context.Context, f *os.File, cfg *Config) (err error) {
	if !cfg.Force {
		if err := refuseContents(storage.Contents(ctx, f.Name())); err != nil {
			return err
		}
	}
	if p.Size, err = f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	p.keptOn(cfg.System.Device(st.Rdev))
	return nil
}
