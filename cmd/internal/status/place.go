package status

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"pmnbd/internal/sockio"
)

// suffix ends the name of every control socket in a directory.
const suffix = ".sock"

// maxName bounds the part of a socket's file name that Listen is given, in bytes, since the
// path of a unix socket must be short.
const maxName = 48

// A Place is one control socket, or a directory in which each process has its own,
// NAME-PID.sock. It is a pflag.Value.
type Place struct {
	path string
	one  bool // path is a socket, not a directory
}

// rootDir is the directory of root's processes and of the system's services.
const rootDir = "/run/pmnbd"

// DefaultPlace is the directory of this user's processes: /run/pmnbd for root, for others
// $XDG_RUNTIME_DIR/pmnbd, or a directory in their homes if that variable is not set.
func DefaultPlace() Place { return Place{path: defaultDir(os.Getuid(), os.Getenv)} }

func defaultDir(uid int, env func(string) string) string {
	if uid == 0 {
		return rootDir
	}
	if dir := env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pmnbd")
	}
	if dir := env("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, ".local", "state", "pmnbd", "run")
	}
	return ""
}

// String is the place as the flag takes it.
func (p *Place) String() string {
	switch {
	case p.path == "":
		return ""
	case p.one:
		return "unix:" + p.path
	}
	return "unix:" + p.path + "/"
}

// Set reads unix:/PATH, or unix:/DIR/ for a directory.
func (p *Place) Set(s string) error {
	path, ok := strings.CutPrefix(s, "unix:")
	if !ok || path == "" {
		return fmt.Errorf("%q is not a control socket: use unix:/PATH, or unix:/DIR/ for a socket named NAME-PID.sock in DIR", s)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	one := !strings.HasSuffix(path, "/") && abs != "/"
	if one && len(abs) > sockio.MaxUnixPath {
		return fmt.Errorf("a socket's path has at most %d bytes", sockio.MaxUnixPath)
	}
	p.path, p.one = abs, one
	return nil
}

// UnmarshalText reads a place in a configuration file.
func (p *Place) UnmarshalText(text []byte) error { return p.Set(string(text)) }

// Type names the flag's argument in help.
func (p *Place) Type() string { return "unix:/PATH" }

// Listen makes this process's socket, which only its user may open. In a directory, name tells
// people which of the sockets it is.
func (p *Place) Listen(name string) (net.Listener, error) {
	if p.path == "" {
		return nil, errors.New("control socket: neither XDG_RUNTIME_DIR nor HOME says where it goes: use --control unix:/PATH")
	}
	l, err := p.listen(name)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w; --control unix:/PATH puts it elsewhere", err)
	}
	return l, nil
}

func (p *Place) listen(name string) (net.Listener, error) {
	if err := p.misnamed(); err != nil {
		return nil, err
	}
	if p.one {
		return sockio.ListenUnix(p.path, 0o600)
	}
	if err := os.MkdirAll(p.path, 0o700); err != nil {
		return nil, err
	}
	name = url.PathEscape(name)
	path := filepath.Join(p.path, name[:min(len(name), maxName)]+"-"+strconv.Itoa(os.Getpid())+suffix)
	// The socket gets its name only once the process accepts on it. Until then Find would
	// take it for one that a dead process left behind.
	l, err := sockio.ListenUnix(strings.TrimSuffix(path, suffix)+".new", 0o600)
	if err != nil {
		return nil, err
	}
	bound := l.(*net.UnixListener)
	bound.SetUnlinkOnClose(false)
	if err := os.Rename(l.Addr().String(), path); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(l.Addr().String()))
	}
	return &named{bound, path}, nil
}

// A named listener is on a socket that was renamed after it was bound.
type named struct {
	*net.UnixListener
	path string
}

// Addr is the address at which clients reach the socket.
func (l *named) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close removes the socket's name too.
func (l *named) Close() error {
	err := l.UnixListener.Close()
	if err == nil {
		err = os.Remove(l.path)
	}
	return err
}

// misnamed returns an error if the place names one socket, and the path leads to a directory
// or another file.
func (p *Place) misnamed() error {
	info, err := os.Stat(p.path)
	switch {
	case !p.one || err != nil:
	case info.IsDir():
		return fmt.Errorf("%s is a directory: write unix:%s/, with a / at its end, for the control sockets in it", p.path, p.path)
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s is not a socket", p.path)
	}
	return nil
}

// sockets lists the paths at the place that may be control sockets.
func (p *Place) sockets() ([]string, error) {
	switch {
	case p.path == "":
		return nil, nil
	case p.one:
		return []string{p.path}, p.misnamed()
	}
	entries, err := os.ReadDir(p.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for control sockets: %w", err)
	}
	var all []string
	for _, e := range entries {
		if e.Type()&os.ModeSocket != 0 && strings.HasSuffix(e.Name(), suffix) {
			all = append(all, filepath.Join(p.path, e.Name()))
		}
	}
	return all, nil
}
