//go:build verbs && cgo

package verbs

import (
	"errors"
	"syscall"
)

// maxPorts is how many ports of the connection manager's choice are tried at most.
const maxPorts = 16

// onFreePort calls try, which uses a port of the connection manager's choice, until no other
// socket has that port. Of the ports that are free, the connection manager knows its own
// alone. Where a device listens and connects by TCP, as siw does, another socket may have
// the one that it draws.
func onFreePort(try func() error) error {
	err := try()
	for n := 1; n < maxPorts && portTaken(err); n++ {
		err = try()
	}
	return err
}

// portTaken reports whether err means that another socket has the port. A socket that shares
// its port refuses others only the address that it is connected to, or was a moment ago: with
// EADDRNOTAVAIL.
func portTaken(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}
