package numa

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// An Adapter is an RDMA device as sysfs describes it.
type Adapter struct {
	// Name is the RDMA device's name, such as "mlx5_0".
	Name string
	// Node is its node, or None.
	Node int
	// Hardware is the device on a bus, such as "0000:3b:00.0". It is "" for a device of
	// software, which places with CPU stores.
	Hardware string
	// Driver is the driver of the hardware.
	Driver string
	// Interfaces are the network interfaces of its ports.
	Interfaces []string
}

// Adapters returns the RDMA devices. Without a kernel module for RDMA there are none.
func Adapters(sys string) ([]Adapter, error) {
	class := filepath.Join(sys, "class/infiniband")
	entries, err := os.ReadDir(class)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is missing if no RDMA module is loaded
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
	// Without this link it is a device of software. Its directory may have an ancestor
	// that is hardware, but that is not its own.
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
	// Each entry of a port's GID table names its interface (sysfs-class-infiniband).
	files, err := filepath.Glob(filepath.Join(dir, "ports/*/gid_attrs/ndevs/*"))
	if err != nil {
		return a, err
	}
	for _, f := range files {
		// Reading an unused entry fails with EINVAL.
		if name, err := attribute(f); err == nil && name != "" && !slices.Contains(a.Interfaces, name) {
			a.Interfaces = append(a.Interfaces, name)
		}
	}
	return a, nil
}
