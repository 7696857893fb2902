package lab_test

import (
	"testing"

	"pmnbd/test/lab"
)

// TestDemo runs the demo as root on a kernel that has nbd, so the demo also attaches a device
// and reads a file back from a filesystem. The demo's disk is the NVDIMM, through the page
// cache. It ends with a report.
func TestDemo(t *testing.T) {
	lab.Run(t, lab.Guest{Setup: []string{"fsdax", "nbd"}, NVDIMM: lab.Memory(t, 640<<20)}, func(t *testing.T) {
		sh(t, `
			umount /mnt/pmem; mount /dev/pmem0 /mnt/pmem
			TMPDIR=/mnt/pmem ../../scripts/demo | tee /run/demo
			grep -q '^ext4: .* read back the same' /run/demo
			grep -q 'an append of 4 KiB with an fsync takes .* on memory region' /run/demo
			if grep 'no further than the page cache' /run/demo; then exit 1; fi # Linux does not count an NVDIMM's writes
			report=$(sed -n 's/^With charts, for a browser: //p' /run/demo)
			grep -q '<title>What does an fsync cost?</title>' "$report"`)
	})
}
