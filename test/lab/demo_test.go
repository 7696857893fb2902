package lab_test

import (
	"testing"

	"pmnbd/test/lab"
)

// The demo, where the kernel has nbd and we are root: it attaches, too, and a file comes
// back from a filesystem. Its disk is the NVDIMM, by way of the page cache.
func TestDemo(t *testing.T) {
	lab.Run(t, lab.Guest{Setup: []string{"fsdax", "nbd"}, NVDIMM: lab.Memory(t, 640<<20)}, func(t *testing.T) {
		sh(t, `
			umount /mnt/pmem; mount /dev/pmem0 /mnt/pmem
			TMPDIR=/mnt/pmem ../../scripts/demo | tee /run/demo
			grep -q '^ext4: .* read back the same' /run/demo`)
	})
}
