package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// TestNodes runs a target on a machine of two nodes. All of its threads and of its memory must
// be on the node of its persistent memory.
func TestNodes(t *testing.T) {
	lab.Run(t, lab.Guest{Setup: []string{"devdax"}, NVDIMM: lab.Memory(t, 64<<20), Nodes: 2}, func(t *testing.T) {
		sh(t, "pmnbd-target region create disk "+dax)
		for _, tt := range []struct {
			numa string
			node int
		}{{"auto", 1}, {"0", 0}} {
			t.Run(tt.numa, func(t *testing.T) {
				before := sharedMemory(t, tt.node)
				s := serve(t, "pmnbd-target", "--region", "disk="+dax, "--region", "scratch=memfd:,size=64M", "--allow-volatile",
					"--listen", "iwarp://127.0.0.1:0", "--numa", tt.numa)
				cpus, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", tt.node))
				require.NoError(t, err)
				threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", s.cmd.Process.Pid))
				require.NoError(t, err)
				require.NotEmpty(t, threads)
				for _, path := range threads {
					b, err := os.ReadFile(path)
					require.NoError(t, err)
					require.Contains(t, string(b), "\nCpus_allowed_list:\t"+string(cpus))
				}
				require.GreaterOrEqual(t, sharedMemory(t, tt.node)-before, 64<<10, "the memory of the other region must be on the node")
				s.stop()
			})
		}
	})
}

// TestInspectPlatform checks what inspect-platform finds out about software devices and an
// NVDIMM with eADR, and what it concludes.
func TestInspectPlatform(t *testing.T) {
	lab.Run(t, lab.Guest{Setup: []string{"rxe", "siw", "devdax"}, NVDIMM: lab.Memory(t, 64<<20), EADR: true, Nodes: 2}, func(t *testing.T) {
		sh(t, "pmnbd-target region create disk "+dax)
		const inspect = "pmnbd-target inspect-platform --region disk=" + dax
		sh(t, inspect)
		sh(t, inspect+` --json >/tmp/platform; is() { jq -e "$1" /tmp/platform || { cat /tmp/platform; false; }; }
			is '.confined == "node 1"'
			is '.persistent_memory == [{name: "region0", node: 1, persistence_domain: "cpu_cache", unsafe_shutdowns: null}]'
			is '[.adapters[] | [.name, .places_by_dma, .native_flush]] == [["rxe0", false, true], ["siw0", false, false]]'
			is '[.regions[] | [.class, .node]] == [["pmem", 1]]'
			is '[.regions[0].methods[] | [.transport, [.methods[] | [.method, .sound]]]] == [
				["iwarp", [["flush", false], ["apm", true], ["gpspm", true]]],
				["rxe0", [["flush", null], ["apm", true], ["gpspm", true]]],
				["siw0", [["flush", false], ["apm", true], ["gpspm", true]]]]'`)
	})
}

// sharedMemory returns how much of a node's memory is tmpfs and memfd, in KiB.
func sharedMemory(t *testing.T, node int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/node/node%d/meminfo", node))
	require.NoError(t, err)
	found := regexp.MustCompile(`Shmem: +(\d+) kB`).FindSubmatch(b)
	require.NotNil(t, found)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}
