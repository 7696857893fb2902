package status

import (
	"cmp"
	"fmt"
	"net"
	"strconv"

	"pmnbd/internal/sockio"
)

// An Address is the TCP address of the metrics. The zero value is none. It is a pflag.Value.
type Address struct{ hostPort string }

// String is the address as the flag takes it.
func (a *Address) String() string { return a.hostPort }

// Set reads HOST:PORT, or PORT on loopback.
func (a *Address) Set(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = "", s
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not an address for metrics: use PORT, on loopback, or HOST:PORT, with brackets around IPv6", s)
	}
	a.hostPort = net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
	return nil
}

// UnmarshalText reads an address in a configuration file.
func (a *Address) UnmarshalText(text []byte) error { return a.Set(string(text)) }

// Type names the flag's argument in help.
func (a *Address) Type() string { return "[HOST:]PORT" }

// Listen listens at the address. It returns nil if there is none.
func (a *Address) Listen() (net.Listener, error) {
	if a.hostPort == "" {
		return nil, nil
	}
	l, err := sockio.ListenTCP(a.hostPort)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w; --metrics HOST:PORT puts them elsewhere", err)
	}
	return l, nil
}
