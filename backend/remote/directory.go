package remote

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Directory holds files of this user that nobody else may change: ids, locks, windows.
// A stranger who owned it could take a live window away, or put another in its place; so
// could one who made it first, where everybody may make directories (/dev/shm).
type Directory struct {
	path string
	fd   int
}

// OpenDirectory opens the directory at path, made if there is none. It must be this user's
// alone to change, and no symbolic link. The directories above it are not looked at.
func OpenDirectory(path string) (_ *Directory, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("%s is a symbolic link, or no directory: name the directory itself", path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	d := &Directory{path, fd}
	var st unix.Stat_t
	switch err = unix.Fstat(fd, &st); {
	case err != nil:
		err = &os.PathError{Op: "stat", Path: path, Err: err}
	case st.Uid != uint32(os.Geteuid()):
		err = fmt.Errorf("directory %s belongs to user %d, and this process runs as user %d: the owner could take the files of pmnbd away. Remove the directory, or name another one", path, st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		err = fmt.Errorf("others may write to directory %s, and could take its files away: chmod go-w it once you know that what is in it is yours", path)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close closes the directory.
func (d *Directory) Close() error { return unix.Close(d.fd) }

// open opens file name in it, with these flags. It is a plain file of this user's, under
// one name.
func (d *Directory) open(name string, flags int) (*os.File, error) {
	path := filepath.Join(d.path, name)
	fd, err := unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	switch err = unix.Fstat(fd, &st); {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1:
		err = fmt.Errorf("%s is no plain file, or has another name, too: look at what it is, and remove it", path)
	case st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0:
		err = fmt.Errorf("%s belongs to somebody else, or others have access to it: look at what it is, and remove it", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lock opens file name with these flags and keeps other processes from it.
func (d *Directory) lock(name string, flags int) (*os.File, error) {
	for {
		f, err := d.open(name, flags)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if st.Nlink > 0 {
			return f, nil
		}
		_ = f.Close() // the process before removed it, and then let it go
	}
}

// Read is what file name holds, up to 4096 bytes.
func (d *Directory) Read(name string) ([]byte, error) {
	f, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	return b, errors.Join(err, f.Close())
}

// Write makes b what file name holds, whole or not at all. Where keep is set and there is
// such a file it stays as it is.
func (d *Directory) Write(name string, b []byte, keep bool) error {
	draft := fmt.Sprintf(".%s-%d", name, os.Getpid())
	_ = unix.Unlinkat(d.fd, draft, 0) // of a process of this number that was killed
	f, err := d.open(draft, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil && keep {
		if err = unix.Linkat(d.fd, draft, d.fd, name, 0); errors.Is(err, unix.EEXIST) {
			err = nil
		}
	} else if err == nil {
		err = unix.Renameat(d.fd, draft, d.fd, name)
	}
	if keep || err != nil {
		_ = unix.Unlinkat(d.fd, draft, 0)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(d.path, name), err)
	}
	return nil
}

// Remove removes file name, if there is one.
func (d *Directory) Remove(name string) error {
	if err := unix.Unlinkat(d.fd, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: filepath.Join(d.path, name), Err: err}
	}
	return nil
}
