package storage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A machine is a /proc and a /sys that a test makes up.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T, mountinfo string) machine {
	m := machine{t, t.TempDir()}
	m.file("proc/self/mountinfo", mountinfo)
	m.file("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse2\n")
	return m
}

func (m machine) file(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o644))
}

func (m machine) link(name, to string) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m.t, os.Symlink(filepath.Join(m.root, to), path))
}

// disk adds a disk below sys/devices with files of its directory.
func (m machine) disk(dir, number string, files map[string]string) {
	m.file(dir+"/dev", number+"\n")
	for name, text := range files {
		m.file(dir+"/"+name, text+"\n")
	}
	m.link("sys/dev/block/"+number, dir)
	m.link("sys/class/block/"+filepath.Base(dir), dir)
}

func ssd(cache string) map[string]string {
	return map[string]string{"queue/rotational": "0", "queue/write_cache": cache, "device/model": "Fast 980", "device/vendor": "Maker"}
}

const root = "27 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"

func TestDirectory(t *testing.T) {
	for _, c := range []struct {
		name   string
		mounts string
		dir    string
		make   func(machine)
		kind   Kind
		why    string
		noSync string
	}{
		{name: "SSD", mounts: root, dir: "/var", kind: Cached, why: "queue/rotational is 0, and queue/write_cache is write back", make: func(m machine) {
			m.disk("sys/devices/pci/ata1/block/sda", "8:0", ssd("write back"))
			m.disk("sys/devices/pci/ata1/block/sda/sda1", "8:1", map[string]string{"partition": "1"})
		}},
		{name: "SSD without cache", mounts: root, dir: "/", kind: Protected, why: "write through", make: func(m machine) {
			m.disk("sys/devices/pci/nvme0n1", "8:1", ssd("write through"))
		}},
		{name: "platter", mounts: root, dir: "/", kind: Rotating, why: "rotational is 1", make: func(m machine) {
			m.disk("sys/devices/pci/sda", "8:1", map[string]string{"queue/rotational": "1", "queue/write_cache": "write back"})
		}},
		{name: "virtio", mounts: root, dir: "/", kind: Virtual, why: "its driver is virtio", make: func(m machine) {
			m.disk("sys/devices/pci/virtio1/block/vda", "8:1", ssd("write back"))
		}},
		{name: "cloud", mounts: root, dir: "/", kind: Virtual, why: "Amazon Elastic Block Store", make: func(m machine) {
			m.disk("sys/devices/pci/nvme0n1", "8:1", map[string]string{"queue/rotational": "0", "device/model": "Amazon Elastic Block Store"})
		}},
		{name: "handed through", mounts: root, dir: "/", kind: Virtual, why: "this machine is virtual", make: func(m machine) {
			m.file("proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
			m.disk("sys/devices/pci/sda", "8:1", ssd("write back"))
		}},
		{name: "NVMe over a network", mounts: root, dir: "/", kind: Network, why: "tcp", make: func(m machine) {
			m.disk("sys/devices/nvme0n1", "8:1", map[string]string{"queue/rotational": "0", "queue/write_cache": "write back", "device/transport": "tcp"})
		}},
		{name: "says nothing", mounts: root, dir: "/", kind: Unknown, why: "no queue/rotational", make: func(m machine) {
			m.disk("sys/devices/odd", "8:1", nil)
		}},
		{name: "no such device", mounts: root, dir: "/", kind: Unknown, why: "no device 8:1", make: func(machine) {}},
		{name: "LVM", mounts: root, dir: "/", kind: Cached, why: "made of sda: queue", make: func(m machine) {
			m.disk("sys/devices/sda", "8:0", ssd("write back"))
			m.disk("sys/devices/virtual/dm-0", "8:1", map[string]string{"queue/rotational": "0"})
			m.link("sys/devices/virtual/dm-0/slaves/sda", "sys/devices/sda")
		}},
		{name: "RAID of two kinds", mounts: root, dir: "/", kind: Unknown, why: "several kinds", make: func(m machine) {
			m.disk("sys/devices/sda", "8:0", ssd("write back"))
			m.disk("sys/devices/sdb", "8:16", ssd("write through"))
			m.disk("sys/devices/virtual/md0", "8:1", nil)
			m.link("sys/devices/virtual/md0/slaves/sda", "sys/devices/sda")
			m.link("sys/devices/virtual/md0/slaves/sdb", "sys/devices/sdb")
		}},
		{name: "devices in a circle", mounts: root, dir: "/", kind: Unknown, why: "made of dm-0", make: func(m machine) {
			m.disk("sys/devices/virtual/dm-0", "8:1", nil)
			m.link("sys/devices/virtual/dm-0/slaves/dm-0", "sys/devices/virtual/dm-0")
		}},
		{name: "a loop device in memory", mounts: root + "28 27 0:25 / /tmp rw - tmpfs tmpfs rw\n", dir: "/", kind: Memory, why: "its file is on tmpfs", noSync: "tmpfs", make: func(m machine) {
			m.disk("sys/devices/virtual/loop0", "8:1", map[string]string{"loop/backing_file": "/tmp/image"})
		}},
		{name: "tmpfs", mounts: root + "28 27 0:25 / /dev/shm rw - tmpfs tmpfs rw\n", dir: "/dev/shm", kind: Memory, why: "tmpfs", noSync: "tmpfs", make: func(machine) {}},
		{name: "mounted over", mounts: root + "28 27 0:25 / / rw - tmpfs tmpfs rw\n", dir: "/", kind: Memory, why: "tmpfs", noSync: "tmpfs", make: func(machine) {}},
		{name: "without barriers", mounts: "27 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,nobarrier\n", dir: "/", kind: Cached, noSync: "nobarrier", make: func(m machine) {
			m.disk("sys/devices/sda", "8:1", ssd("write back"))
		}},
		{name: "btrfs", mounts: "27 1 0:31 /@ / rw - btrfs /dev/sda rw\n", dir: "/", kind: Cached, make: func(m machine) {
			m.disk("sys/devices/sda", "8:0", ssd("write back"))
		}},
		{name: "NFS", mounts: "27 1 0:31 / / rw - nfs4 host:/export rw\n", dir: "/", kind: Unknown, why: "up to the server", make: func(machine) {}},
		{name: "overlay over nothing", mounts: "27 1 0:31 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/nowhere/u\n", dir: "/", kind: Unknown, why: "overlay", make: func(machine) {}},
		{name: "overlay in memory", mounts: "27 1 0:31 / / rw - overlay overlay rw,upperdir=/up/u\n28 27 0:25 / /up rw - tmpfs tmpfs rw\n", dir: "/", kind: Memory, noSync: "tmpfs", make: func(m machine) {
			m.file("up/u/file", "")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, c.mounts)
			c.make(m)
			s := System{Root: m.root}
			mounts, err := s.mounts()
			require.NoError(t, err)
			got := s.directory(c.dir, mounts, 0)
			require.Equal(t, c.kind, got.Kind, "%+v", got)
			require.Contains(t, got.Why, c.why)
			require.NotEmpty(t, got.Why)
			if c.noSync == "" {
				require.Empty(t, got.NoSync)
			} else {
				require.Contains(t, got.NoSync, c.noSync)
			}
			require.NotEmpty(t, got.Kind.Meaning())
		})
	}
}

func TestDevice(t *testing.T) {
	m := newMachine(t, root)
	dir := "sys/devices/pci/ata1/block/sda"
	m.disk(dir, "8:0", ssd("write back"))
	m.disk(dir+"/sda1", "8:1", map[string]string{"partition": "1"})
	m.file(dir+"/stat", "1 2 3 4 50 6 7 8 9 10 11 12 13 14 15 160 17\n")
	st := System{Root: m.root}.Device(unix.Mkdev(8, 1))
	require.Equal(t, "sda", st.Device)
	require.Equal(t, "Maker", st.Vendor)
	require.Equal(t, "Fast 980", st.Model)
	writes, flushes, ok := st.Counters()
	require.True(t, ok)
	require.EqualValues(t, []uint64{50, 160}, []uint64{writes, flushes})

	m.file(dir+"/stat", "1 2 3 4 50\n")
	_, _, ok = st.Counters()
	require.False(t, ok, "an old kernel")
	m.file(dir+"/stat", "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
	m.file(dir+"/queue/iostats", "0\n")
	_, _, ok = System{Root: m.root}.Device(unix.Mkdev(8, 1)).Counters()
	require.False(t, ok, "a disk whose driver does not count")
	_, _, ok = Storage{}.Counters()
	require.False(t, ok)
}

// What this machine says of a directory makes sense.
func TestHere(t *testing.T) {
	st, err := System{}.Directory(t.TempDir())
	require.NoError(t, err)
	require.NotEmpty(t, st.Kind)
	require.NotEmpty(t, st.Filesystem)
	_, err = System{}.Directory(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestContents(t *testing.T) {
	for _, tool := range []string{"wipefs", "mkfs.ext4"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing", tool)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, make([]byte, 1<<20), 0o600))
	kinds, err := Contents(t.Context(), empty)
	require.NoError(t, err)
	require.Empty(t, kinds)

	out, err := exec.Command("mkfs.ext4", "-q", empty).CombinedOutput()
	require.NoError(t, err, "%s", out)
	before, err := os.ReadFile(empty)
	require.NoError(t, err)
	kinds, err = Contents(t.Context(), empty)
	require.NoError(t, err)
	require.Equal(t, []string{"ext4"}, kinds)
	after, err := os.ReadFile(empty)
	require.NoError(t, err)
	require.Equal(t, before, after, "it only looks")

	_, err = Contents(t.Context(), empty+"-")
	require.ErrorContains(t, err, fmt.Sprintf("%s-", empty))
	full := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	was := sbin
	defer func() { sbin = was }()
	sbin = nil
	_, err = Contents(t.Context(), empty)
	require.ErrorContains(t, err, "util-linux")
	sbin = filepath.SplitList(full)
	kinds, err = Contents(t.Context(), empty)
	require.NoError(t, err, "as for a user whose PATH has no sbin")
	require.Equal(t, []string{"ext4"}, kinds)
}
