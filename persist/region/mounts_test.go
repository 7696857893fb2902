package region

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryMounts(t *testing.T) {
	const mountinfo = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
24 22 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=1k
25 24 0:23 / /dev/shm rw,relatime shared:3 master:2 - tmpfs tmpfs rw
26 22 0:24 /sub /srv/a\040b\134c rw - hugetlbfs none rw,pagesize=2M
27 22 0:25 / /srv/tmpfs rw - xfs tmpfs rw
28 22 0:26 / /srv/ram rw - ramfs ramfs rw
29 22 0:27 / /srv/tmpfs2 - tmpfs
tmpfs - tmpfs tmpfs rw
30 22 0:28 / /srv/none rw

31 22 0:29 / /srv/last rw - tmpfs`
	want := []string{"/dev", "/dev/shm", `/srv/a b\c`, "/srv/ram", "/srv/last"}
	got, err := memoryMounts(strings.NewReader(mountinfo))
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = memoryMounts(strings.NewReader(mountinfo + "\n" + strings.Repeat("x", 1<<21)))
	require.ErrorIs(t, err, bufio.ErrTooLong)
	require.Equal(t, want, got)
	_, err = thisMachine.MemoryMounts()
	require.NoError(t, err)
}
