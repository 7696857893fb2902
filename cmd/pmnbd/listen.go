package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/sockio"
)

// A listenSpec is the address of one --listen.
type listenSpec struct {
	network string // "unix" or "tcp"
	addr    string
}

// anyPort reports whether the kernel chooses the port, another one each time.
func (l listenSpec) anyPort() bool { return l.network == "tcp" && strings.HasSuffix(l.addr, ":0") }

// parseListen reads unix:/PATH or tcp:HOST:PORT. Without HOST, the address is on loopback.
func parseListen(s string) (listenSpec, error) {
	network, addr, _ := strings.Cut(s, ":")
	switch {
	case strings.HasPrefix(addr, "//") && network != "unix":
		return listenSpec{}, flags.Usagef("--listen %s: this is not a URI: use tcp:HOST:PORT, such as tcp:127.0.0.1:10809, or unix:/PATH", s)
	case network == "unix" && addr != "":
		path, err := flags.Path(addr)
		if err != nil {
			return listenSpec{}, flags.Usagef("--listen unix:%v; give --listen once for each address", err)
		}
		if path, err = filepath.Abs(path); err != nil {
			return listenSpec{}, fmt.Errorf("--listen %s: %w", s, err)
		}
		if len(path) > sockio.MaxUnixPath {
			return listenSpec{}, flags.Usagef("--listen %s: the path has %d bytes, a socket's path at most %d", s, len(path), sockio.MaxUnixPath)
		}
		return listenSpec{network, path}, nil
	case network == "tcp" && addr != "":
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = "", addr // tcp:PORT
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || strings.ContainsAny(host, "/, ") {
			return listenSpec{}, flags.Usagef("--listen %s: use tcp:HOST:PORT, with brackets around IPv6, once for each address", s)
		}
		return listenSpec{network, net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)}, nil
	}
	return listenSpec{}, flags.Usagef("--listen %q: use unix:/PATH or tcp:HOST:PORT", s)
}

// listen binds the socket. It replaces a unix socket that no process accepts on any more.
func (l listenSpec) listen(mode fs.FileMode) (net.Listener, error) {
	if l.network == "unix" {
		return sockio.ListenUnix(l.addr, mode)
	}
	tcp, err := sockio.ListenTCP(l.addr)
	if err != nil {
		return nil, flags.Listening(err)
	}
	return tcpListener{tcp}, nil
}

// handedOver returns the sockets that systemd listens on for this process, in their order
// (sd_listen_fds(3)), and unsets the variables that list them. Closing a unix socket does not
// remove its name, which is systemd's.
func handedOver() ([]net.Listener, error) {
	var all []net.Listener
	for _, f := range activation.Files(true) {
		l, err := inherited(f)
		_ = f.Close() // l has a descriptor of its own
		if err != nil {
			for _, l := range all {
				_ = l.Close() // nobody was served
			}
			return nil, fmt.Errorf("socket %q of systemd: %w", f.Name(), err)
		}
		all = append(all, l)
	}
	return all, nil
}

// inherited makes a listener of a socket on which systemd already listens.
func inherited(f *os.File) (net.Listener, error) {
	accepts, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return nil, err
	}
	if accepts == 0 {
		return nil, errors.New("it does not listen: use ListenStream= with Accept=no")
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	switch l := l.(type) {
	case *net.TCPListener:
		return tcpListener{l}, nil
	case *net.UnixListener:
		if name := l.Addr().String(); l.Addr().Network() == "unix" && strings.HasPrefix(name, "/") {
			return l, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("%s %s is not served: use ListenStream= with a path, or a TCP port", l.Addr().Network(), l.Addr()), l.Close())
}

// patience is how long a client's host may leave our probes unanswered before the connection
// ends. So the connection of a dead host is gone within two minutes, and a network that is
// repaired sooner costs nothing. The kernel of an idle client answers the probes.
// TCP_USER_TIMEOUT is not set: Linux applies it also to a peer without room, although the
// peer's kernel answers, and a client may stop reading for as long as it likes while nobody
// waits for what it holds.
const patience = 2 * time.Minute

// keepAlive sends those probes.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: patience / 4, Interval: patience / 8, Count: 6}

// A tcpListener sets keepAlive for what it accepts, since sockets made by systemd lack it.
type tcpListener struct{ *net.TCPListener }

// Accept implements net.Listener.
func (l tcpListener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	_ = c.SetKeepAliveConfig(keepAlive) // fails if the connection is broken; so does the next read
	return c, nil
}

// beyondLoopback reports whether other hosts can connect.
func beyondLoopback(l net.Listener) bool {
	a, ok := l.Addr().(*net.TCPAddr)
	return ok && !a.IP.IsLoopback()
}

// uri is the URI at which clients of l reach an export.
func uri(l net.Listener, scheme, export string) string {
	name := url.PathEscape(export)
	if l.Addr().Network() == "unix" {
		// EscapedPath leaves what separates or decodes differently in a query.
		path := (&url.URL{Path: l.Addr().String()}).EscapedPath()
		path = strings.NewReplacer("&", "%26", "+", "%2B", ";", "%3B", "=", "%3D").Replace(path)
		return scheme + "+unix:///" + name + "?socket=" + path
	}
	return scheme + "://" + l.Addr().String() + "/" + name
}
