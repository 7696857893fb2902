package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"pmnbd/numa"
)

// sysfs makes a tree of files and, where the content begins with "-> ", of links,
// with targets from the root.
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

// 1:3 is /dev/null, which stands for a device-dax device on node 1; lo stands for an
// adapter on node 0.
var twoNodes = map[string]string{
	"devices/system/node/has_cpu":       "0-1\n",
	"devices/system/node/node0/cpulist": "0-1\n",
	"devices/system/node/node1/cpulist": "2-3\n",
	"dev/char/1:3":                      "-> devices/region1/dax1.0",
	"devices/region1/numa_node":         "1\n",
	"dev/char/1:5":                      "-> devices/region0/dax0.0", // /dev/zero
	"devices/region0/numa_node":         "0\n",
	"class/net/lo/device":               "-> devices/nic",
	"devices/nic/numa_node":             "0\n",
}

func TestPlace(t *testing.T) {
	one, zero := []string{"--region", "a=/dev/null"}, []string{"--region", "b=/dev/zero"}
	memory := []string{"--region", "m=memfd:,size=1M"}
	elsewhere := []string{"--listen", "iwarp://192.0.2.1", "--insecure-no-auth"} // an address that nobody has
	const warning = "regions, adapters and this process are not on one node: what is written crosses between nodes"
	denied := errors.New("denied")
	for name, c := range map[string]struct {
		nodes string // that there are; "" for both
		args  [][]string
		fail  error
		want  int // the node, or numa.None
		logs  []string
		err   string
	}{
		"one node":                 {"0", [][]string{one}, nil, numa.None, nil, ""},
		"no NUMA":                  {"none", [][]string{one}, nil, numa.None, nil, ""},
		"off":                      {"", [][]string{one, {"--numa", "off"}}, nil, numa.None, nil, ""},
		"a region's":               {"", [][]string{one, elsewhere}, nil, 1, []string{"confined to a node"}, ""},
		"a region's and memory":    {"", [][]string{one, memory, elsewhere}, nil, 1, []string{"confined to a node"}, ""},
		"the region's, with":       {"", [][]string{one}, nil, 1, []string{warning, "confined to a node"}, ""},
		"both the same":            {"", [][]string{zero}, nil, 0, []string{"confined to a node"}, ""},
		"two regions':":            {"", [][]string{one, zero}, nil, numa.None, []string{warning, "not confined to a node: the regions, or their parts, are on several"}, ""},
		"one region's parts":       {"", [][]string{{"--region", "a=/dev/null,part=/dev/zero"}}, nil, numa.None, []string{warning, "not confined to a node: the regions, or their parts, are on several"}, ""},
		"the adapter's":            {"", [][]string{memory}, nil, 0, []string{"confined to a node"}, ""},
		"every interface":          {"", [][]string{memory, {"--listen", "iwarp://[::]", "--insecure-no-auth"}}, nil, 0, []string{"confined to a node"}, ""},
		"nobody knows":             {"", [][]string{memory, elsewhere}, nil, numa.None, nil, ""},
		"an operator's":            {"", [][]string{one, elsewhere, {"--numa", "0"}}, nil, 0, []string{warning, "confined to a node"}, ""},
		"an operator's that fails": {"", [][]string{one, elsewhere, {"--numa", "0"}}, denied, numa.None, []string{warning}, "numa 0: denied"},
		"one that is not there":    {"", [][]string{one, elsewhere, {"--numa", "7"}}, nil, numa.None, []string{warning}, "node 7 has no CPUs, or does not exist"},
		"auto that fails":          {"", [][]string{one, elsewhere}, denied, numa.None, []string{"cannot be confined to a node"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sys := sysfs(t, twoNodes)
			switch hasCPU := filepath.Join(sys, "devices/system/node/has_cpu"); c.nodes {
			case "":
			case "none":
				require.NoError(t, os.Remove(hasCPU))
			default:
				require.NoError(t, os.WriteFile(hasCPU, []byte(c.nodes), 0o600))
			}
			var args []string
			for _, a := range c.args {
				args = append(args, a...)
			}
			cfg, err := parsed(t, "", args...)
			require.NoError(t, err)
			require.NoError(t, cfg.check())
			core, logged := observer.New(zap.InfoLevel)
			node := numa.None
			err = cfg.place(zap.New(core), sys, func(cpus unix.CPUSet) error {
				if c.fail == nil {
					node = 0
					if cpus.IsSet(2) {
						node = 1
					}
				}
				return c.fail
			})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, c.want, node)
			var said []string
			for _, e := range logged.All() {
				said = append(said, e.Message)
			}
			require.Equal(t, c.logs, said)
		})
	}
}
