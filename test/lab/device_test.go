package lab_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
	"pmnbd/rdma/verbs"
	"pmnbd/test/lab"
)

// TestKeysSwapped registers two regions on one device, as a target does, each in the domain of
// its session. It swaps their keys: neither session may read or write the other's region.
func TestKeysSwapped(t *testing.T) {
	needVerbs(t)
	lab.Run(t, lab.Guest{Setup: []string{"rxe"}}, func(t *testing.T) {
		p, err := verbs.New(verbs.Config{})
		require.NoError(t, err)
		l, err := p.Listen(t.Context(), "10.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		for name, op := range map[string]rdma.Opcode{"write": rdma.OpWrite, "read": rdma.OpRead} {
			t.Run(name, func(t *testing.T) {
				var initiators, targets [2]*rdmatest.End
				for i := range targets {
					initiators[i], targets[i] = rdmatest.ConnectTo(t, p, l, rdmatest.Config{})
					copy(initiators[i].Region.Mem, bytes.Repeat([]byte{byte('a' + i)}, 4096))
					copy(targets[i].Region.Mem, bytes.Repeat([]byte{byte('A' + i)}, 4096))
				}
				for i, e := range initiators {
					e.Post(t, rdma.WorkRequest{Op: op, Signaled: true, Local: e.Local(0, 4096), Remote: targets[1-i].At(0)})
				}
				for i, e := range initiators {
					require.ErrorIs(t, e.Failed(t), rdma.ErrRemoteAccess)
					require.Error(t, targets[i].Failed(t))
				}
				for i := range targets {
					require.Equal(t, bytes.Repeat([]byte{byte('a' + i)}, 4096), initiators[i].Region.Mem[:4096])
					require.Equal(t, bytes.Repeat([]byte{byte('A' + i)}, 4096), targets[i].Region.Mem[:4096])
				}
			})
		}
	})
}

// TestAdapterRemoved takes the adapter away under a session. One end must say why the session
// ended: the other, on the same adapter here, may hear sooner that its peer is gone. When the
// adapter is back, the target must serve again and the device go on.
func TestAdapterRemoved(t *testing.T) {
	needVerbs(t)
	// siw is there for librdmacm, which releases a device only when it finds another.
	g := lab.Guest{Setup: []string{"siw", "rxe", "devdax", "nbd"}, NVDIMM: lab.Memory(t, 64<<20)}
	lab.Run(t, g, func(t *testing.T) {
		const at = "rdma://10.0.0.1:7204"
		sh(t, "pmnbd-target region create disk "+dax)
		serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", at, "--region", "disk="+dax)
		initiate(t, at)
		sh(t, attach+"mkfs.ext4 -q /dev/nbd0\n"+mount+extend+`
			rdma link delete rxe0
			until grep -q '`+rdma.ErrDevice.Error()+`' /run/pmnbd.log /run/pmnbd-target.log; do sleep 0.05; done
			rdma link add rxe0 type rxe netdev roce
			seq 1000 | dd of=/mnt/disk/later conv=fsync status=none
			echo 3 >/proc/sys/vm/drop_caches
			seq 1000 | cmp - /mnt/disk/later
			`+extended+umount+"fsck.ext4 -fn /dev/nbd0")
	})
}
