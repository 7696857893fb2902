package lab_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// benchVar names the directory for the results, from which docs/methods.md is made.
const benchVar = "PMNBD_LAB_BENCH"

// TestBench measures what the durability methods cost, in a guest whose caches are persistent, then in
// one whose caches are not: there apm is not sound on devices that place with CPU stores. Then it
// measures how block devices on the same memory do, in another guest of the first kind, and in a third
// what a second copy costs, ours and the kernel's.
func TestBench(t *testing.T) {
	needVerbs(t)
	results := os.Getenv(benchVar)
	if results == "" {
		t.Skip("a benchmark, which takes minutes: run `make lab-bench`")
	}
	found := make(map[string]map[string]json.RawMessage)
	for _, tt := range []struct {
		name string
		eadr bool
		run  func(*testing.T)
		file string // that the guest leaves, beside machine
	}{
		{"eadr", true, func(t *testing.T) { benchMethods(t, "--time 500ms --rounds 5") }, "methods"},
		{"mem-ctrl", false, func(t *testing.T) { benchMethods(t, "--time 500ms --rounds 5") }, "methods"},
		{"devices", true, benchDevices, "devices"},
		{"copies", true, benchCopies, "copies"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nvdimm := lab.Memory(t, 256<<20)
			if lab.Inside() {
				tt.run(t)
				return
			}
			self, err := os.Executable()
			require.NoError(t, err)
			// It takes longer than lab.Start allows. go test's own limit bounds it.
			m, err := lab.Boot(t.Context(), lab.Guest{
				Setup: []string{"rdma-core", "rxe", "siw", "devdax", "nbd", "ublk"}, NVDIMM: nvdimm, EADR: tt.eadr,
				Env:     []string{benchVar + "=" + results},
				Command: []string{self, "-test.v", "-test.run", "^TestBench$/^" + tt.name + "$"},
			})
			require.NoError(t, err)
			defer m.Close()
			lab.Finish(t, m)
			found[tt.name] = make(map[string]json.RawMessage)
			for _, name := range []string{"machine", tt.file} {
				raw, err := os.ReadFile(filepath.Join(m.Out, name+".json"))
				require.NoError(t, err)
				found[tt.name][name] = raw
			}
		})
	}
	if lab.Inside() || t.Failed() {
		return
	}
	write := func(name string, v any) {
		all, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(results, name), append(all, '\n'), 0o666))
	}
	for _, name := range []string{"devices", "copies"} {
		if alone, ok := found[name]; ok {
			delete(found, name)
			write(name+".json", alone)
		}
	}
	if len(found) == 2 {
		write("methods.json", found)
	}
}

// transports are where the target in the guest listens.
var transports = []struct{ name, uri string }{
	{"rxe", "rdma://10.0.0.1:7204"},
	{"siw", "rdma://10.0.1.1:7205"},
	{"go", "iwarp://127.0.0.1:7206"},
}

// benchTarget serves a new region on all transports.
func benchTarget(t *testing.T) *server {
	t.Helper()
	// Windows of an earlier region belong to nobody now.
	sh(t, "rm -rf /dev/shm/pmnbd-0; pmnbd-target region create --force disk "+dax)
	args := []string{"--insecure-no-auth", "--region", "disk=" + dax}
	for _, tr := range transports {
		args = append(args, "--listen", tr.uri)
	}
	return serve(t, "pmnbd-target", args...)
}

// benchMethods compares the methods without a block layer.
func benchMethods(t *testing.T, howLong string) {
	target := benchTarget(t)
	describe(t, target.cmd.Process.Pid)
	args := "pmnbd-bench methods " + howLong + " --json /out/methods.json"
	for _, tr := range transports {
		args += " " + tr.name + "=" + tr.uri + "/disk"
	}
	sh(t, args)
	target.stop()
}

// refusals returns the methods that benchMethods cannot measure, by the names that benches uses.
func refusals(t *testing.T) map[string]bool {
	benchMethods(t, "--time 1ms --rounds 1")
	raw, err := os.ReadFile("/out/methods.json")
	require.NoError(t, err)
	var got struct {
		Ways []struct{ Target, Method, Refused string }
	}
	require.NoError(t, json.Unmarshal(raw, &got))
	refused := make(map[string]bool)
	for _, w := range got.Ways {
		refused[w.Target+" "+w.Method] = w.Refused != ""
	}
	return refused
}

// describe returns the machine and the programs that the figures come from.
func describe(t *testing.T, target int) {
	machine := map[string]string{"accelerator": os.Getenv("PMNBD_LAB_GUEST")}
	for what, script := range map[string]string{
		"kernel":      "uname -r",
		"cpu":         "sed -n 's/^model name.*: //p' /proc/cpuinfo | sed -n 1p",
		"cpus":        "nproc",
		"persistence": "cat /sys/bus/nd/devices/region0/persistence_domain",
		"libibverbs":  fmt.Sprintf("sed -n 's|.*/libibverbs[.]so[.]||p' /proc/%d/maps | sed -n 1p", target),
		"qemu":        "qemu-system-x86_64 --version | sed -n '1s/.*version //p'",
		"fio":         "fio --version",
		"nbdkit":      "nbdkit --version",
	} {
		out, err := exec.Command("bash", "-eu", "-o", "pipefail", "-c", script).Output()
		require.NoError(t, err, what)
		machine[what] = strings.TrimSpace(string(out))
	}
	save(t, "machine", machine)
}

// save writes v as JSON to a file that the host sees.
func save(t *testing.T, name string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("/out/"+name+".json", b, 0o666))
}
