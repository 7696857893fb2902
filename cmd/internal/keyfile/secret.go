package keyfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Secret reads the file at path, of at most limit bytes, if only root and this process's user
// can read or write it. It checks the file that it has opened, so it does not matter what the
// path names later.
func Secret(path string, limit int64) (b []byte, err error) {
	// O_NONBLOCK: opening a pipe must not wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := private(f, os.Geteuid()); err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	b, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return b, err
}

// private returns an error if another user than euid and root can read or write f.
func private(f *os.File, euid int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return fmt.Errorf("cannot be examined: %w", err)
	}
	acl, err := accessList(f)
	if err != nil {
		return fmt.Errorf("cannot be examined: %w", err)
	}
	return judge(stat.Mode, int(stat.Uid), acl, euid)
}

// judge decides for private, given what fstat and the access control list say.
func judge(mode uint32, uid int, acl []aclEntry, euid int) error {
	const renew = "make new ones, with mode 0600"
	switch kind := mode & unix.S_IFMT; {
	case kind == unix.S_IFDIR:
		return errors.New("is a directory: name a file in it")
	case kind != unix.S_IFREG:
		return errors.New("is not a regular file")
	case uid != euid && uid != 0:
		return fmt.Errorf("belongs to user %d, who may know the keys, and change them: give the file to user %d, which this process runs as, or to root, and %s", uid, euid, renew)
	}
	perm := fs.FileMode(mode & 0o777)
	if acl == nil {
		if perm&0o077 != 0 {
			return fmt.Errorf("has mode %04o, so others may know the keys: %s", perm, renew)
		}
		return nil
	}
	// With a list, the group's bits of the mode are the most that the list gives to anybody
	// but the owner. systemd passes a credential to a service that way: owner root, mode
	// 0440, and a list that names the service's user.
	if e := stranger(acl, euid); e != nil {
		return fmt.Errorf("has mode %04o and an access control list with %v, so others may know the keys: %s", perm, e, renew)
	}
	return nil
}

// An aclEntry is an entry of a POSIX access control list.
type aclEntry struct {
	tag, perm uint16
	id        uint32
}

// The tags of entries (linux/posix_acl.h), and the attribute that has the list.
const (
	aclVersion  = 2
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20

	aclName = "system.posix_acl_access"
)

// String is the entry as getfacl writes it.
func (e *aclEntry) String() string {
	switch e.tag {
	case aclUser:
		return fmt.Sprintf("user:%d", e.id)
	case aclGroup:
		return fmt.Sprintf("group:%d", e.id)
	case aclGroupObj:
		return "group"
	case aclOther:
		return "other"
	}
	return fmt.Sprintf("tag %#x", e.tag)
}

// stranger returns an entry that gives a right to anybody but the file's owner, euid and
// root, or nil if there is none.
func stranger(acl []aclEntry, euid int) *aclEntry {
	mask := uint16(0o7)
	for _, e := range acl {
		if e.tag == aclMask {
			mask = e.perm
		}
	}
	for i := range acl {
		switch e := &acl[i]; e.tag {
		case aclUserObj, aclMask:
		case aclOther:
			if e.perm != 0 {
				return e
			}
		case aclUser:
			if e.perm&mask != 0 && int(e.id) != euid && e.id != 0 {
				return e
			}
		default:
			if e.perm&mask != 0 {
				return e
			}
		}
	}
	return nil
}

// maxACL bounds a list, in bytes: the kernel's limit for an attribute.
const maxACL = 64 << 10

// accessList returns the access control list of f, or nil if it has none.
func accessList(f *os.File) ([]aclEntry, error) {
	b := make([]byte, maxACL)
	n, err := unix.Fgetxattr(int(f.Fd()), aclName, b)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseACL(b[:n])
}

// parseACL reads a list in the kernel's layout (linux/posix_acl_xattr.h).
func parseACL(b []byte) ([]aclEntry, error) {
	if len(b) < 4 || (len(b)-4)%8 != 0 || binary.LittleEndian.Uint32(b) != aclVersion {
		return nil, errors.New("an access control list that is not understood")
	}
	acl := []aclEntry{}
	for b = b[4:]; len(b) > 0; b = b[8:] {
		acl = append(acl, aclEntry{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])})
	}
	return acl, nil
}
