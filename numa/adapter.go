package numa

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// An Adapter is an RDMA device as sysfs has it.
type Adapter struct {
	// Name is the RDMA device's, such as "mlx5_0".
	Name string
	// Node is where it is, or None.
	Node int
	// Hardware is the adapter's device, such as "0000:3b:00.0"; "" if there is none, and
	// software places with CPU stores.
	Hardware string
	// Driver is that of the hardware.
	Driver string
	// Interfaces are the network interfaces that its ports carry.
	Interfaces []string
}

// Adapters lists the RDMA devices.
func Adapters(sys string) ([]Adapter, error) {
	class := filepath.Join(sys, "class/infiniband")
	entries, err := os.ReadDir(class)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // no module of RDMA is loaded
		return nil, err
	}
	var all []Adapter
	for _, e := range entries {
		a, err := adapter(e.Name(), filepath.Join(class, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

func adapter(name, dir string) (Adapter, error) {
	a := Adapter{Name: name, Node: None}
	// Without the link it is a device of software alone: what its own directory
	// descends from is no hardware of its own.
	device, err := filepath.EvalSymlinks(filepath.Join(dir, "device"))
	if err == nil {
		if a.Node, err = OfDevice(device); err != nil {
			return a, err
		}
		a.Hardware = filepath.Base(device)
		if driver, err := os.Readlink(filepath.Join(device, "driver")); err == nil {
			a.Driver = filepath.Base(driver)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	// Each entry of each port's GID table names its interface (sysfs-class-infiniband).
	files, err := filepath.Glob(filepath.Join(dir, "ports/*/gid_attrs/ndevs/*"))
	if err != nil {
		return a, err
	}
	for _, f := range files {
		// Reading an entry that is not in use is EINVAL.
		if name, err := attribute(f); err == nil && name != "" && !slices.Contains(a.Interfaces, name) {
			a.Interfaces = append(a.Interfaces, name)
		}
	}
	return a, nil
}
