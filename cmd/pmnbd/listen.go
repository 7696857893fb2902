package main

import (
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"pmnbd/cmd/internal/flags"
	"pmnbd/sockio"
)

// A listenSpec is what one --listen says.
type listenSpec struct {
	network string // "unix" or "tcp"
	addr    string
}

// parseListen reads unix:/PATH and tcp:HOST:PORT; tcp: without a host is loopback.
func parseListen(s string) (listenSpec, error) {
	network, addr, ok := strings.Cut(s, ":")
	switch {
	case ok && network == "unix" && addr != "":
		path, err := filepath.Abs(addr)
		if err != nil {
			return listenSpec{}, fmt.Errorf("--listen %s: %w", s, err)
		}
		if len(path) > sockio.MaxUnixPath {
			return listenSpec{}, flags.Usagef("--listen %s: a socket's path has at most %d bytes", s, sockio.MaxUnixPath)
		}
		return listenSpec{network, path}, nil
	case ok && network == "tcp" && addr != "":
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = "", addr // tcp:PORT
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return listenSpec{}, flags.Usagef("--listen %s: use tcp:HOST:PORT, with brackets around IPv6", s)
		}
		if host == "" {
			host = "127.0.0.1"
		}
		return listenSpec{network, net.JoinHostPort(host, port)}, nil
	}
	return listenSpec{}, flags.Usagef("--listen %q: use unix:/PATH or tcp:HOST:PORT", s)
}

// listen binds the socket. A unix socket that nobody accepts on any more is
// replaced.
func (l listenSpec) listen(mode fs.FileMode) (net.Listener, error) {
	if l.network == "tcp" {
		return net.Listen("tcp", l.addr)
	}
	return sockio.ListenUnix(l.addr, mode)
}

// uri is what a client reaches the listener by.
func uri(l net.Listener, export string) string {
	name := url.PathEscape(export)
	if l.Addr().Network() == "unix" {
		// EscapedPath leaves what separates or decodes differently in a query.
		path := (&url.URL{Path: l.Addr().String()}).EscapedPath()
		path = strings.NewReplacer("&", "%26", "+", "%2B", ";", "%3B", "=", "%3D").Replace(path)
		return "nbd+unix:///" + name + "?socket=" + path
	}
	return "nbd://" + l.Addr().String() + "/" + name
}
