package flags

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"pmnbd/rdma/verbs"
)

// DefaultPort is the target's TCP port if an address names none.
const DefaultPort = 7204

// An Endpoint is the address of a target or a listener, as a URI: iwarp://HOST:PORT/REGION or
// rdma://HOST:PORT/REGION, without the region for a listener.
type Endpoint struct {
	// Provider is the URI's scheme, which names the RDMA provider.
	Provider string
	// Host is a name or an address, IPv6 without brackets.
	Host string
	// Port is a TCP port; 0 lets a listener choose.
	Port uint16
	// Region is the region's name; empty for a listener.
	Region string
}

// ParseTarget reads what --target takes.
func ParseTarget(s string) (Endpoint, error) {
	e, err := parseEndpoint(s, "iwarp://HOST:PORT/REGION")
	switch {
	case err != nil:
		return e, err
	case e.Region == "":
		return e, Usagef("target %q names no region: use iwarp://HOST:PORT/REGION", s)
	case e.Port == 0:
		return e, Usagef("target %q has port 0, which only a listener can have", s)
	}
	return e, nil
}

// ParseListen reads what the target's --listen takes.
func ParseListen(s string) (Endpoint, error) {
	e, err := parseEndpoint(s, "iwarp://HOST:PORT")
	if err == nil && e.Region != "" {
		return e, Usagef("listener %q names a region: use iwarp://HOST:PORT, and --region for regions", s)
	}
	return e, err
}

func parseEndpoint(s, form string) (Endpoint, error) {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#") {
		return Endpoint{}, Usagef("%q is not an address: use %s", s, form)
	}
	switch {
	case u.Scheme == "rdma" && !verbs.Built:
		return Endpoint{}, Usagef("%q: this build has no RDMA verbs; use %s, or install libibverbs-dev, librdmacm-dev and pkg-config and make build", s, form)
	case u.Scheme != "iwarp" && u.Scheme != "rdma":
		return Endpoint{}, Usagef("%q is not an address: use %s", s, form)
	}
	e := Endpoint{Provider: u.Scheme, Host: u.Hostname(), Port: DefaultPort}
	if e.Host == "" {
		return Endpoint{}, Usagef("%q names no host: use %s (0.0.0.0 listens on every address of IPv4, [::] on those of IPv6 too)", s, form)
	}
	if _, err := netip.ParseAddr(e.Host); err != nil && strings.Contains(e.Host, ":") {
		return Endpoint{}, Usagef("%q has no IPv6 address between its brackets, or no port: use %s", s, form)
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return Endpoint{}, Usagef("%q has no port of 0 to 65535: use %s", s, form)
		}
		e.Port = uint16(n)
	}
	if e.Region = strings.TrimPrefix(u.Path, "/"); strings.Contains(e.Region, "/") {
		return Endpoint{}, Usagef("%q has more than a region's name behind the host: use %s", s, form)
	}
	return e, nil
}

// Address is HOST:PORT, as package net takes it.
func (e Endpoint) Address() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// String is the URI.
func (e Endpoint) String() string {
	u := url.URL{Scheme: e.Provider, Host: e.Address()}
	if e.Region != "" {
		u.Path = "/" + e.Region
	}
	return u.String()
}
