package lab_test

import (
	"testing"

	"pmnbd/test/lab"
)

// TestProtectedInHugePages keeps a region of class protected on hugetlbfs: it comes back from its image after a
// save, and is lost without one.
func TestProtectedInHugePages(t *testing.T) {
	g := lab.Guest{Setup: []string{"fsdax", "nbd"}, NVDIMM: lab.Memory(t, 256<<20)}
	lab.Run(t, g, func(t *testing.T) {
		const at, memory = "iwarp://127.0.0.1:7204", "/mnt/huge/disk"
		sh(t, "umount /mnt/pmem; mkdir -p "+protectedSave+" /mnt/huge; mount /dev/pmem0 "+protectedSave+`
			echo 40 >/proc/sys/vm/nr_hugepages
			mount -t hugetlbfs -o pagesize=2M huge /mnt/huge
			pmnbd-target region create disk `+memory+" --class protected --save "+protectedSave+" --size 46M; head -c 46M /dev/urandom >/run/noise")
		arguments := []string{"--insecure-no-auth", "--listen", at, "--region", "disk=" + memory + ",save=" + protectedSave}
		target := serve(t, "pmnbd-target", arguments...)
		initiate(t, at)
		sh(t, attach+"dd if=/run/noise of=/dev/nbd0 bs=1M oflag=direct conv=fsync status=none; pmnbd-target save")
		target.stop()
		sh(t, "rm "+memory) // as a boot does
		target = serve(t, "pmnbd-target", arguments...)
		sh(t, "cmp /dev/nbd0 /run/noise")
		target.stop()
		sh(t, "rm "+memory)
		serve(t, "pmnbd-target", arguments...)
		sh(t, "pmnbd-target status --json | jq -e '.[0].regions[0].protection.losses == 1'")
	})
}
