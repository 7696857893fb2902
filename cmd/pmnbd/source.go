package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
	"pmnbd/status"
)

// A source is an export that a process serves on a unix socket of this machine.
type source struct {
	export, socket string
	pid            int
	started        time.Time
	device         remote.Snapshot
}

// same tells whether both are of one process: connections to either are to the other.
func (s *source) same(o *source) bool {
	return s.export == o.export && s.socket == o.socket && s.pid == o.pid && s.started.Equal(o.started)
}

// A want says which source; what is empty may be any.
type want struct{ export, socket string }

// parseWant reads an export's name, or nbd+unix:///EXPORT?socket=PATH.
func parseWant(s string) (want, error) {
	scheme, _, isURI := strings.Cut(s, "://")
	if isURI && scheme != "nbd+unix" {
		return want{}, fmt.Errorf("%q is not served here on a unix socket without TLS: give the name of an export, as pmnbd status shows it, or nbd+unix:///EXPORT?socket=PATH", s)
	}
	if !strings.HasPrefix(s, "nbd+unix:") {
		return want{export: s}, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host != "" || u.Query().Get("socket") == "" {
		return want{}, fmt.Errorf("%q is no URI of a unix socket: use nbd+unix:///EXPORT?socket=PATH", s)
	}
	return want{strings.TrimPrefix(u.Path, "/"), u.Query().Get("socket")}, nil
}

func (w want) String() string {
	s := "an export"
	if w.export != "" {
		s = fmt.Sprintf("export %q", w.export)
	}
	if w.socket != "" {
		s += " on " + w.socket
	}
	return s
}

// findSource looks for w at the control sockets of p. Where w names nothing all of them
// must answer: another could be meant.
func findSource(ctx context.Context, p *status.Place, w want) (*source, error) {
	all, err := status.Find[report](ctx, p, program)
	var found []*source
	var uris []string
	for _, f := range all {
		for i, e := range f.Document.Exports {
			// A URI without a name means the default export, which is the first.
			if w.export != e.Name && (w.export != "" || w.socket != "" && i > 0) {
				continue
			}
			for _, uri := range e.Listen {
				l, err := parseWant(uri)
				if err == nil && l.socket != "" && (w.socket == "" || w.socket == l.socket) {
					found = append(found, &source{e.Name, l.socket, f.Document.PID, f.Document.Started, e.Device})
					uris = append(uris, uri)
					break
				}
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, errors.Join(fmt.Errorf("no pmnbd serves %v on a unix socket without TLS: looked at %v", w, p), err)
	case 1:
		if err != nil && w == (want{}) {
			return nil, fmt.Errorf("name the export: it could be another than %s: %w", uris[0], err)
		}
		return found[0], nil
	}
	return nil, fmt.Errorf("several could be meant, name one: %s", strings.Join(uris, " "))
}

// connectTimeout bounds a negotiation. A server on the same machine needs no time.
const connectTimeout = 10 * time.Second

// connect makes a connection in transmission.
func (s *source) connect(ctx context.Context) (sock *os.File, export wire.Export, sizes wire.BlockSizes, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", s.socket)
	if err != nil {
		return nil, export, sizes, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	c, err := client.New(conn, client.Config{Export: s.export})
	stop()
	if err != nil {
		return nil, export, sizes, err // it closed conn
	}
	sock, err = conn.(*net.UnixConn).File()
	err = errors.Join(err, c.Close()) // the file is another descriptor of the socket
	return sock, c.Export(), c.BlockSizes(), err
}
