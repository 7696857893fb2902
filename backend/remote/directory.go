package remote

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// A directory holds files that nobody but this user may change: ids, locks, windows. Another
// user who owned it could take a live window away, or put another one in its place. Where
// everybody may make directories, as in /dev/shm, that user only has to make it first.
type directory struct {
	path string
	fd   int
}

// openDirectory opens the directory at path, and makes it if there is none. It returns an error
// if another user may change the directory, or if path is a symbolic link. It does not look at
// the directories above.
func openDirectory(path string) (_ *directory, err error) {
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
	d := &directory{path, fd}
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

// Close closes the directory. Files that were opened in it stay open.
func (d *directory) Close() error { return unix.Close(d.fd) }

// open opens file name with these flags. It returns an error unless that is a plain file of
// this user's, under one name alone.
func (d *directory) open(name string, flags int) (*os.File, error) {
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

// lock opens file name with these flags and locks it.
func (d *directory) lock(name string, flags int) (*os.File, error) {
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
		_ = f.Close() // the process that had the lock removed the file, and then closed it
	}
}

// Read returns what file name holds, up to 4096 bytes.
func (d *directory) Read(name string) ([]byte, error) {
	f, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	return b, errors.Join(err, f.Close())
}

// drafts is locked while a draft exists, because all writers of this process give it the same name.
var drafts sync.Mutex

// Write makes b the contents of file name, whole or not at all, and durable. If keep is set and the file
// exists, it stays as it is.
func (d *directory) Write(name string, b []byte, keep bool) error {
	drafts.Lock()
	defer drafts.Unlock()
	draft := fmt.Sprintf(".%s-%d", name, os.Getpid())
	_ = unix.Unlinkat(d.fd, draft, 0) // a process with the same number may have been killed
	f, err := d.open(draft, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = d.rename(draft, name, keep)
	}
	if err != nil {
		_ = unix.Unlinkat(d.fd, draft, 0)
		return fmt.Errorf("write %s: %w", filepath.Join(d.path, name), err)
	}
	return nil
}

// rename gives file draft another name, durably. If keep is set and there is a file of that name, it removes draft.
func (d *directory) rename(draft, name string, keep bool) error {
	flags := uint(0)
	if keep { // a link would leave the file with two names for a moment, in which open refuses it
		flags = unix.RENAME_NOREPLACE
	}
	err := unix.Renameat2(d.fd, draft, d.fd, name, flags)
	switch {
	case keep && errors.Is(err, unix.EEXIST):
		err = unix.Unlinkat(d.fd, draft, 0)
	case keep && errors.Is(err, unix.EINVAL): // NFS has no such rename
		if err = unix.Linkat(d.fd, draft, d.fd, name, 0); err == nil || errors.Is(err, unix.EEXIST) {
			err = unix.Unlinkat(d.fd, draft, 0)
		}
	}
	if err != nil {
		return err
	}
	return unix.Fsync(d.fd)
}

// Remove removes file name. It is no error if there is none.
func (d *directory) Remove(name string) error {
	if err := unix.Unlinkat(d.fd, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: filepath.Join(d.path, name), Err: err}
	}
	return nil
}
