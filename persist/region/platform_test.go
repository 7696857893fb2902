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

	"pmnbd/internal/flush"
	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

// sysfs makes a tree of files that stands for /sys. If the content begins with "-> ", it
// makes a link, whose target is relative to the root.
func sysfs(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			require.NoError(t, os.MkdirAll(filepath.Join(root, to), 0o700))
			require.NoError(t, os.Symlink(filepath.Join(root, to), path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return root
}

// tree joins parts of a sysfs. Later parts win.
func tree(parts ...map[string]string) map[string]string {
	all := make(map[string]string)
	for _, p := range parts {
		for k, v := range p {
			if v == "" {
				delete(all, k)
			} else {
				all[k] = v
			}
		}
	}
	return all
}

const (
	acpi = "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/"
	// 1:3 is /dev/null, a character device that every machine has.
	null = "dev/char/1:3"
)

// nfit returns a region of two modules, with a device-dax device and a block device.
func nfit(domain string) map[string]string {
	return map[string]string{
		acpi + "region0/subsystem":           "-> bus/nd",
		acpi + "region0/persistence_domain":  domain + "\n",
		acpi + "region0/mappings":            "2\n",
		acpi + "region0/mapping0":            "nmem0,0,268435456,0\n",
		acpi + "region0/mapping1":            "nmem1,0,268435456,1\n",
		acpi + "nmem0/nfit/dirty_shutdown":   "2\n",
		acpi + "nmem1/nfit/dirty_shutdown":   "3\n",
		"bus/nd/devices/nmem0":               "-> " + acpi + "nmem0",
		"bus/nd/devices/nmem1":               "-> " + acpi + "nmem1",
		acpi + "region0/dax0.0/subsystem":    "-> bus/nd",
		acpi + "region0/dax0.0/dax0.0/size":  "536870912\n",
		acpi + "region0/dax0.0/dax0.0/align": "2097152\n",
		// Since 5.1 device-dax has its own bus.
		acpi + "region0/dax0.0/dax0.0/subsystem": "-> bus/dax",
		null:                                     "-> " + acpi + "region0/dax0.0/dax0.0",
	}
}

// The class of a device-dax device, by what sysfs says about it.
func TestDeviceMemory(t *testing.T) {
	const size = 536870912
	const sync = unix.MAP_SHARED_VALIDATE | unix.MAP_SYNC
	two := Platform{Regions: []string{"region0"}, Counted: true, UnsafeShutdowns: 5}
	with := func(p Platform, d Domain) Platform { p.Domain = d; return p }
	hmem := "devices/platform/hmem.0/dax0.0/"
	cxl := "devices/platform/ACPI0017:00/root0/decoder0.0/region0/"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  medium.Memory
		says  string // why it is refused, or why it is volatile
	}{
		{"ADR", nfit("memory_controller"), medium.Memory{Class: persist.ClassPMem, Platform: with(two, DomainMemory), Device: size, Flags: sync}, ""},
		{"eADR", nfit("cpu_cache"), medium.Memory{Class: persist.ClassPMem, Platform: with(two, DomainCaches), Device: size, Flags: sync}, ""},
		{"no domain: memmap=, virtio-pmem", nfit(""), medium.Memory{Class: persist.ClassVolatile, Platform: two, Device: size, Flags: unix.MAP_SHARED}, "promises no persistence domain"},
		{"an unknown domain", nfit("battery"), medium.Memory{Class: persist.ClassVolatile, Platform: two, Device: size, Flags: unix.MAP_SHARED}, "promises no persistence domain"},
		{
			"a kernel that tells no domain", tree(nfit("x"), map[string]string{acpi + "region0/persistence_domain": ""}),
			medium.Memory{Class: persist.ClassVolatile, Platform: two, Device: size, Flags: unix.MAP_SHARED}, "promises no persistence domain",
		},
		{
			"device-dax as a class, before 5.1", tree(nfit("memory_controller"), map[string]string{acpi + "region0/dax0.0/dax0.0/subsystem": "-> class/dax"}),
			medium.Memory{Class: persist.ClassPMem, Platform: with(two, DomainMemory), Device: size, Flags: sync}, "",
		},
		{
			"modules that do not count", tree(nfit("memory_controller"), map[string]string{acpi + "nmem0/nfit/dirty_shutdown": "", acpi + "nmem1/nfit/dirty_shutdown": ""}),
			medium.Memory{Class: persist.ClassPMem, Platform: Platform{Regions: []string{"region0"}, Domain: DomainMemory}, Device: size, Flags: sync}, "",
		},
		{
			"CXL modules count elsewhere", tree(nfit("cpu_cache"), map[string]string{
				acpi + "nmem0/nfit/dirty_shutdown": "", acpi + "nmem1/nfit/dirty_shutdown": "",
				acpi + "nmem0/cxl/dirty_shutdown": "7\n",
			}),
			medium.Memory{Class: persist.ClassPMem, Platform: Platform{Regions: []string{"region0"}, Domain: DomainCaches, Counted: true, UnsafeShutdowns: 7}, Device: size, Flags: sync}, "",
		},
		{
			"hmem: DRAM set aside", map[string]string{null: "-> " + hmem, hmem + "size": "4096\n", hmem + "subsystem": "-> bus/dax"},
			medium.Memory{Class: persist.ClassVolatile, Device: 4096, Flags: unix.MAP_SHARED}, "may be DRAM",
		},
		{
			"CXL ram, whose region is not of the nd bus", map[string]string{
				null: "-> " + cxl + "dax_region0/dax0.0", cxl + "subsystem": "-> bus/cxl", cxl + "persistence_domain": "memory_controller\n",
				cxl + "dax_region0/dax0.0/size": "4096\n", cxl + "dax_region0/dax0.0/subsystem": "-> bus/dax",
			},
			medium.Memory{Class: persist.ClassVolatile, Device: 4096, Flags: unix.MAP_SHARED}, "may be DRAM",
		},
		{"not device-dax", map[string]string{null: "-> devices/virtual/mem/null", "devices/virtual/mem/null/subsystem": "-> class/mem"}, medium.Memory{}, "a character device: put"},
		{"not in sysfs", nil, medium.Memory{}, "a character device that sysfs does not describe"},
		{"no size", tree(nfit("cpu_cache"), map[string]string{acpi + "region0/dax0.0/dax0.0/size": ""}), medium.Memory{}, "a device-dax device of \"\" bytes"},
		{"size 0", tree(nfit("cpu_cache"), map[string]string{acpi + "region0/dax0.0/dax0.0/size": "0\n"}), medium.Memory{}, "of \"0\" bytes"},
		{"a size past all", tree(nfit("cpu_cache"), map[string]string{acpi + "region0/dax0.0/dax0.0/size": "18446744073709551615\n"}), medium.Memory{}, "bytes"},
		{"a count that is no number", tree(nfit("cpu_cache"), map[string]string{acpi + "nmem1/nfit/dirty_shutdown": "x\n"}), medium.Memory{}, "dirty_shutdown"},
		{"a mapping of nothing", tree(nfit("cpu_cache"), map[string]string{acpi + "region0/mapping1": "../x,1\n"}), medium.Memory{}, "names no module"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The variables that make libpmem believe in persistence change nothing here.
			t.Setenv("PMEM_IS_PMEM_FORCE", "1")
			t.Setenv("PMEM2_FORCE_GRANULARITY", "CACHE_LINE")
			f, err := os.Open("/dev/null")
			require.NoError(t, err)
			defer f.Close() //nolint:errcheck // only read
			got, err := machine{sys: sysfs(t, c.files), instruction: "clwb"}.Identify(f)
			if c.want.Class == 0 {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Contains(t, got.Why, c.says)
			require.Equal(t, c.says == "", got.Why == "")
			got.Why = ""
			c.want.Align = hugePage // sysfs does not tell it
			require.Equal(t, c.want, got)
		})
	}
}

func TestDeviceAlign(t *testing.T) {
	for text, want := range map[string]uint64{"": hugePage, "2097152\n": 2 << 20, "1073741824\n": 1 << 30, "0\n": 0, "3\n": 0, "x\n": 0} {
		dir := sysfs(t, map[string]string{"dax0.0/align": text})
		got, err := deviceAlign(filepath.Join(dir, "dax0.0"))
		require.Equal(t, want, got, text)
		require.Equal(t, want == 0, err != nil, text)
	}
}

// Persistent memory is refused on a CPU or build that cannot write lines back. That
// includes eADR, because the fence is missing as well.
func TestNoInstruction(t *testing.T) {
	for _, domain := range []string{"memory_controller", "cpu_cache"} {
		f, err := os.Open("/dev/null")
		require.NoError(t, err)
		_, err = machine{sys: sysfs(t, nfit(domain)), instruction: flush.None}.Identify(f)
		require.ErrorIs(t, err, ErrClass)
		require.ErrorContains(t, err, "cannot write its cache lines back")
		require.NoError(t, f.Close())
	}
}

// A file is persistent memory if it can be mapped with MAP_SYNC and everything below its
// filesystem is in a persistence domain.
func TestFileMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	var fs unix.Statfs_t
	require.NoError(t, unix.Fstatfs(int(f.Fd()), &fs))
	if class, err := classOf(fs.Type, func() (upper, error) { return upper{}, errors.New("overlay") }); err != nil || class != persist.ClassFile {
		t.Skipf("the directory for temporary files is on filesystem type %#x, not on ext4 or xfs", fs.Type)
	}
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(f.Fd()), &st))
	block := "dev/block/" + devName(st.Dev)
	const sync = unix.MAP_SHARED_VALIDATE | unix.MAP_SYNC
	pmem := acpi + "region0/namespace0.0/block/pmem0"
	other := "devices/platform/e820_pmem/ndbus1/region1/"
	dm := "devices/virtual/block/dm-0"
	volatile := map[string]string{
		other + "subsystem": "-> bus/nd", other + "persistence_domain": "\n",
		other + "namespace1.0/block/pmem1/size": "1\n",
	}
	one := Platform{Regions: []string{"region0"}, Domain: DomainMemory, Counted: true, UnsafeShutdowns: 5}
	for _, c := range []struct {
		name  string
		files map[string]string
		dax   bool
		err   error
		want  medium.Memory
	}{
		{"an SSD", map[string]string{block: "-> devices/pci0000:00/0000:00:04.0/block/vda"}, false, nil, medium.Memory{Class: persist.ClassFile, Flags: unix.MAP_SHARED}},
		{"a device that is not in sysfs", nil, false, nil, medium.Memory{Class: persist.ClassFile, Flags: unix.MAP_SHARED}},
		{"pmem, DAX", tree(nfit("memory_controller"), map[string]string{block: "-> " + pmem}), true, nil, medium.Memory{Class: persist.ClassPMem, Flags: sync, Platform: one}},
		{"a partition, DAX", tree(nfit("memory_controller"), map[string]string{block: "-> " + pmem + "/pmem0p1"}), true, nil, medium.Memory{Class: persist.ClassPMem, Flags: sync, Platform: one}},
		{"pmem without DAX: a page cache, but the count counts", tree(nfit("memory_controller"), map[string]string{block: "-> " + pmem}), false, nil, medium.Memory{Class: persist.ClassFile, Flags: unix.MAP_SHARED, Platform: one}},
		{"DAX on memory that is not persistent", tree(volatile, map[string]string{block: "-> " + other + "namespace1.0/block/pmem1"}), true, nil, medium.Memory{Class: persist.ClassVolatile, Flags: unix.MAP_SHARED, Platform: Platform{Regions: []string{"region1"}}}},
		{"DAX on an unknown device", nil, true, nil, medium.Memory{Class: persist.ClassVolatile, Flags: unix.MAP_SHARED}},
		{"a volume on pmem", tree(nfit("memory_controller"), map[string]string{block: "-> " + dm, dm + "/slaves/pmem0": "-> " + pmem}), true, nil, medium.Memory{Class: persist.ClassPMem, Flags: sync, Platform: one}},
		{
			"a volume on two, one of them not persistent", tree(nfit("memory_controller"), volatile, map[string]string{block: "-> " + dm, dm + "/slaves/pmem0": "-> " + pmem, dm + "/slaves/pmem1": "-> " + other + "namespace1.0/block/pmem1"}), true, nil,
			medium.Memory{Class: persist.ClassVolatile, Flags: unix.MAP_SHARED, Platform: Platform{Regions: []string{"region0", "region1"}, Counted: true, UnsafeShutdowns: 5}},
		},
		{
			"a volume on two, one of them eADR", tree(nfit("memory_controller"), volatile, map[string]string{other + "persistence_domain": "cpu_cache\n", block: "-> " + dm, dm + "/slaves/pmem0": "-> " + pmem, dm + "/slaves/pmem1": "-> " + other + "namespace1.0/block/pmem1"}), true, nil,
			medium.Memory{Class: persist.ClassPMem, Flags: sync, Platform: Platform{Regions: []string{"region0", "region1"}, Domain: DomainMemory, Counted: true, UnsafeShutdowns: 5}},
		},
		{"a volume on pmem and an SSD", tree(nfit("memory_controller"), map[string]string{block: "-> " + dm, dm + "/slaves/pmem0": "-> " + pmem, dm + "/slaves/vda": "-> devices/pci0000:00/vda"}), true, nil, medium.Memory{Class: persist.ClassVolatile, Flags: unix.MAP_SHARED}},
		{"could not tell", nil, false, unix.ENOMEM, medium.Memory{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine{sys: sysfs(t, c.files), mapSync: func(int) (bool, error) { return c.dax, c.err }, instruction: "clwb"}
			got, err := m.Identify(f)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.want.Class == persist.ClassVolatile, got.Why != "")
			got.Why, c.want.DAX = "", c.dax
			require.Equal(t, c.want, got)
		})
	}
}

func devName(dev uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
}

// The device of a region, also of one that does not exist yet.
func TestDevice(t *testing.T) {
	dir := t.TempDir()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(dir, &st))
	const disk, dax = "devices/pci0000:00/0000:00:04.0/block/vda", "devices/virtual/dax0.0"
	sys := sysfs(t, map[string]string{"dev/block/" + devName(st.Dev): "-> " + disk, null: "-> " + dax})
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct{ path, want string }{
		"a file":               {file, filepath.Join(sys, disk)},
		"a file to be made":    {filepath.Join(dir, "new"), filepath.Join(sys, disk)},
		"nowhere":              {filepath.Join(dir, "no", "where"), ""},
		"a device":             {"/dev/null", filepath.Join(sys, dax)},
		"a filesystem without": {"/proc/self/stat", ""},
		"anonymous memory":     {PathMemfd, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Device(sys, c.path)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	_, err := Device(sys, filepath.Join(file, "below"))
	require.ErrorIs(t, err, unix.ENOTDIR)
}

// A file with a page cache cannot be mapped with MAP_SYNC, and mapsSync leaves no
// mapping.
func TestMapsSync(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	dax, err := mapsSync(int(f.Fd()))
	require.NoError(t, err)
	if dax {
		t.Log("the directory for temporary files is on DAX")
	}
	require.NoError(t, f.Close())
	require.Empty(t, held(t, f.Name()))
	_, err = mapsSync(-1)
	require.ErrorIs(t, err, unix.EBADF, "mapsSync must not guess")
}
