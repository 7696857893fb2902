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

// portTaken tells whether err is that another socket has the port. If that one shares it,
// to connect from it fails only to an address to which it is, or was a moment ago,
// connected: with EADDRNOTAVAIL.
func portTaken(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}
