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

// A source is an export that is served on a unix socket of this machine.
type source struct {
	export, socket string
	device         remote.Snapshot
}

// isURI tells a URI from an export's name, which may contain anything.
func isURI(s string) bool { return strings.HasPrefix(s, "nbd+unix://") }

// parseURI reads nbd+unix:///EXPORT?socket=PATH.
func parseURI(s string) (export, socket string, err error) {
	u, err := url.Parse(s)
	if err == nil {
		socket = u.Query().Get("socket")
	}
	if err != nil || u.Scheme != "nbd+unix" || u.Host != "" || socket == "" {
		return "", "", fmt.Errorf("%q is no URI of a unix socket: use nbd+unix:///EXPORT?socket=PATH", s)
	}
	return strings.TrimPrefix(u.Path, "/"), socket, nil
}

// findSource looks at p for want: an export's name, a URI, or "" for the
// only one that there is.
func findSource(ctx context.Context, p *status.Place, want string) (*source, error) {
	wantSocket := ""
	byURI := isURI(want)
	if byURI {
		var err error
		if want, wantSocket, err = parseURI(want); err != nil {
			return nil, err
		}
	}
	all, err := status.Find[report](ctx, p, program)
	var found []*source
	var names []string
	for _, f := range all {
		for i, e := range f.Document.Exports {
			// A URI without a name means the default export, which is the first.
			if want != e.Name && (want != "" || byURI && i > 0) {
				continue
			}
			for _, l := range e.Listen {
				_, socket, err := parseURI(l)
				if err != nil || byURI && socket != wantSocket {
					continue
				}
				found = append(found, &source{export: e.Name, socket: socket, device: e.Device})
				names = append(names, e.Name)
				break
			}
		}
	}
	what := "an export"
	if want != "" {
		what = fmt.Sprintf("export %q", want)
	}
	if byURI {
		what += " on " + wantSocket
	}
	switch {
	case len(found) == 0:
		return nil, errors.Join(fmt.Errorf("no pmnbd serves %s on a unix socket without TLS: looked at %s", what, p), err)
	case len(found) > 1:
		return nil, fmt.Errorf("%d exports could be meant: name one of %s, by a URI of pmnbd status if names are alike", len(found), strings.Join(names, ", "))
	}
	return found[0], nil
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
