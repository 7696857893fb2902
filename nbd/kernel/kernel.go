// Package kernel drives the kernel's NBD client: it gives /dev/nbdX connections that
// a server has negotiated, replaces those that died, takes the device away again, and
// tells whose a device is.
//
// It exists so that a block device is attached with every setting said, and only ever
// touched by who attached it. It owns the messages of the generic netlink family "nbd"
// (include/uapi/linux/nbd-netlink.h) and what sysfs says of its devices; what is said
// here of the kernel's behaviour is drivers/block/nbd.c of Linux 6.12. It imports
// nbd/wire.
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
	ErrNoModule = errors.New("the kernel's nbd client is not there: modprobe nbd")
	// ErrPermission: the kernel wants CAP_SYS_ADMIN.
	ErrPermission = errors.New("the kernel refuses it to this user: run it as root (it takes CAP_SYS_ADMIN)")
	// ErrInUse: the device is attached, or somebody has it open.
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

// Open connects to the kernel, which loads the module by itself where it may.
func Open() (*Client, error) {
	conn, err := genetlink.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("open a generic netlink socket: %w", err)
	}
	return New(conn)
}

// New is a Client on conn, which it takes over.
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

// Close closes the connection; devices stay as they are.
func (c *Client) Close() error { return c.conn.Close() }

// Connect makes a device of cfg. It is ErrInUse if there is one at the index, or if
// somebody has it open.
func (c *Client) Connect(cfg Config) error {
	return c.configure(cmdConnect, cfg, "attach")
}

// Reconfigure puts cfg.Sockets in the places of those that died, as far as there are
// any; Taken tells which. The kernel refuses it if the device has another Backend. One
// without any it would take, so the caller holds the device (Device.Hold) and has
// looked whose it is.
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

// Disconnect ends a device: each connection is sent a DISC, without a FLUSH before it,
// and what is in flight fails. Whoever has the index then is hit, so the caller holds
// the device and has looked whose it is. The kernel lets go of it when nobody has it
// open any more.
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
