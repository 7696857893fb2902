package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/command"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
)

// A machine of two nodes with persistent memory, an adapter and an rxe.
var platform = map[string]string{
	"devices/ndbus0/region0/subsystem":                          "-> bus/nd",
	"devices/ndbus0/region0/persistence_domain":                 "memory_controller\n",
	"devices/ndbus0/region0/numa_node":                          "1\n",
	"devices/ndbus0/region0/mapping0":                           "nmem0,0,4096,0\n",
	"bus/nd/devices/nmem0/nfit/dirty_shutdown":                  "2\n",
	"bus/nd/devices/region0":                                    "-> devices/ndbus0/region0",
	"devices/virtual/ndbus1/region1/subsystem":                  "-> bus/nd",
	"bus/nd/devices/region1":                                    "-> devices/virtual/ndbus1/region1",
	"devices/0000:81:00.0/numa_node":                            "0\n",
	"devices/0000:81:00.0/driver":                               "-> bus/pci/drivers/mlx5_core",
	"devices/0000:81:00.0/infiniband/mlx5_0/device":             "-> devices/0000:81:00.0",
	"class/infiniband/mlx5_0":                                   "-> devices/0000:81:00.0/infiniband/mlx5_0",
	"devices/virtual/infiniband/rxe0/ports/1/gid_attrs/ndevs/0": "eth1\n",
	"class/infiniband/rxe0":                                     "-> devices/virtual/infiniband/rxe0",
}

func TestInspectPlatform(t *testing.T) {
	dir := testhost.Memory(t)
	path := filepath.Join(dir, "log")
	_, err := region.Create(path, region.CreateOptions{Name: "log", Size: 1 << 20})
	require.NoError(t, err)
	args := []string{"--json", "--direct-write-to-pmem", "--region", "log=" + path,
		"--region", "new=" + filepath.Join(dir, "new") + ",size=1M", "--region", "lost=" + filepath.Join(dir, "lost")}
	flushes := func() map[string]bool { return map[string]bool{"rxe0": true} }
	var out bytes.Buffer
	call := func(args ...string) *command.Call { return command.NewCall(args, &out, io.Discard) }
	require.NoError(t, inspectPlatformAt(call(args...), sysfs(t, platform), flushes))
	var got machineView
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))

	zero, one, two, yes := 0, 1, uint64(2), true
	require.Equal(t, []memoryView{
		{Name: "region0", Node: &one, Domain: "memory_controller", UnsafeShutdowns: &two},
		{Name: "region1"},
	}, got.Memory)
	require.Equal(t, []adapterView{
		{Name: "mlx5_0", Node: &zero, Driver: "mlx5_core", Hardware: "0000:81:00.0", Interfaces: []string{}, PlacesByDMA: true},
		{Name: "rxe0", Interfaces: []string{"eth1"}, NativeFlush: &yes},
	}, got.Adapters)
	require.True(t, got.DirectWrite)
	require.Equal(t, "no: the machine has one", got.Confined)

	require.Len(t, got.Regions, 3)
	log := got.Regions[0]
	require.Equal(t, "volatile", log.Class)
	require.Equal(t, "it is not served without allow-volatile", log.Note)
	var over []string
	for _, m := range log.Methods {
		over = append(over, m.Transport)
		require.Len(t, m.Methods, len(persist.BestFirst))
	}
	require.Equal(t, []string{"iwarp", "mlx5_0", "rxe0"}, over)
	require.Equal(t, "it is not there yet: serve makes it", got.Regions[1].Note)
	require.Contains(t, got.Regions[2].Note, "no such file")
	require.Empty(t, got.Regions[2].Class)

	require.Error(t, inspectPlatformAt(call("--listen", "iwarp://0.0.0.0", "--region", "log="+path), sysfs(t, nil), flushes), "what serve would refuse")
	code, help, errs := ran("inspect-platform", "--help")
	require.Zero(t, code, errs)
	require.Contains(t, help, "--config")
}

// What is said follows persist's one table. That native FLUSH is there is no promise
// that it can be used.
func TestMethods(t *testing.T) {
	yes, no := true, false
	pmem := target.Facts{Class: persist.ClassPMem}
	declared, eADR, relaxed := pmem, pmem, pmem
	declared.DirectWrite, eADR.EADR = true, true
	relaxed.DirectWrite, relaxed.RelaxedOrdering = true, true
	for name, c := range map[string]struct {
		facts      target.Facts
		adapter    adapterView
		flush, apm *bool
	}{
		"file":                       {target.Facts{Class: persist.ClassFile, DirectWrite: true}, adapterView{PlacesByDMA: true}, &no, &no},
		"pmem over software":         {declared, adapterView{NativeFlush: &no}, &no, &no},
		"pmem over software, eADR":   {eADR, adapterView{NativeFlush: &no}, &no, &yes},
		"pmem over an adapter":       {pmem, adapterView{PlacesByDMA: true, NativeFlush: &no}, &no, &no},
		"pmem, FLUSH":                {pmem, adapterView{PlacesByDMA: true, NativeFlush: &yes}, nil, &no},
		"pmem, who knows":            {pmem, adapterView{PlacesByDMA: true}, nil, &no},
		"pmem, declared":             {declared, adapterView{PlacesByDMA: true, NativeFlush: &no}, &no, &yes},
		"pmem, declared and relaxed": {relaxed, adapterView{PlacesByDMA: true, NativeFlush: &no}, &no, &no},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.adapter.methods(c.facts)
			require.Equal(t, []string{"flush", "apm", "gpspm"}, []string{got[0].Method, got[1].Method, got[2].Method})
			require.Equal(t, []*bool{c.flush, c.apm, &yes}, []*bool{got[0].Sound, got[1].Sound, got[2].Sound})
			c.facts.PlacesByDMA = c.adapter.PlacesByDMA
			require.Equal(t, target.WhyNot(persist.MethodAPM, c.facts).String(), got[1].Why)
		})
	}
}

// What an adapter cannot register it has no method for.
func TestRegistered(t *testing.T) {
	yes, no := true, false
	eADR := target.Facts{Class: persist.ClassPMem, EADR: true}
	for name, c := range map[string]struct {
		facts target.Facts
		dax   bool
		want  []*bool // flush, apm, gpspm
		why   string  // of gpspm
	}{
		"device-dax":       {eADR, false, []*bool{nil, &yes, &yes}, "sound"},
		"DAX":              {eADR, true, []*bool{&no, nil, nil}, "pages on demand"},
		"DAX, ADR":         {target.Facts{Class: persist.ClassPMem}, true, []*bool{&no, &no, nil}, "pages on demand"},
		"DAX, not durable": {target.Facts{Class: persist.ClassVolatile}, true, []*bool{&no, &no, nil}, "pages on demand"},
		"page cache":       {target.Facts{Class: persist.ClassFile}, false, []*bool{&no, &no, &no}, "use /dev/daxX.Y, a file with DAX, or an iwarp:// listener"},
		"tmpfs":            {target.Facts{Class: persist.ClassVolatile}, false, []*bool{&no, &no, &yes}, "sound"},
	} {
		t.Run(name, func(t *testing.T) {
			got := registered((&adapterView{}).methods(c.facts), c.facts.Class, c.dax)
			require.Equal(t, c.want, []*bool{got[0].Sound, got[1].Sound, got[2].Sound})
			require.Contains(t, got[2].Why, c.why)
		})
	}
}

func TestDeviceFlush(t *testing.T) {
	for _, capabilities := range []uint64{0, capFlush, 1 << 38, ^uint64(0)} {
		e := netlink.NewAttributeEncoder()
		e.Uint32(1, 7)
		e.String(nldevName, "rxe0")
		e.Uint64(nldevCapabilities, capabilities)
		b, err := e.Encode()
		require.NoError(t, err)
		name, has, err := deviceFlush(b)
		require.NoError(t, err)
		require.Equal(t, "rxe0", name)
		require.Equal(t, capabilities&capFlush != 0, has)
		_, _, err = deviceFlush(b[:len(b)-1])
		require.Error(t, err)
	}
}

// The page names every field of the JSON.
func TestPlatformFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	for _, v := range []any{machineView{}, memoryView{}, adapterView{}, regionPlatformView{}, transportView{}, methodView{}} {
		for i := range reflect.TypeOf(v).NumField() {
			require.Contains(t, string(page), "`"+reflect.TypeOf(v).Field(i).Tag.Get("json")+"`")
		}
	}
}

func TestPlatformText(t *testing.T) {
	zero, one, two, limit, yes := 0, 1, uint64(2), uint64(8<<20), true
	adapter := (&adapterView{PlacesByDMA: true}).methods(target.Facts{Class: persist.ClassPMem})
	v := machineView{
		Confined: "node 1", LockLimit: &limit, Flush: "clwb", DirectWrite: true,
		Memory:   []memoryView{{Name: "region0", Node: &one, Domain: "memory_controller", UnsafeShutdowns: &two}, {Name: "region1", Domain: "cpu_cache"}, {Name: "region2"}},
		Adapters: []adapterView{{Name: "mlx5_0", Node: &zero, Driver: "mlx5_core", Hardware: "0000:81:00.0", Interfaces: []string{"eth1", "eth2"}, PlacesByDMA: true}, {Name: "rxe0", NativeFlush: &yes}},
		Regions: []regionPlatformView{
			{Name: "log", Path: "/dev/dax0.0", Class: "pmem", Node: &one, Methods: []transportView{{"mlx5_0", adapter}}},
			{Name: "lost", Path: "/lost", Note: "no such file"},
		},
	}
	require.Contains(t, v.text(), `confined to a node    node 1
memory lock limit     8M for this process, less than the regions need on RDMA adapters: ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit
cache lines           written back by clwb
direct-write-to-pmem  declared
relaxed-ordering      not declared

PERSISTENT MEMORY  NODE  DOMAIN                   UNSAFE SHUTDOWNS
region0            1     memory_controller (ADR)  2
region1            ?     cpu_cache (eADR)         not counted
region2            ?     nothing promised         not counted

RDMA ADAPTER  NODE  DRIVER     HARDWARE      INTERFACES  PLACES BY   NATIVE FLUSH
mlx5_0        0     mlx5_core  0000:81:00.0  eth1 eth2   DMA         ?
rxe0          ?     -          -             -           CPU stores  yes
`)
	require.Contains(t, v.text(), `
region log: class pmem, node 1, /dev/dax0.0
  over mlx5_0  flush:  if the device registers the region with it, which shows when a session opens
               apm:    no, the target's CPU caches are not persistent, and direct-write-to-pmem is not declared
               gpspm:  yes

region lost: class unknown, node ?, /lost
  no such file
`)
}
