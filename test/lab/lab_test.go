package lab_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pmnbd/test/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What setup prepares is there.
func TestSetup(t *testing.T) {
	nvdimm := lab.Memory(t, 64<<20)
	for _, tt := range []struct {
		name  string
		guest lab.Guest
		file  string
		has   string // what the file has in it
	}{
		{"rxe", lab.Guest{Setup: []string{"rxe"}}, "/sys/class/infiniband/rxe0/ports/1/state", "ACTIVE"},
		{"siw", lab.Guest{Setup: []string{"siw"}}, "/sys/class/infiniband/siw0/ports/1/state", "ACTIVE"},
		{"devdax", lab.Guest{Setup: []string{"devdax"}, NVDIMM: nvdimm}, "/sys/bus/nd/devices/region0/persistence_domain", "memory_controller"},
		{"eADR", lab.Guest{Setup: []string{"devdax"}, NVDIMM: nvdimm, EADR: true}, "/sys/bus/nd/devices/region0/persistence_domain", "cpu_cache"},
		{"two nodes", lab.Guest{Setup: []string{"devdax"}, NVDIMM: nvdimm, Nodes: 2}, "/sys/bus/dax/devices/dax0.0/target_node", "1"},
		{"fsdax", lab.Guest{Setup: []string{"fsdax"}, NVDIMM: lab.Memory(t, 640<<20)}, "/proc/mounts", "/mnt/pmem ext4 rw,relatime,dax"},
		{"nbd", lab.Guest{Setup: []string{"nbd"}}, "/sys/block/nbd0/size", "0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab.Run(t, tt.guest, func(t *testing.T) {
				b, err := os.ReadFile(tt.file)
				require.NoError(t, err)
				require.Contains(t, strings.TrimSpace(string(b)), tt.has)
			})
		})
	}
}
