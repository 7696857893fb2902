// Package kernel controls the NBD client of the Linux kernel, which makes block devices
// /dev/nbd0, /dev/nbd1 and so on of connections to an NBD server.
//
// A Client sends commands: Connect attaches a device, Reconfigure replaces connections that
// have died, Disconnect detaches it. The connections are sockets on which the caller has
// already negotiated. A Device reads the state of a device from sysfs, and holds it open so
// that nobody else can take it between a look and a command.
//
// The commands go by generic netlink (include/uapi/linux/nbd-netlink.h) and need
// CAP_SYS_ADMIN. What comments here say about the kernel is true of drivers/block/nbd.c in
// Linux 6.12.
package kernel

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Errors of a Client.
var (
	// ErrNoModule: the kernel has no NBD client.
	ErrNoModule = errors.New("the kernel's nbd client is not loaded: run modprobe nbd")
	// ErrPermission: the process does not have CAP_SYS_ADMIN.
	ErrPermission = errors.New("the kernel does not let this user control nbd devices: run this as root (it needs CAP_SYS_ADMIN)")
	// ErrInUse: the device is attached, or a process has it open.
	ErrInUse = errors.New("device in use")
)

const (
	familyName    = "nbd"
	familyVersion = 1
)

// The commands.
const (
	cmdConnect     = 1
	cmdDisconnect  = 2
	cmdReconfigure = 3
)

// A Client sends commands to the kernel.
type Client struct {
	conn   *genetlink.Conn
	family uint16
}

// Open connects to the kernel. The kernel loads the module nbd if it may.
func Open() (*Client, error) {
	conn, err := genetlink.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("open a generic netlink socket: %w", err)
	}
	return New(conn)
}

// New makes a Client of conn. The Client takes conn over: New closes it if it fails.
func New(conn *genetlink.Conn) (*Client, error) {
	family, err := conn.GetFamily(familyName)
	if err == nil {
		return &Client{conn, family.ID}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoModule
	} else {
		err = fmt.Errorf("look for the generic netlink family nbd: %w", err)
	}
	return nil, errors.Join(err, conn.Close())
}

// Close closes the connection to the kernel. Devices stay attached.
func (c *Client) Close() error { return c.conn.Close() }

// Connect attaches a device. It returns ErrInUse if the device is already attached, or if a
// process has it open.
func (c *Client) Connect(cfg Config) error {
	return c.configure(cmdConnect, cfg, "attach")
}

// Reconfigure replaces connections that have died by cfg.Sockets. The kernel takes only as
// many sockets as have died; Taken tells which. It refuses a device with another Backend,
// but not a device without one. So the caller first holds the device (Device.Hold) and
// looks who has attached it.
func (c *Client) Reconfigure(cfg Config) error {
	return c.configure(cmdReconfigure, cfg, "reconfigure")
}

func (c *Client) configure(command uint8, cfg Config, what string) error {
	attrs, err := cfg.encode()
	if err == nil {
		err = c.execute(command, attrs)
	}
	if err != nil {
		return fmt.Errorf("%s /dev/nbd%d: %w", what, cfg.Index, err)
	}
	return nil
}

// Disconnect detaches a device. The kernel sends a DISC on each connection, without a FLUSH
// before it, and fails outstanding requests. It detaches whatever device has the index. So
// the caller first holds the device and looks who has attached it. The kernel releases the
// index when no process has the device open any more.
func (c *Client) Disconnect(index uint32) error {
	e := netlink.NewAttributeEncoder()
	e.Uint32(attrIndex, index)
	attrs, err := e.Encode()
	if err == nil {
		err = c.execute(cmdDisconnect, attrs)
	}
	if err != nil {
		return fmt.Errorf("detach /dev/nbd%d: %w", index, err)
	}
	return nil
}

func (c *Client) execute(command uint8, attrs []byte) error {
	m := genetlink.Message{Header: genetlink.Header{Command: command, Version: familyVersion}, Data: attrs}
	_, err := c.conn.Execute(m, c.family, netlink.Request|netlink.Acknowledge)
	switch {
	case errors.Is(err, unix.EPERM):
		return ErrPermission
	case errors.Is(err, unix.EBUSY):
		return ErrInUse
	}
	return err
}
