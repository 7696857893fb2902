package lab_test

import (
	"strings"
	"testing"

	"pmnbd/rdma/verbs"
	"pmnbd/test/lab"
)

// needVerbs skips the test in builds without rdma/verbs.
func needVerbs(t *testing.T) {
	t.Helper()
	lab.Need(t)
	if !verbs.Built {
		t.Skip("this build has no RDMA verbs: build it with the tag verbs")
	}
}

// TestDiskByVerbs runs the whole product on each device, and with the provider in Go at one end
// and the kernel's siw at the other.
func TestDiskByVerbs(t *testing.T) {
	needVerbs(t)
	nvdimm := lab.Memory(t, 128<<20)
	for _, tt := range []struct{ name, device, listen, scheme string }{
		{"rxe", "rxe", "rdma://10.0.0.1:7204", "rdma"},
		{"siw", "siw", "rdma://10.0.1.1:7204", "rdma"},
		{"target in Go, initiator on siw", "siw", "iwarp://10.0.1.1:7204", "rdma"},
		{"target on siw, initiator in Go", "siw", "rdma://10.0.1.1:7204", "iwarp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := lab.Guest{Setup: []string{tt.device, "devdax", "nbd"}, NVDIMM: nvdimm}
			lab.Run(t, g, func(t *testing.T) {
				sh(t, "pmnbd-target region create --force disk "+dax)
				target := serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", tt.listen, "--region", "disk="+dax)
				_, at, _ := strings.Cut(target.ready[0], ":")
				initiator := initiate(t, tt.scheme+":"+at)
				sh(t, attach+`
					mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0
					`+mount+extend+`
					fio --name=fsync --directory=/mnt/disk --rw=randwrite --bsrange=512-64k --size=8m --fsync=8 --verify=crc32c --verify_fatal=1 --output-format=terse
					`+umount+"fsck.ext4 -fn /dev/nbd0; nbd-client -d /dev/nbd0")
				initiator.stop()
				initiate(t, tt.scheme+":"+at)
				sh(t, attach+mount+extended+umount+"nbd-client -d /dev/nbd0")
			})
		})
	}
}
