package main

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"pmnbd/cmd/internal/flags"
	"pmnbd/numa"
	"pmnbd/persist/region"
)

// A nodeChoice says on which NUMA node the process runs. The zero value is auto.
type nodeChoice struct {
	off  bool
	node *int // the operator's choice
}

// UnmarshalText reads auto, off or a node's number, of a flag or the file.
func (n *nodeChoice) UnmarshalText(b []byte) error {
	switch s := string(b); s {
	case "auto", "off":
		*n = nodeChoice{off: s == "off"}
		return nil
	}
	node, err := strconv.ParseUint(string(b), 10, 16)
	if err != nil {
		return flags.Usagef("%q is not a node: use auto, off or the number of a node", b)
	}
	at := int(node)
	*n = nodeChoice{node: &at}
	return nil
}

// place confines the process to the node where its work is, before it touches memory. If the
// operator names a node, the process runs there or not at all; auto does what it can.
func (c *config) place(log *zap.Logger, sys string, confine func(unix.CPUSet) error) error {
	at, err := c.placement(sys)
	if err != nil {
		return err
	}
	where := []zap.Field{zap.Ints("regions", at.regions), zap.Ints("adapters", at.adapters)}
	all := slices.Concat(at.regions, at.adapters)
	if at.why == "" {
		all = append(all, at.node)
		where = append(where, zap.Int("node", at.node))
	}
	if slices.Sort(all); len(slices.Compact(all)) > 1 {
		log.Warn("regions, adapters and this process are not on one node: what is written crosses between nodes", where...)
	}
	if at.why != "" {
		level := zap.InfoLevel
		if at.regions == nil && at.adapters == nil {
			level = zap.DebugLevel // nothing would be faster
		}
		log.Log(level, "not confined to a node: "+at.why, where...)
		return nil
	}
	cpus, err := numa.CPUs(sys, at.node)
	if err == nil {
		err = confine(cpus)
	}
	switch {
	case err == nil:
		log.Info("confined to a node", append(where, zap.Int("cpus", cpus.Count()))...)
	case c.NUMA.node != nil:
		return fmt.Errorf("numa %d: %w", at.node, err)
	default:
		log.Warn("cannot be confined to a node", append(where, zap.Error(err))...)
	}
	return nil
}

// A placement says on which node to run, and where the work is.
type placement struct {
	node              int
	why               string // why on no node; "": run on node
	regions, adapters []int  // their nodes, as far as they are known
}

func (c *config) placement(sys string) (at placement, err error) {
	nodes, err := numa.Nodes(sys)
	switch {
	case err != nil:
		return at, fmt.Errorf("find the machine's nodes: %w", err)
	case c.NUMA.off:
		at.why = "numa is off"
	case c.NUMA.node == nil && len(nodes) < 2:
		at.why = "the machine has one"
	}
	if at.why != "" {
		return at, nil
	}
	if at.regions, err = c.regionNodes(sys); err != nil {
		return at, err
	}
	if at.adapters, err = c.adapterNodes(sys); err != nil {
		return at, err
	}
	at.node, at.why = c.NUMA.choose(at.regions, at.adapters)
	return at, nil
}

// choose picks a node, or says why it picks none. Regions come first, because the CPUs write
// back their memory.
func (n *nodeChoice) choose(regions, adapters []int) (node int, why string) {
	switch {
	case n.node != nil:
		return *n.node, ""
	case len(regions) == 1:
		return regions[0], ""
	case len(regions) > 1:
		return numa.None, "the regions, or their parts, are on several"
	case len(adapters) == 1:
		return adapters[0], ""
	case len(adapters) > 1:
		return numa.None, "the adapters are on several"
	}
	return numa.None, "neither regions nor adapters are known to be on one"
}

// regionNodes returns the nodes of the regions, as far as they are known.
func (c *config) regionNodes(sys string) ([]int, error) {
	var all []int
	for _, r := range c.Regions {
		nodes, err := r.nodes(sys)
		if err != nil {
			return nil, fmt.Errorf("find the node of region %s: %w", r.Name, err)
		}
		for _, node := range nodes {
			all = insert(all, node)
		}
	}
	return all, nil
}

// nodes returns the nodes of the region's parts, as far as they are known.
func (r *servedRegion) nodes(sys string) (all []int, err error) {
	for _, path := range r.paths() {
		dir, err := region.Device(sys, path)
		if err == nil && dir != "" {
			all, err = addNode(all, dir)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// adapterNodes returns the nodes of the adapters that carry the listeners' addresses, as far
// as they are known.
func (c *config) adapterNodes(sys string) ([]int, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []int
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil || !c.listensOn(addrs) {
			continue // the interface carries no listener, or has just gone
		}
		if all, err = addNode(all, filepath.Join(sys, "class/net", i.Name, "device")); err != nil {
			return nil, fmt.Errorf("find the node of interface %s: %w", i.Name, err)
		}
	}
	return all, nil
}

// listensOn reports whether a listener has one of an interface's addresses, or listens on all.
func (c *config) listensOn(addrs []net.Addr) bool {
	return slices.ContainsFunc(c.Listen, func(l listenAddr) bool {
		ip := net.ParseIP(l.Host)
		return ip.IsUnspecified() || slices.ContainsFunc(addrs, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip)
		})
	})
}

// addNode adds the node of a device to a sorted set, if it is known.
func addNode(all []int, dir string) ([]int, error) {
	node, err := numa.OfDevice(dir)
	if err != nil || node == numa.None {
		return all, err
	}
	return insert(all, node), nil
}

// insert adds a node to a sorted set.
func insert(all []int, node int) []int {
	if at, found := slices.BinarySearch(all, node); !found {
		all = slices.Insert(all, at, node)
	}
	return all
}
