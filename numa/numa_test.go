package numa

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sysfs makes a tree of files. Content that begins with "-> " makes a link instead, to a
// target that counts from the root of the tree.
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

const (
	pci    = "devices/pci0000:80/0000:80:02.0/0000:81:00.0/"
	acpi   = "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/"
	rxe    = "devices/virtual/infiniband/rxe0/"
	region = acpi + "region1/"
)

// twoNodes is a machine that has an adapter and persistent memory on node 1, and an rxe on
// top of the adapter.
var twoNodes = map[string]string{
	"devices/system/node/has_cpu":                       "0-1\n",
	"devices/system/node/node0/cpulist":                 "0-1,4\n",
	"devices/system/node/node1/cpulist":                 "2-3\n",
	"devices/system/node/node2/cpulist":                 "\n", // memory without CPUs
	pci + "numa_node":                                   "1\n",
	pci + "driver":                                      "-> bus/pci/drivers/mlx5_core",
	pci + "net/eth1/type":                               "1\n",
	pci + "net/eth1/device":                             "-> " + pci,
	"class/net/eth1":                                    "-> " + pci + "net/eth1",
	"devices/virtual/net/lo/type":                       "772\n",
	"class/net/lo":                                      "-> devices/virtual/net/lo",
	pci + "infiniband/mlx5_0/device":                    "-> " + pci,
	"class/infiniband/mlx5_0":                           "-> " + pci + "infiniband/mlx5_0",
	rxe + "ports/1/gid_attrs/ndevs/0":                   "eth1\n",
	rxe + "ports/1/gid_attrs/ndevs/1":                   "eth1\n",
	"class/infiniband/rxe0":                             "-> " + rxe,
	region + "numa_node":                                "1\n",
	region + "dax1.0/dax1.0/size":                       "4096\n",
	acpi + "region0/numa_node":                          "-1\n",
	"devices/virtual/block/dm-0/slaves/pmem0/x":         "",
	"devices/broken/numa_node":                          "x\n",
	pci + "infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0": "eth1\n",
}

func TestNodes(t *testing.T) {
	sys := sysfs(t, twoNodes)
	nodes, err := Nodes(sys)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, nodes)
	nodes, err = Nodes(t.TempDir())
	require.NoError(t, err)
	require.Empty(t, nodes, "a kernel without NUMA")
}

func TestCPUs(t *testing.T) {
	sys := sysfs(t, twoNodes)
	set, err := CPUs(sys, 0)
	require.NoError(t, err)
	var want unix.CPUSet
	for _, c := range []int{0, 1, 4} {
		want.Set(c)
	}
	require.Equal(t, want, set)
	for _, node := range []int{2, 3, -1} {
		_, err = CPUs(sys, node)
		require.ErrorContains(t, err, "has no CPUs, or does not exist")
	}
	_, err = CPUs(sysfs(t, map[string]string{"devices/system/node/node0/cpulist": "0-x\n"}), 0)
	require.ErrorContains(t, err, "CPUs of node 0: ")
}

func TestOfDevice(t *testing.T) {
	sys := sysfs(t, twoNodes)
	for name, c := range map[string]struct {
		dir  string
		want int
	}{
		"itself":                       {pci, 1},
		"what it descends from":        {region + "dax1.0/dax1.0", 1},
		"nobody knows":                 {acpi + "region0", None},
		"a device of software":         {"devices/virtual/block/dm-0", None},
		"not there":                    {"devices/nothing", None},
		"an RDMA device's":             {"class/infiniband/mlx5_0/device", 1},
		"an interface's":               {"class/net/eth1/device", 1},
		"an interface without adapter": {"class/net/lo/device", None},
	} {
		t.Run(name, func(t *testing.T) {
			node, err := OfDevice(filepath.Join(sys, c.dir))
			require.NoError(t, err)
			require.Equal(t, c.want, node)
		})
	}
	_, err := OfDevice(filepath.Join(sys, "devices/broken"))
	require.ErrorContains(t, err, `"x" is not a node`)
}

func TestAdapters(t *testing.T) {
	got, err := Adapters(sysfs(t, twoNodes))
	require.NoError(t, err)
	require.Equal(t, []Adapter{
		{Name: "mlx5_0", Node: 1, Driver: "mlx5_core", Hardware: "0000:81:00.0", Interfaces: []string{"eth1"}},
		{Name: "rxe0", Node: None, Interfaces: []string{"eth1"}},
	}, got)
	got, err = Adapters(t.TempDir())
	require.NoError(t, err)
	require.Empty(t, got, "no module of RDMA is loaded")
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"0", "0-3,8", "0-1023", "1-0", "0-1024", "", ",", "-", "99999999999999999999", "0-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		all, err := parseList(s)
		if err != nil {
			require.Empty(t, all)
			return
		}
		require.NotEmpty(t, all)
		for _, n := range all {
			require.GreaterOrEqual(t, n, 0)
			require.Less(t, n, maxCPU)
		}
	})
}
