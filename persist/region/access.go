package region

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrExposed means that another user could have put the file there, or can change it. In
// a directory that everybody may write to, such as /dev/shm, any user can create a file
// first.
var ErrExposed = errors.New("another user can change it")

// openNode opens the file or device of a region. It follows a symbolic link only to a
// device, because only root makes device nodes.
func openNode(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) {
		f, err = openLinked(path, flags)
	}
	if errors.Is(err, unix.EACCES) {
		return nil, forbidden(path, err, os.Geteuid())
	}
	if err != nil {
		return nil, err
	}
	if err := guarded(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// forbidden adds the file's owner to the kernel's refusal to open path: root may have made
// the file for a service that runs as another user.
func forbidden(path string, err error, self int) error {
	info, statErr := os.Stat(path)
	if statErr != nil {
		return err // this user may not search the directory either
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Errorf("%w: it belongs to uid %d, its mode is %04o, and this process runs as uid %d: run pmnbd-target as its owner, or give that user access",
		err, st.Uid, st.Mode&0o777, self)
}

// openLinked opens what a symbolic link leads to.
func openLinked(path string, flags int) (*os.File, error) {
	to, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	link, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if to.Mode()&fs.ModeCharDevice == 0 {
		return nil, fmt.Errorf("%s: %w: it is a symbolic link to something other than a device: name the file itself", path, ErrExposed)
	}
	if err := ours(path, link.Sys().(*syscall.Stat_t).Uid, os.Geteuid()); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
}

// guarded returns an error if another user than root and this process's user could change
// the region's file. For devices the kernel's permissions are enough.
func guarded(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("%s: stat: %w", f.Name(), err)
	}
	return guards(f.Name(), &st, os.Geteuid())
}

func guards(path string, st *unix.Stat_t, self int) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	if err := ours(path, st.Uid, self); err != nil {
		return err
	}
	if mode := st.Mode & 0o777; mode&0o022 != 0 {
		return fmt.Errorf("%s: %w: its mode %04o lets group or others write to it: chmod go-w %[1]s", path, ErrExposed, mode)
	}
	return nil
}

// ours returns an error if path belongs to neither root nor self.
func ours(path string, owner uint32, self int) error {
	if owner == 0 || int(owner) == self {
		return nil
	}
	return fmt.Errorf("%s: %w: it belongs to uid %d, and this process runs as uid %d: run pmnbd-target as its owner, or chown it if you trust that user, who may have it open; if nobody here made it, remove it",
		path, ErrExposed, owner, self)
}
