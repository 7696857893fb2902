package lab_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A bench is a block device that the benchmark attaches and detaches.
type bench struct {
	name string
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
			all = append(all, bench{name: tr.name + " " + method, path: "/dev/nbd0", up: func(t *testing.T) func() {
				initiator := initiate(t, tr.uri, "--method", method)
				sh(t, attach)
				return func() {
					sh(t, "nbd-client -d /dev/nbd0")
					initiator.stop()
				}
			}})
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
}

// benchDevices writes 4 KiB and syncs, on every block device in every round.
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
			for _, b := range benches() {
				if b.pmem != pmem || refused[b.name] {
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
// The ratio compares it with the first device in the same round.
func deviceTable(visits []visit) string {
	spread := func(v []float64, format string) string {
		slices.Sort(v)
		return fmt.Sprintf(strings.ReplaceAll("F (F–F)", "F", format), v[len(v)/2], v[0], v[len(v)-1])
	}
	var b strings.Builder
	b.WriteString("| device | write + fdatasync, µs | ratio | one job, /s | eight jobs, /s |\n|-|-:|-:|-:|-:|\n")
	devices := benches()
	for _, d := range devices {
		var times, ratios, one, eight []float64
		for _, v := range visits {
			if v.Device != d.name {
				continue
			}
			times, one, eight = append(times, v.Write+v.Sync), append(one, v.One), append(eight, v.Eight)
			for _, first := range visits {
				if first.Device == devices[0].name && first.Round == v.Round {
					ratios = append(ratios, (v.Write+v.Sync)/(first.Write+first.Sync))
				}
			}
		}
		if len(times) > 0 {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", d.name,
				spread(times, "%.0f"), spread(ratios, "%.2f"), spread(one, "%.0f"), spread(eight, "%.0f"))
		}
	}
	return b.String()
}

// fio writes 4 KiB at random places for a second, with an fdatasync after each: with one job,
// then with eight.
func (v *visit) fio(t *testing.T, path string) {
	t.Helper()
	args := []string{"--output-format=json", "--filename=" + path, "--direct=1", "--ioengine=psync", "--rw=randwrite", "--bs=4k",
		"--size=64m", "--fdatasync=1", "--time_based", "--runtime=1", "--thread", "--group_reporting", "--stonewall"}
	cmd := exec.Command("fio", append(args, "--name=one", "--name=eight", "--new_group", "--numjobs=8")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", out, &stderr)
	type latency struct {
		Percentile map[string]float64 `json:"percentile"`
	}
	var got struct {
		Jobs []struct {
			Write struct {
				IOPS float64 `json:"iops"`
				Lat  latency `json:"clat_ns"`
			} `json:"write"`
			Sync struct {
				Lat latency `json:"lat_ns"`
			} `json:"sync"`
		} `json:"jobs"`
	}
	require.NoError(t, json.Unmarshal(out, &got), "%s", out)
	require.Len(t, got.Jobs, 2)
	one, eight := got.Jobs[0], got.Jobs[1]
	require.Positive(t, one.Write.IOPS)
	const median = "50.000000"
	v.Write, v.Sync = one.Write.Lat.Percentile[median]/1e3, one.Sync.Lat.Percentile[median]/1e3
	v.One, v.Eight = one.Write.IOPS, eight.Write.IOPS
}
