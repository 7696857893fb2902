// Package endpoint reads the addresses of targets and listeners: iwarp://HOST:PORT/REGION,
// iwarps:// for the same encrypted, and rdma://.
//
// It exists so that commands and programs write them alike. It is only for this module, and
// imports nothing of it.
package endpoint

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// DefaultPort is the target's TCP port if an address names none, and DefaultSecurePort that for
// iwarps://, so that a target can listen on both.
const (
	DefaultPort       = 7204
	DefaultSecurePort = 7205
)

// An Endpoint is the address of a target or a listener, as a URI: iwarp://HOST:PORT/REGION,
// iwarps:// or rdma://, without the region for a listener. NAME@ before HOST names the target.
type Endpoint struct {
	// Provider is the URI's scheme, which names the RDMA provider.
	Provider string
	// Name is the name of the target, for which the URI has NAME@ before HOST; empty if it has not.
	Name string
	// Host is a name or an address, IPv6 without brackets.
	Host string
	// Port is a TCP port; 0 lets a listener choose.
	Port uint16
	// Region is the region's name; empty for a listener.
	Region string
}

// ParseTarget reads the address of a region at a target.
func ParseTarget(s string) (Endpoint, error) {
	e, err := Parse(s, "iwarp://HOST:PORT/REGION")
	switch {
	case err != nil:
		return e, err
	case e.Region == "":
		return e, fmt.Errorf("target %q names no region: use iwarp://HOST:PORT/REGION", s)
	case e.Port == 0:
		return e, fmt.Errorf("target %q has port 0, which only a listener can have", s)
	}
	return e, nil
}

// Parse reads the address of a target or a listener. Errors recommend form.
func Parse(s, form string) (Endpoint, error) {
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#") {
		return Endpoint{}, fmt.Errorf("%q is not an address: use %s", s, form)
	}
	port := uint16(DefaultPort)
	switch u.Scheme {
	case "iwarp", "rdma":
	case "iwarps":
		port = DefaultSecurePort
	default:
		return Endpoint{}, fmt.Errorf("%q is not an address: use %s", s, form)
	}
	e := Endpoint{Provider: u.Scheme, Host: u.Hostname(), Port: port}
	if u.User != nil {
		_, more := u.User.Password()
		if more {
			return Endpoint{}, fmt.Errorf("%q has a colon before the @, where the target's name stands alone: use %s", s, form)
		}
		if e.Name = u.User.Username(); e.Name == "" {
			return Endpoint{}, fmt.Errorf("%q has no target's name before the @: use %s", s, form)
		}
	}
	if e.Host == "" {
		return Endpoint{}, fmt.Errorf("%q names no host: use %s (0.0.0.0 listens on every address of IPv4, [::] on those of IPv6 too)", s, form)
	}
	if _, err := netip.ParseAddr(e.Host); err != nil && strings.Contains(e.Host, ":") {
		return Endpoint{}, fmt.Errorf("%q has no IPv6 address between its brackets, or no port: use %s", s, form)
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return Endpoint{}, fmt.Errorf("%q has no port of 0 to 65535: use %s", s, form)
		}
		e.Port = uint16(n)
	}
	if e.Region = strings.TrimPrefix(u.Path, "/"); strings.Contains(e.Region, "/") {
		return Endpoint{}, fmt.Errorf("%q has more than a region's name behind the host: use %s", s, form)
	}
	return e, nil
}

// Target is the name of the target: what stands before the @, or else the host.
func (e Endpoint) Target() string { return cmp.Or(e.Name, e.Host) }

// Encrypted reports whether the connections of e are encrypted.
func (e Endpoint) Encrypted() bool { return e.Provider == "iwarps" }

// Same reports whether e and o are one address, however they name the target there.
func (e Endpoint) Same(o Endpoint) bool {
	e.Name, o.Name = "", ""
	return e == o
}

// Address is HOST:PORT, as package net takes it.
func (e Endpoint) Address() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// String is the URI.
func (e Endpoint) String() string {
	u := url.URL{Scheme: e.Provider, Host: e.Address()}
	if e.Name != "" {
		u.User = url.User(e.Name)
	}
	if e.Region != "" {
		u.Path = "/" + e.Region
	}
	return u.String()
}
