package lab_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A bench is a block device that the benchmark attaches and detaches.
type bench struct {
	name string
	// method is that of ours, and its transport.
	method string
	// pmem says that it needs the NVDIMM as /dev/pmem0. Otherwise it needs a target, or
	// nothing.
	pmem bool
	path string
	up   func(t *testing.T) (down func())
}

// benches returns the block devices to compare.
func benches() []bench {
	all := []bench{{name: "nbdkit memory", path: "/dev/nbd0", up: func(t *testing.T) func() {
		sh(t, `nbdkit -U /run/nbdkit.sock -P /run/nbdkit.pid memory 128M
			until [ -s /run/nbdkit.pid ]; do sleep 0.05; done
			nbd-client -unix /run/nbdkit.sock -N '' /dev/nbd0`)
		return func() { sh(t, "nbd-client -d /dev/nbd0; kill $(cat /run/nbdkit.pid); rm -f /run/nbdkit.*") }
	}}}
	for _, tr := range transports {
		for _, method := range []string{"gpspm", "apm", "flush"} {
			name := tr.name + " " + method
			for _, w := range []way{ways[0], byUblk} {
				all = append(all, bench{name: name + ", " + filepath.Base(w.path), method: name, path: w.path, up: func(t *testing.T) func() {
					initiator := initiate(t, tr.uri, "--method", method)
					sh(t, w.attach)
					return func() {
						sh(t, w.detach)
						initiator.stop()
					}
				}})
			}
		}
	}
	all = append(all, bench{name: "local pmem", pmem: true, path: "/dev/pmem0", up: func(*testing.T) func() { return func() {} }})
	for _, tr := range []struct{ name, addr string }{{"rxe", "10.0.0.1"}, {"siw", "10.0.1.1"}} {
		all = append(all, bench{name: "NVMe " + tr.name, pmem: true, path: "/dev/nvme0n1", up: func(t *testing.T) func() {
			sh(t, `modprobe -a nvmet nvmet_rdma nvme_rdma; cd /sys/kernel/config/nvmet
				mkdir -p subsystems/bench/namespaces/1 ports/1
				echo 1 >subsystems/bench/attr_allow_any_host
				echo -n /dev/pmem0 >subsystems/bench/namespaces/1/device_path
				echo 1 >subsystems/bench/namespaces/1/enable
				cd ports/1; echo rdma >addr_trtype; echo ipv4 >addr_adrfam; echo `+tr.addr+` >addr_traddr; echo 4420 >addr_trsvcid
				ln -s ../../subsystems/bench subsystems/bench
				nvme connect -t rdma -a `+tr.addr+` -s 4420 -n bench -i 1
				until [ -b /dev/nvme0n1 ]; do sleep 0.05; done`)
			return func() {
				sh(t, `nvme disconnect -n bench; cd /sys/kernel/config/nvmet
					rm ports/1/subsystems/bench; rmdir ports/1 subsystems/bench/namespaces/1 subsystems/bench`)
			}
		}})
	}
	return all
}

// A visit is what fio measured on a device in one round.
type visit struct {
	Device string `json:"device"`
	Round  int    `json:"round"`
	// Write and Sync are medians of one job, in µs.
	Write float64 `json:"write_us"`
	Sync  float64 `json:"sync_us"`
	// One and Eight count pairs of a write and a sync per second, of one job and of eight at a
	// time.
	One   float64 `json:"one_per_s"`
	Eight float64 `json:"eight_per_s"`
	// Read is the median of reads one after the other, in µs. Reads counts those per second of
	// one job that has 32 under way.
	Read  float64 `json:"read_us"`
	Reads float64 `json:"reads_per_s"`
}

// benchDevices writes 4 KiB and syncs, and reads 4 KiB, on every block device in every round. Every
// other round visits the devices in the reverse order.
func benchDevices(t *testing.T) {
	const rounds = 5
	var visits []visit
	refused := refusals(t)
	for n := range rounds {
		// The NVDIMM belongs either to our target or to the kernel. Which comes first
		// alternates by round.
		for phase := range 2 {
			pmem := (phase+n)%2 == 1
			var target *server
			if pmem {
				sh(t, "ndctl create-namespace -f -e namespace0.0 -m fsdax -M dev -a 2M >/dev/null; until [ -b /dev/pmem0 ]; do sleep 0.05; done")
			} else {
				sh(t, "ndctl create-namespace -f -e namespace0.0 -m devdax -M dev -a 2M >/dev/null; until [ -c "+dax+" ]; do sleep 0.05; done")
				target = benchTarget(t)
			}
			all := benches()
			if n%2 == 1 {
				slices.Reverse(all)
			}
			for _, b := range all {
				if b.pmem != pmem || refused[b.method] {
					continue
				}
				down := b.up(t)
				v := visit{Device: b.name, Round: n}
				v.fio(t, b.path)
				down()
				visits = append(visits, v)
			}
			if target != nil {
				target.stop()
			}
		}
	}
	save(t, "devices", visits)
	fmt.Print(deviceTable(visits))
}

// deviceTable returns a table with a row for each device: medians over the rounds, with the
// least and the most in parentheses. A time is the median of a write plus that of an fdatasync.
// Ratios compare it with other devices in the same round: with nbdkit, with NVMe over rxe, and, of
// ublk, with nbd by the same method and transport.
func deviceTable(visits []visit) string {
	spread := func(v []float64, format string) string {
		if len(v) == 0 {
			return ""
		}
		slices.Sort(v)
		return fmt.Sprintf(strings.ReplaceAll("F (F–F)", "F", format), v[len(v)/2], v[0], v[len(v)-1])
	}
	var b strings.Builder
	b.WriteString("| device | write + fdatasync, µs | ÷ nbdkit | ÷ NVMe rxe | ÷ nbd | eight jobs, /s | read, µs | ÷ nbd | reads at depth 32, /s | ÷ nbd |\n" +
		"|-|-:|-:|-:|-:|-:|-:|-:|-:|-:|\n")
	for _, d := range benches() {
		// against returns the ratios of what a device has, in the rounds in which other was visited, too.
		against := func(other string, has func(*visit) float64) string {
			var ratios []float64
			for i := range visits {
				for j := range visits {
					if visits[i].Device == d.name && visits[j].Device == other && visits[i].Round == visits[j].Round {
						ratios = append(ratios, has(&visits[i])/has(&visits[j]))
					}
				}
			}
			return spread(ratios, "%.2f")
		}
		all := func(has func(*visit) float64) string {
			var values []float64
			for i := range visits {
				if visits[i].Device == d.name {
					values = append(values, has(&visits[i]))
				}
			}
			return spread(values, "%.0f")
		}
		durable := func(v *visit) float64 { return v.Write + v.Sync }
		read := func(v *visit) float64 { return v.Read }
		reads := func(v *visit) float64 { return v.Reads }
		nbd := ""
		if rest, ok := strings.CutSuffix(d.name, filepath.Base(ublkDisk)); ok {
			nbd = rest + filepath.Base(nbdDisk)
		}
		if all(read) != "" {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", d.name,
				all(durable), against("nbdkit memory", durable), against("NVMe rxe", durable), against(nbd, durable),
				all(func(v *visit) float64 { return v.Eight }), all(read), against(nbd, read), all(reads), against(nbd, reads))
		}
	}
	return b.String()
}

// fio writes 4 KiB at random places for a second, with an fdatasync after each: with one job,
// then with eight. Then it reads as long, one block after the other, and 32 at a time.
func (v *visit) fio(t *testing.T, path string) {
	t.Helper()
	args := []string{"--output-format=json", "--filename=" + path, "--direct=1", "--bs=4k",
		"--size=64m", "--time_based", "--runtime=1", "--thread", "--group_reporting", "--stonewall", "--new_group"}
	for _, job := range []string{
		"one --ioengine=psync --rw=randwrite --fdatasync=1",
		"eight --ioengine=psync --rw=randwrite --fdatasync=1 --numjobs=8",
		"read --ioengine=psync --rw=randread",
		"reads --ioengine=libaio --rw=randread --iodepth=32",
	} {
		args = append(args, strings.Fields("--name="+job)...)
	}
	cmd := exec.Command("fio", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", out, &stderr)
	type latency struct {
		Percentile map[string]float64 `json:"percentile"`
	}
	type direction struct {
		IOPS float64 `json:"iops"`
		Lat  latency `json:"clat_ns"`
	}
	var got struct {
		Jobs []struct {
			Read  direction `json:"read"`
			Write direction `json:"write"`
			Sync  struct {
				Lat latency `json:"lat_ns"`
			} `json:"sync"`
		} `json:"jobs"`
	}
	require.NoError(t, json.Unmarshal(out, &got), "%s", out)
	require.Len(t, got.Jobs, 4)
	one, eight, read, reads := got.Jobs[0], got.Jobs[1], got.Jobs[2].Read, got.Jobs[3].Read
	require.Positive(t, one.Write.IOPS)
	const median = "50.000000"
	v.Write, v.Sync = one.Write.Lat.Percentile[median]/1e3, one.Sync.Lat.Percentile[median]/1e3
	v.One, v.Eight = one.Write.IOPS, eight.Write.IOPS
	v.Read, v.Reads = read.Lat.Percentile[median]/1e3, reads.IOPS
}
