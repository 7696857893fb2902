package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"pmnbd/cmd/internal/command"
	"pmnbd/internal/flush"
	"pmnbd/numa"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
)

const inspectPlatformHelp = `Shows what the machine says of its memory and its adapters, what the configuration declares of them, and
which durability methods each region can have. Takes the flags of serve, and changes nothing.

Usage:
  pmnbd-target inspect-platform [--config FILE] [--json]
`

func inspectPlatform(call *command.Call) error {
	return inspectPlatformAt(call, numa.Sysfs, nativeFlush)
}

func inspectPlatformAt(call *command.Call, sys string, nativeFlush func() map[string]bool) error {
	var asJSON bool
	cfg, err := parse(call, func(set *pflag.FlagSet) { set.BoolVar(&asJSON, "json", false, "print JSON") })
	if err == nil && len(cfg.Regions) > 0 {
		err = cfg.check()
	}
	if err != nil {
		return err
	}
	p, err := platformOf(&cfg, sys, nativeFlush())
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(call.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(p)
	}
	_, err = io.WriteString(call.Stdout, p.text())
	return err
}

// A machineView is what inspect-platform shows. docs/configuration.md describes it as JSON. A
// node that is null is not known.
type machineView struct {
	Confined        string  `json:"confined"`
	LockLimit       *uint64 `json:"memory_lock_limit_bytes"` // of this process; null: no limit
	LockEnough      bool    `json:"memory_lock_limit_enough"`
	Flush           string  `json:"flush"`
	DirectWrite     bool    `json:"direct_write_to_pmem"`
	RelaxedOrdering bool    `json:"relaxed_ordering"`

	Memory   []memoryView         `json:"persistent_memory"`
	Adapters []adapterView        `json:"adapters"`
	Regions  []regionPlatformView `json:"regions"`
}

type memoryView struct {
	Name            string  `json:"name"`
	Node            *int    `json:"node"`
	Domain          string  `json:"persistence_domain"`
	UnsafeShutdowns *uint64 `json:"unsafe_shutdowns"` // null: not counted
}

type adapterView struct {
	Name        string   `json:"name"`
	Node        *int     `json:"node"`
	Driver      string   `json:"driver"`
	Hardware    string   `json:"hardware"`
	Interfaces  []string `json:"interfaces"`
	PlacesByDMA bool     `json:"places_by_dma"`
	NativeFlush *bool    `json:"native_flush"` // null: not known
}

type regionPlatformView struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// Parts are the paths of all parts, of a region of several.
	Parts []string `json:"parts"`
	Class string   `json:"class"` // "": not known
	Node  *int     `json:"node"`
	Note  string   `json:"note"` // why the class is not known, or serve would refuse the region
	// Methods by transport: "iwarp", or an adapter's name.
	Methods []transportView `json:"methods"`
}

type transportView struct {
	Transport string       `json:"transport"`
	Methods   []methodView `json:"methods"`
}

type methodView struct {
	Method string `json:"method"`
	Sound  *bool  `json:"sound"` // null: it shows only when a session opens
	Why    string `json:"why"`
}

// platformOf finds out everything that inspect-platform shows. A machine may lack any of it;
// what is there and cannot be read is an error.
func platformOf(c *config, sys string, nativeFlush map[string]bool) (*machineView, error) {
	p := &machineView{
		Flush: flush.Instruction(), DirectWrite: c.DirectWrite, RelaxedOrdering: c.RelaxedOrdering,
		Adapters: []adapterView{}, Regions: []regionPlatformView{}, // [] in JSON, not null
	}
	at, err := c.placement(sys)
	if err != nil {
		return nil, err
	}
	if p.Confined = "node " + strconv.Itoa(at.node); at.why != "" {
		p.Confined = "no: " + at.why
	}
	if p.Memory, err = persistentMemory(sys); err != nil {
		return nil, err
	}
	adapters, err := numa.Adapters(sys)
	if err != nil {
		return nil, err
	}
	for _, a := range adapters {
		v := adapterView{
			Name: a.Name, Node: known(a.Node), Driver: a.Driver, Hardware: a.Hardware, Interfaces: append([]string{}, a.Interfaces...),
			PlacesByDMA: a.Hardware != "",
		}
		if has, told := nativeFlush[a.Name]; told {
			v.NativeFlush = &has
		}
		p.Adapters = append(p.Adapters, v)
	}
	var total uint64
	for _, r := range c.Regions {
		v, size, err := c.regionPlatform(&r, sys, p.Adapters)
		if err != nil {
			return nil, err
		}
		p.Regions = append(p.Regions, v)
		total += size
	}
	p.LockLimit, p.LockEnough, err = lockLimit(total)
	return p, err
}

// persistentMemory lists the nd_regions.
func persistentMemory(sys string) ([]memoryView, error) {
	dirs, err := filepath.Glob(filepath.Join(sys, "bus/nd/devices/region*"))
	if err != nil {
		return nil, err
	}
	all := []memoryView{}
	for _, link := range dirs {
		dir, err := filepath.EvalSymlinks(link)
		if err != nil {
			return nil, err
		}
		platform, err := region.PlatformOf(sys, dir)
		if err != nil {
			return nil, err
		}
		node, err := numa.OfDevice(dir)
		if err != nil {
			return nil, err
		}
		m := memoryView{Name: filepath.Base(link), Node: known(node), Domain: string(platform.Domain)}
		if platform.Counted {
			m.UnsafeShutdowns = &platform.UnsafeShutdowns
		}
		all = append(all, m)
	}
	return all, nil
}

// regionPlatform finds out what inspect-platform shows of a region, and the region's size.
func (c *config) regionPlatform(r *servedRegion, sys string, adapters []adapterView) (v regionPlatformView, size uint64, err error) {
	v, size = regionPlatformView{Name: r.Name, Path: r.Path.string, Methods: []transportView{}}, uint64(r.Size)
	if len(r.Parts) > 0 {
		v.Parts = r.paths()
	}
	facts := target.Facts{DirectWrite: c.DirectWrite, RelaxedOrdering: c.RelaxedOrdering}
	nodes, err := r.nodes(sys)
	if err != nil {
		return v, size, err
	}
	if len(nodes) == 1 {
		v.Node = known(nodes[0])
	}
	paths := r.paths()
	info, err := region.Inspect(paths[0], paths[1:]...)
	switch {
	case r.Path.string == region.PathMemfd:
		facts.Class = persist.ClassVolatile
	case errors.Is(err, os.ErrNotExist) && r.Size != 0:
		v.Note = "it is not there yet: serve makes it"
	case errors.Is(err, os.ErrNotExist) && r.Save.string != "":
		v.Note = "its memory is not there: serve loads it from the image in " + r.Save.string
	case err != nil:
		v.Note = err.Error()
	case info.Class != info.Superblock.Class:
		v.Note = fmt.Sprintf("made as class %v, where it is now it is not: it is not served", info.Superblock.Class)
	default:
		facts.Class, facts.EADR, size = info.Class, info.Platform.Domain.EADR(), info.Superblock.Size
	}
	if facts.Class == 0 {
		return v, size, nil
	}
	if facts.Class == persist.ClassVolatile && !c.AllowVolatile {
		v.Note = "it is not served without allow-volatile"
	}
	if v.Note == "" && len(nodes) > 1 {
		v.Note = fmt.Sprintf("its parts are on nodes %v: what is written crosses between them", nodes)
	}
	v.Class = facts.Class.String()
	iwarp := adapterView{Name: "iwarp", NativeFlush: new(bool)}
	v.Methods = append(v.Methods, transportView{Transport: iwarp.Name, Methods: iwarp.methods(facts)})
	for _, a := range adapters {
		v.Methods = append(v.Methods, transportView{Transport: a.Name, Methods: registered(a.methods(facts), facts.Class, info.DAX)})
	}
	return v, size, nil
}

// methods judges every method for a region with facts over this adapter, the best first.
func (a *adapterView) methods(facts target.Facts) []methodView {
	facts.PlacesByDMA, facts.PersistentFlush = a.PlacesByDMA, a.NativeFlush == nil || *a.NativeFlush
	var all []methodView
	for _, m := range persist.BestFirst {
		why := target.WhyNot(m, facts)
		sound := why == persist.ReasonSound
		v := methodView{Method: m.String(), Sound: &sound, Why: why.String()}
		if sound && m == persist.MethodFlush {
			// The libraries must be able to post it, too, and to register the memory with it.
			v.Sound, v.Why = nil, "if the device registers the region with it, which shows when a session opens"
		}
		all = append(all, v)
	}
	return all
}

// registered narrows an adapter's methods down: any of them needs the region registered.
func registered(methods []methodView, class persist.Class, dax bool) []methodView {
	no := false
	for i := range methods {
		switch m := &methods[i]; {
		case class == persist.ClassFile:
			m.Sound, m.Why = &no, "an adapter does not mark the page cache dirty: use /dev/daxX.Y, a file with DAX, or an iwarp:// listener"
		case !dax || m.Sound != nil && !*m.Sound:
		case m.Method == persist.MethodFlush.String():
			m.Sound, m.Why = &no, "a file with DAX cannot be pinned: use /dev/daxX.Y"
		default:
			m.Sound, m.Why = nil, "if the device pages on demand, which shows when a session opens: a file with DAX cannot be pinned"
		}
	}
	return methods
}

// lockLimit returns how much memory the process may pin, nil for no limit, and whether that is
// enough for regions of size bytes in all, which RDMA devices need pinned.
func lockLimit(size uint64) (limit *uint64, enough bool, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return nil, false, fmt.Errorf("getrlimit: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 has two
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, false, fmt.Errorf("capget: %w", err)
	}
	if r.Cur == unix.RLIM_INFINITY || data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0 {
		return nil, true, nil // a privileged process has no limit, see getrlimit(2)
	}
	return &r.Cur, size <= r.Cur, nil
}

func known(node int) *int {
	if node == numa.None {
		return nil
	}
	return &node
}
