package region

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// The class that each filesystem gives, or the reason why it gives none.
func TestClassOf(t *testing.T) {
	const overlay = unix.OVERLAYFS_SUPER_MAGIC
	noUpper := errors.New("no upperdir")
	for _, c := range []struct {
		name    string
		magic   int64
		beneath upper
		err     error
		want    persist.Class
		reason  string // of a refusal
	}{
		{name: "tmpfs", magic: 0x01021994, want: persist.ClassVolatile},
		{name: "ramfs", magic: 0x858458f6, want: persist.ClassVolatile},
		{name: "hugetlbfs", magic: 0x958458f6, want: persist.ClassVolatile},
		{name: "ext4", magic: 0xef53, want: persist.ClassFile},
		{name: "xfs", magic: 0x58465342, want: persist.ClassFile},
		{name: "f2fs", magic: 0xf2f52010, want: persist.ClassFile},
		{name: "btrfs", magic: 0x9123683e, reason: "copy-on-write"},
		{name: "zfs", magic: 0x2fc12fc1, reason: "copy-on-write"},
		{name: "bcachefs", magic: 0xca451a4e, reason: "copy-on-write"},
		{name: "nfs", magic: 0x6969, reason: "does not know whether filesystem type 0x6969 keeps synced data"},
		{name: "fuse", magic: 0x65735546, reason: "does not know"},
		{name: "9p", magic: 0x01021997, reason: "does not know"},
		{name: "0", magic: 0, reason: "does not know"},
		{name: "overlay on ext4", magic: overlay, beneath: upper{magic: 0xef53}, want: persist.ClassFile},
		{name: "overlay on ext4 that syncs nothing", magic: overlay, beneath: upper{magic: 0xef53, unsynced: true}, want: persist.ClassVolatile},
		{name: "overlay on tmpfs", magic: overlay, beneath: upper{magic: 0x01021994}, want: persist.ClassVolatile},
		{name: "overlay on btrfs", magic: overlay, beneath: upper{magic: 0x9123683e, unsynced: true}, reason: "copy-on-write"},
		{name: "overlay on nfs", magic: overlay, beneath: upper{magic: 0x6969}, reason: "does not know"},
		{name: "overlay on overlay", magic: overlay, beneath: upper{magic: overlay}, reason: "an overlay on an overlay"},
		{name: "overlay on an unknown filesystem", magic: overlay, err: noUpper, reason: "no upperdir"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := classOf(c.magic, func() (upper, error) { return c.beneath, c.err })
			require.Equal(t, c.want, got)
			if c.reason == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrClass)
			require.ErrorContains(t, err, c.reason)
			require.ErrorContains(t, err, "put the region on ext4", "the remedy is named")
		})
	}
}

// The classes of what this machine has.
func TestClassify(t *testing.T) {
	fd, err := unix.MemfdCreate("pmnbd", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	memfd := os.NewFile(uintptr(fd), PathMemfd)
	mem, err := thisMachine.Identify(memfd)
	require.NoError(t, err)
	require.Equal(t, medium.Memory{Class: persist.ClassVolatile, RAM: true, Flags: unix.MAP_SHARED}, mem)
	require.NoError(t, memfd.Close())

	for path, reason := range map[string]string{
		"/dev/null":         "a character device",
		os.TempDir():        "not a regular file",
		"/proc/self/status": "does not know",
	} {
		f, err := os.Open(path)
		require.NoError(t, err)
		_, err = thisMachine.Identify(f)
		require.ErrorIs(t, err, ErrClass)
		require.ErrorContains(t, err, reason)
		require.NoError(t, f.Close())
	}

	dir := tinyTmpfs(t, "size=4m")
	_, err = Create(filepath.Join(dir, "region"), CreateOptions{Name: "r", Size: testSize})
	require.NoError(t, err)
	r := opened(t, filepath.Join(dir, "region"), OpenOptions{}, thisHost)
	require.Equal(t, persist.ClassVolatile, r.Class())
	require.NoError(t, r.FlushAll())
	require.NoError(t, r.Close())
}

// A real overlay. Its files have the class of the filesystem beneath, or class volatile
// if the overlay does not sync.
func TestClassifyOverlay(t *testing.T) {
	for _, c := range []struct{ name, option string }{{"plain", ""}, {"volatile", ",volatile"}} {
		t.Run(c.name, func(t *testing.T) {
			base := tinyTmpfs(t, "size=8m")
			at := filepath.Join(base, "up, per") // needs every kind of escaping
			for _, d := range []string{at, base + "/low", base + "/work", base + "/merged"} {
				require.NoError(t, os.Mkdir(d, 0o700))
			}
			options := fmt.Sprintf("lowerdir=%s/low,upperdir=%s,workdir=%s/work%s", base, strings.ReplaceAll(at, ",", `\,`), base, c.option)
			if err := unix.Mount("overlay", base+"/merged", "overlay", 0, options); err != nil {
				t.Skipf("mount an overlay: %v (needs root)", err)
			}
			t.Cleanup(func() { require.NoError(t, unix.Unmount(base+"/merged", unix.MNT_DETACH)) })
			f, err := os.Create(base + "/merged/region")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, f.Close()) })
			up, err := upperOf(f)
			require.NoError(t, err)
			require.Equal(t, upper{magic: unix.TMPFS_MAGIC, unsynced: c.option != ""}, up)
			mem, err := thisMachine.Identify(f)
			require.NoError(t, err)
			require.Equal(t, persist.ClassVolatile, mem.Class)
		})
	}
}

func TestOverlayOptions(t *testing.T) {
	const mountinfo = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 0:27 / /m rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
32 22 0:28 / /n rw,relatime shared:2 master:1 - overlay none rw,lowerdir=/l
broken
33 22 0:29
`
	for _, c := range []struct {
		id   int
		want string
		ok   bool
	}{
		{31, "rw,lowerdir=/l,upperdir=/u,workdir=/w", true},
		{32, "rw,lowerdir=/l", true},
		{22, "", false},
		{33, "", false},
		{3, "", false},
	} {
		got, err := overlayOptions(strings.NewReader(mountinfo), c.id)
		require.Equal(t, c.want, got)
		require.Equal(t, c.ok, err == nil, "mount %d: %v", c.id, err)
	}
}

func TestParseOverlay(t *testing.T) {
	for _, c := range []struct {
		in, dir  string
		unsynced bool
	}{
		{"rw,lowerdir=/l,upperdir=/u,workdir=/w", "/u", false},
		{"upperdir=/u", "/u", false},
		{"rw,lowerdir=/l", "", false},
		{"rw,upperdir=/u,volatile", "/u", true},
		{"rw,upperdir=/u,fsync=volatile", "/u", true},
		{`rw,upperdir=/a\040b\054c,x`, "/a b,c", false},
		{`rw,upperdir=/a\134\054volatile\072b,x`, "/a,volatile:b", false},
		{`rw,upperdir=/a\134b`, `/a\b`, false},
		{`rw,upperdir=/a\12`, `/a\12`, false},
		{`upperdir=/a\`, `/a\`, false},
		{`upperdir=/a\777`, `/a\777`, false},
		{"", "", false},
		{",,,", "", false},
	} {
		dir, unsynced := parseOverlay(c.in)
		require.Equal(t, c.dir, dir, c.in)
		require.Equal(t, c.unsynced, unsynced, c.in)
	}
}

func FuzzParseOverlay(f *testing.F) {
	f.Add(`rw,upperdir=/a\040b\,c,volatile`)
	f.Add(`\`)
	f.Fuzz(func(t *testing.T, s string) {
		dir, _ := parseOverlay(s)
		require.LessOrEqual(t, len(dir), len(s))
	})
}
