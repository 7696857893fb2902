package lab_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
	"pmnbd/rdma/rdmatest"
	"pmnbd/rdma/verbs"
	"pmnbd/test/lab"
)

// needVerbs skips the test in builds without the provider.
func needVerbs(t *testing.T) {
	t.Helper()
	lab.Need(t)
	if !verbs.Built {
		t.Skip("this build has no RDMA verbs: it lacks the tag verbs")
	}
}

// The whole product on each device, and with the provider in Go at one end and the
// kernel's siw at the other.
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

// A pair listens by one provider and dials by another.
type pair struct{ listener, dialer rdma.Provider }

func (p pair) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	return p.listener.Listen(ctx, addr)
}

func (p pair) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	return p.dialer.OpenDomain(ctx, addr)
}

// The provider in Go and the kernel's siw understand each other, either way round.
// siw asks for revision 2 without CRC, and answers what it is asked.
func TestIwarpAndSiw(t *testing.T) {
	needVerbs(t)
	for _, tt := range []struct {
		name string
		cfg  iwarp.Config
		dial bool
	}{
		{"to siw, revision 1", iwarp.Config{Revision: 1}, true},
		{"to siw, revision 1, no CRC", iwarp.Config{Revision: 1, NoCRC: true}, true},
		{"to siw, revision 2", iwarp.Config{}, true},
		{"to siw, revision 2, no CRC", iwarp.Config{NoCRC: true}, true},
		{"from siw", iwarp.Config{}, false},
		{"from siw, no CRC", iwarp.Config{NoCRC: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab.Run(t, lab.Guest{Setup: []string{"siw"}}, func(t *testing.T) {
				kernel, err := verbs.New(verbs.Config{})
				require.NoError(t, err)
				if tt.dial {
					rdmatest.Run(t, pair{kernel, iwarp.New(tt.cfg)}, "10.0.1.1:0", rdmatest.Causes, rdmatest.ReadRights)
				} else {
					rdmatest.Run(t, pair{iwarp.New(tt.cfg), kernel}, "10.0.1.1:0", rdmatest.Causes, rdmatest.Invalidation)
				}
			})
		})
	}
}
