package main

import (
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The request to NETLINK_RDMA (linux/rdma_netlink.h), and the capability to look for
// (rdma/ib_user_verbs.h, IB_UVERBS_DEVICE_FLUSH_PERSISTENT).
const (
	nldevGet          = 5<<10 | 1 // RDMA_NLDEV_CMD_GET of RDMA_NL_NLDEV
	nldevName         = 2
	nldevCapabilities = 4
	capFlush          = 1 << 39
)

// nativeFlush reports, by name, whether an RDMA device has native persistent FLUSH. Devices
// that the kernel does not list are not in the map.
func nativeFlush() map[string]bool {
	has := make(map[string]bool)
	c, err := netlink.Dial(unix.NETLINK_RDMA, nil)
	if err != nil {
		return has // the kernel has no RDMA modules loaded
	}
	defer c.Close() //nolint:errcheck // the socket is only read
	all, err := c.Execute(netlink.Message{Header: netlink.Header{Type: nldevGet, Flags: netlink.Request | netlink.Dump}})
	if err != nil {
		return has
	}
	for _, m := range all {
		if name, flush, err := deviceFlush(m.Data); err == nil {
			has[name] = flush
		}
	}
	return has
}

// deviceFlush reads the kernel's attributes of one device.
func deviceFlush(attributes []byte) (name string, has bool, err error) {
	d, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return "", false, err
	}
	for d.Next() {
		switch d.Type() {
		case nldevName:
			name = d.String()
		case nldevCapabilities:
			has = d.Uint64()&capFlush != 0
		}
	}
	return name, has, d.Err()
}
