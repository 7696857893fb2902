package lab_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

type (
	// A way is a client that makes a block device of an export.
	way        struct{ name, attach, detach string }
	filesystem struct{ name, mkfs, fsck string }
)

var (
	byAttach = way{"attach", "pmnbd attach disk /dev/nbd0", "pmnbd detach /dev/nbd0"}
	ways     = []way{
		{"nbd-client", attach, "nbd-client -d /dev/nbd0"},
		{"nbd-client, four connections", "nbd-client -C 4 -unix " + socket + " -N disk /dev/nbd0", "nbd-client -d /dev/nbd0"},
		{"nbd-client by ioctl", "nbd-client -nonetlink -unix " + socket + " -N disk /dev/nbd0", "nbd-client -nonetlink -d /dev/nbd0"},
		byAttach,
	}
	xfs         = filesystem{"xfs", "mkfs.xfs -q -f", "xfs_repair -n"}
	filesystems = []filesystem{
		{"ext4", "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0", "fsck.ext4 -fn"},
		xfs,
	}
)

// carriers are the transports on which attaching is tested.
var carriers = []struct{ name, device, listen string }{
	{name: "iwarp", listen: "iwarp://127.0.0.1:7204"},
	{name: "rxe", device: "rxe", listen: "rdma://10.0.0.1:7204"},
}

// carried runs fn in a guest for each of carriers, with an initiator that serves a disk on an
// NVDIMM of size bytes.
func carried(t *testing.T, size int64, fn func(t *testing.T, name string)) {
	for _, c := range carriers {
		t.Run(c.name, func(t *testing.T) {
			g := lab.Guest{Setup: []string{"devdax", "nbd"}, NVDIMM: lab.Memory(t, size)}
			if c.device != "" {
				needVerbs(t)
				g.Setup = append(g.Setup, c.device)
			}
			lab.Run(t, g, func(t *testing.T) {
				sh(t, "pmnbd-target region create --force disk "+dax)
				device(t, c.listen)
				fn(t, c.name)
			})
		})
	}
}

// TestAttach attaches an export by every client and puts both filesystems on it. Over rxe it
// runs only what TestDiskByVerbs leaves out, because clients do not see the transport.
func TestAttach(t *testing.T) {
	carried(t, 640<<20, func(t *testing.T, carrier string) {
		ways, filesystems := ways, filesystems
		if carrier == "rxe" {
			ways, filesystems = []way{byAttach}, []filesystem{xfs}
		}
		for _, w := range ways {
			for _, fs := range filesystems {
				t.Run(w.name+" "+fs.name, func(t *testing.T) {
					sh(t, w.attach+"\n"+fs.mkfs+" /dev/nbd0\n"+mount+extend+`
						fio --name=fsync --directory=/mnt/disk --rw=randwrite --bsrange=512-64k --size=8m --fsync=8 --verify=crc32c --verify_fatal=1 --output-format=terse
						`+umount+fs.fsck+" /dev/nbd0\n"+w.detach+"\n"+
						w.attach+"\n"+mount+extended+umount+w.detach)
				})
			}
		}
	})
}

// TestAttachRestart ends an initiator under load, cleanly or by a kill, and starts it again.
// The device must go on within 30 s, after which the kernel would send its requests again.
func TestAttachRestart(t *testing.T) {
	g := lab.Guest{Setup: []string{"devdax", "nbd"}, NVDIMM: lab.Memory(t, 128<<20)}
	lab.Run(t, g, func(t *testing.T) {
		sh(t, "pmnbd-target region create disk "+dax)
		target := serve(t, "pmnbd-target", "--listen", "iwarp://127.0.0.1:7204", "--region", "disk="+dax)
		for _, tt := range []struct {
			name   string
			stays  bool // attach itself replaces the connections
			killed bool // acknowledged, unflushed writes are in the window alone
		}{
			{"one connection", false, false},
			{"four connections", true, false},
			{"one connection, killed", false, true},
			{"four connections, killed", true, true},
		} {
			t.Run(tt.name, func(t *testing.T) {
				initiator := initiate(t, target.ready[0])
				if tt.stays {
					keep(t)
				} else {
					sh(t, "pmnbd attach disk /dev/nbd0")
				}
				// The load ends by itself. The restart comes in the middle of it.
				load := exec.Command("fio", "--name=load", "--filename=/dev/nbd0", "--direct=1", "--rw=randwrite", "--bs=4k",
					"--iodepth=8", "--ioengine=libaio", "--size=8m", "--io_size=16m", "--fsync=16", "--verify=crc32c", "--verify_fatal=1")
				load.Stdout, load.Stderr = os.Stdout, os.Stdout
				sh(t, "awk '{ print $5 }' /sys/block/nbd0/stat >/run/before")
				require.NoError(t, load.Start())
				ended := make(chan error, 1)
				go func() { ended <- load.Wait() }()
				sh(t, "until [ $(awk '{ print $5 }' /sys/block/nbd0/stat) -gt $(( $(cat /run/before) + 200 )) ]; do sleep 0.05; done")
				if tt.killed {
					require.NoError(t, os.Truncate("/run/pmnbd.log", 0))
					initiator.kill()
				} else {
					initiator.stop()
				}
				select {
				case err := <-ended:
					require.FailNow(t, "the load ended before the initiator", "%v", err)
				default:
				}
				initiator = initiate(t, target.ready[0])
				if tt.killed {
					sh(t, "grep -q 'adopting the window' /run/pmnbd.log")
				}
				if !tt.stays {
					sh(t, "pmnbd attach disk /dev/nbd0")
				}
				require.NoError(t, <-ended)
				sh(t, "pmnbd detach /dev/nbd0")
				initiator.stop()
			})
		}
	})
}

// keep starts an attach that runs until the test ends.
func keep(t *testing.T) {
	t.Helper()
	keeper := exec.Command("pmnbd", "attach", "--connections", "4", "disk", "/dev/nbd0")
	keeper.Stderr = os.Stdout
	stdout, err := keeper.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, keeper.Start())
	t.Cleanup(func() {
		require.NoError(t, keeper.Process.Signal(syscall.SIGTERM))
		require.NoError(t, keeper.Wait())
	})
	_, err = stdout.Read(make([]byte, 1)) // the line that it prints when it has attached
	require.NoError(t, err)
}
