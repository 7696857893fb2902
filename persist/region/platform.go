package region

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Device returns the directory, in the sysfs mounted at sys, of the device that holds the
// memory at path: path itself, or the device of its filesystem. path need not exist yet.
// Device returns "" if there is no device, as for tmpfs and anonymous memory.
func Device(sys, path string) (string, error) {
	if path == PathMemfd {
		return "", nil
	}
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		err = unix.Stat(filepath.Dir(path), &st)
	}
	kind, dev := "block", st.Dev
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		kind, dev = "char", st.Rdev
	}
	if err == nil {
		var dir string
		if dir, err = (machine{sys: sys}).directory(kind, dev); err == nil {
			return dir, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return "", fmt.Errorf("%s: %w", path, err)
}

// maxStack is how many layers of volumes PlatformOf looks through.
const maxStack = 8

// PlatformOf identifies what lies beneath the device with directory dir in the sysfs
// mounted at sys. For a device that is not persistent memory it returns the zero
// Platform. An error means that it could not find out.
func PlatformOf(sys, dir string) (Platform, error) {
	regions, err := ndRegions(dir, maxStack)
	if err != nil || len(regions) == 0 {
		return Platform{}, err
	}
	p := Platform{Domain: DomainCaches}
	var dimms []string
	for _, r := range regions {
		p.Regions = append(p.Regions, filepath.Base(r))
		text, err := attribute(r, "persistence_domain") // kernels before 4.18 have none
		if err != nil {
			return Platform{}, err
		}
		switch d := Domain(text); {
		case !d.Persistent():
			p.Domain = DomainNone
		case d == DomainMemory && p.Domain == DomainCaches:
			p.Domain = DomainMemory
		}
		if dimms, err = modules(r, dimms); err != nil {
			return Platform{}, err
		}
	}
	slices.Sort(dimms)
	for _, d := range slices.Compact(dimms) {
		n, ok, err := unsafeShutdowns(filepath.Join(sys, "bus/nd/devices", d))
		if err != nil {
			return Platform{}, err
		}
		p.Counted = p.Counted || ok
		p.UnsafeShutdowns += n
	}
	return p, nil
}

// ndRegions lists the nd_regions that a device lies on: the one that it descends from, or
// those of its slaves (device mapper). If one slave has none, nothing promises
// persistence for the whole, and the list is empty.
func ndRegions(dir string, depth int) ([]string, error) {
	for at := dir; at != "/" && at != "."; at = filepath.Dir(at) {
		bus, err := os.Readlink(filepath.Join(at, "subsystem"))
		// CXL has regions of the same name on its own bus.
		if err == nil && filepath.Base(bus) == "nd" && strings.HasPrefix(filepath.Base(at), "region") {
			return []string{at}, nil
		}
	}
	slaves, err := os.ReadDir(filepath.Join(dir, "slaves"))
	if errors.Is(err, fs.ErrNotExist) || depth == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []string
	for _, s := range slaves {
		slave, err := filepath.EvalSymlinks(filepath.Join(dir, "slaves", s.Name()))
		if err != nil {
			return nil, err
		}
		regions, err := ndRegions(slave, depth-1)
		if err != nil || len(regions) == 0 {
			return nil, err
		}
		for _, r := range regions {
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// modules appends the names of the modules that form an nd_region. Its mappings read
// "nmem0,OFFSET,LENGTH,POSITION".
func modules(region string, names []string) ([]string, error) {
	entries, err := os.ReadDir(region)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if n, ok := strings.CutPrefix(e.Name(), "mapping"); !ok || n == "" || n == "s" {
			continue // "mappings" is the number of mappings
		}
		text, err := attribute(region, e.Name())
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(text, ",")
		if name == "" || name != filepath.Base(name) {
			return nil, fmt.Errorf("%s: %q names no module", filepath.Join(region, e.Name()), text)
		}
		names = append(names, name)
	}
	return names, nil
}

// unsafeShutdowns returns a module's count of unsafe shutdowns. ok is false if it has
// none.
func unsafeShutdowns(module string) (n uint64, ok bool, err error) {
	for _, bus := range [...]string{"nfit", "cxl"} {
		text, err := attribute(module, bus, "dirty_shutdown")
		if err != nil {
			return 0, false, err
		}
		if text == "" {
			continue
		}
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, false, fmt.Errorf("%s/%s/dirty_shutdown: %w", module, bus, err)
		}
		return n, true, nil
	}
	return 0, false, nil
}

// attribute returns the trimmed contents of a file of sysfs, or "" if there is none.
func attribute(path ...string) (string, error) {
	b, err := os.ReadFile(filepath.Join(path...))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}
