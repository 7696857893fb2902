package keyfile

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const me, somebody = 990, 1001

// listed is the access control list of a file with mode 0400 and more.
func listed(mask uint16, more ...aclEntry) []aclEntry {
	return append([]aclEntry{{tag: aclUserObj, perm: 4}, {tag: aclGroupObj}, {tag: aclMask, perm: mask}, {tag: aclOther}}, more...)
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		mode uint32 // of a regular file, unless it says what kind
		uid  int
		acl  []aclEntry
		euid int
		says string // empty: it will do
	}{
		"ours":                         {mode: 0o600, uid: me, euid: me},
		"ours, not writable":           {mode: 0o400, uid: me, euid: me},
		"root's":                       {mode: 0o600, uid: 0, euid: me},
		"root's, for root":             {mode: 0o400, uid: 0, euid: 0},
		"somebody's":                   {mode: 0o600, uid: somebody, euid: me, says: "belongs to user 1001"},
		"somebody's, for root":         {mode: 0o600, uid: somebody, euid: 0, says: "give the file to user 0"},
		"the group reads":              {mode: 0o640, uid: me, euid: me, says: "has mode 0640"},
		"the group writes":             {mode: 0o620, uid: me, euid: me, says: "has mode 0620"},
		"others read":                  {mode: 0o604, uid: me, euid: me, says: "has mode 0604"},
		"root's, for all":              {mode: 0o444, uid: 0, euid: me, says: "has mode 0444"},
		"a directory":                  {mode: unix.S_IFDIR | 0o700, uid: me, euid: me, says: "is a directory"},
		"a pipe":                       {mode: unix.S_IFIFO | 0o600, uid: me, euid: me, says: "is not a regular file"},
		"a device":                     {mode: unix.S_IFCHR | 0o600, uid: 0, euid: 0, says: "is not a regular file"},
		"a credential":                 {mode: 0o440, uid: 0, acl: listed(4, aclEntry{aclUser, 4, me}), euid: me},
		"a credential where no lists":  {mode: 0o400, uid: me, euid: me},
		"a credential of somebody":     {mode: 0o440, uid: 0, acl: listed(4, aclEntry{aclUser, 4, somebody}), euid: me, says: "with user:1001"},
		"of two":                       {mode: 0o440, uid: 0, acl: listed(4, aclEntry{aclUser, 4, me}, aclEntry{aclUser, 4, somebody}), euid: me, says: "with user:1001"},
		"of a group":                   {mode: 0o440, uid: 0, acl: listed(4, aclEntry{aclGroup, 4, 7}), euid: me, says: "with group:7"},
		"root is in the list":          {mode: 0o440, uid: me, acl: listed(4, aclEntry{aclUser, 6, 0}), euid: me},
		"listed, and masked":           {mode: 0o400, uid: me, acl: listed(0, aclEntry{aclUser, 4, somebody}), euid: me},
		"the group, in a list":         {mode: 0o440, uid: 0, acl: []aclEntry{{tag: aclUserObj, perm: 4}, {tag: aclGroupObj, perm: 4}, {tag: aclMask, perm: 4}, {tag: aclOther}}, euid: me, says: "list with group,"},
		"others, in a list":            {mode: 0o404, uid: 0, acl: []aclEntry{{tag: aclUserObj, perm: 4}, {tag: aclGroupObj}, {tag: aclOther, perm: 4}}, euid: me, says: "list with other,"},
		"an entry of a kind to come":   {mode: 0o440, uid: 0, acl: listed(4, aclEntry{0x40, 4, me}), euid: me, says: "with tag 0x40"},
		"a credential, somebody's own": {mode: 0o440, uid: somebody, acl: listed(4, aclEntry{aclUser, 4, me}), euid: me, says: "belongs to user 1001"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.mode&unix.S_IFMT == 0 {
				c.mode |= unix.S_IFREG
			}
			err := judge(c.mode, c.uid, c.acl, c.euid)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A list that the kernel keeps is found, and gives what it says.
func TestAccessList(t *testing.T) {
	path := write(t, "secret", 0o400)
	set := func(acl []aclEntry) {
		b := binary.LittleEndian.AppendUint32(nil, aclVersion)
		for _, e := range acl {
			b = binary.LittleEndian.AppendUint16(b, e.tag)
			b = binary.LittleEndian.AppendUint16(b, e.perm)
			b = binary.LittleEndian.AppendUint32(b, e.id)
		}
		err := unix.Setxattr(path, aclName, b, 0)
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("this file system has no access control lists")
		}
		require.NoError(t, err)
	}
	none := uint32(0xffffffff)
	given := func(id int) []aclEntry { // as the kernel wants it: in order, with ids only where there is one
		return []aclEntry{{aclUserObj, 4, none}, {aclUser, 4, uint32(id)}, {aclGroupObj, 0, none}, {aclMask, 4, none}, {aclOther, 0, none}}
	}
	set(given(os.Geteuid()))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o440, info.Mode().Perm(), "what systemd's credentials look like")
	b, err := Secret(path, 100)
	require.NoError(t, err)
	require.Equal(t, "secret", string(b))

	set(given(os.Geteuid() + 1))
	_, err = Secret(path, 100)
	require.ErrorContains(t, err, "has mode 0440 and an access control list with user:")
}

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	_, err := Secret(pipe, 100)
	require.ErrorContains(t, err, "is not a regular file", "and nobody waited for a writer")

	path := write(t, "secret", 0o600)
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(path, link))
	b, err := Secret(link, 6)
	require.NoError(t, err)
	require.Equal(t, "secret", string(b))
	_, err = Secret(link, 5)
	require.ErrorContains(t, err, "more than 5 bytes")

	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(path, somebody, -1))
		_, err = Secret(path, 100)
		require.ErrorContains(t, err, "belongs to user 1001")
	}
}

func FuzzParseACL(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 1, 0, 4, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		acl, err := parseACL(b)
		if err == nil {
			require.Len(t, acl, (len(b)-4)/8)
			require.NotNil(t, acl)
		}
	})
}
