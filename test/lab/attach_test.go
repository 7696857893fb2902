package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

type (
	// A way is a client that makes a block device of an export.
	way        struct{ name, path, attach, detach string }
	filesystem struct{ name, mkfs, fsck string }
)

const (
	nbdDisk  = "/dev/nbd0"
	ublkDisk = "/dev/ublkb0"
)

var (
	byAttach = way{"attach", nbdDisk, "pmnbd attach disk /dev/nbd0", "pmnbd detach /dev/nbd0"}
	byUblk   = way{"attach --ublk", ublkDisk, "pmnbd attach --ublk disk /dev/ublkb0", "pmnbd detach /dev/ublkb0"}
	ways     = []way{
		{"nbd-client", nbdDisk, attach, "nbd-client -d /dev/nbd0"},
		{"nbd-client, four connections", nbdDisk, "nbd-client -C 4 -unix " + socket + " -N disk /dev/nbd0", "nbd-client -d /dev/nbd0"},
		{"nbd-client by ioctl", nbdDisk, "nbd-client -nonetlink -unix " + socket + " -N disk /dev/nbd0; until [ $(cat /sys/block/nbd0/size) -gt 0 ]; do sleep 0.05; done",
			"nbd-client -nonetlink -d /dev/nbd0"}, // it leaves the rest to a process that it starts
		byAttach,
		byUblk,
	}
	xfs         = filesystem{"xfs", "mkfs.xfs -q -f", "xfs_repair -n"}
	filesystems = []filesystem{
		{"ext4", "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0", "fsck.ext4 -fn"},
		xfs,
	}
)

// mount is a script that mounts the device.
func (w way) mount() string { return "mkdir -p /mnt/disk; mount " + w.path + " /mnt/disk\n" }

// noErrors is a script that fails if the kernel has complained of the device.
func (w way) noErrors() string {
	return "! dmesg | grep -E 'error.*" + filepath.Base(w.path) + "|" + filepath.Base(w.path) + ".*error|WARNING'\n"
}

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
			g := lab.Guest{Setup: []string{"devdax", "nbd", "ublk"}, NVDIMM: lab.Memory(t, size)}
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
					sh(t, w.attach+"\n"+fs.mkfs+" "+w.path+"\n"+w.mount()+extend+`
						fio --name=fsync --directory=/mnt/disk --rw=randwrite --bsrange=512-64k --size=8m --fsync=8 --verify=crc32c --verify_fatal=1 --output-format=terse
						`+umount+fs.fsck+" "+w.path+"\n"+w.detach+"\n"+
						w.attach+"\n"+w.mount()+extended+umount+w.detach)
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
				initiator = restart(t, nbdDisk, initiator, tt.killed, func() *server {
					next := initiate(t, target.ready[0])
					if !tt.stays {
						sh(t, "pmnbd attach disk /dev/nbd0")
					}
					return next
				})
				sh(t, "pmnbd detach /dev/nbd0")
				initiator.stop()
			})
		}
	})
}

// restart ends an initiator in the middle of a load on its device, cleanly or by a kill, and begins the
// next. No call of the load fails, and the load reads back what it wrote.
func restart(t *testing.T, path string, s *server, killed bool, begin func() *server) *server {
	t.Helper()
	load := exec.Command("fio", "--name=load", "--filename="+path, "--direct=1", "--rw=randwrite", "--bs=4k",
		"--iodepth=8", "--ioengine=libaio", "--size=8m", "--io_size=16m", "--fsync=16", "--verify=crc32c", "--verify_fatal=1")
	load.Stdout, load.Stderr = os.Stdout, os.Stdout
	stat := "awk '{ print $5 }' /sys/block/" + filepath.Base(path) + "/stat"
	sh(t, stat+" >/run/before")
	require.NoError(t, load.Start())
	ended := make(chan error, 1)
	go func() { ended <- load.Wait() }()
	sh(t, "until [ $("+stat+") -gt $(( $(cat /run/before) + 200 )) ]; do sleep 0.05; done")
	if killed {
		require.NoError(t, os.Truncate("/run/pmnbd.log", 0))
		s.kill()
	} else {
		s.stop()
	}
	select {
	case err := <-ended:
		require.FailNow(t, "the load ended before the initiator", "%v", err)
	default:
	}
	s = begin()
	if killed {
		sh(t, "grep -q 'adopting the window' /run/pmnbd.log")
	}
	require.NoError(t, <-ended)
	return s
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
