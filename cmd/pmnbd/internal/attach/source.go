package attach

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
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// A source is an export that a process serves on a unix socket of this machine.
type source struct {
	export, socket string
	pid            int
	started        time.Time
	device         remote.Snapshot
}

// same reports whether s and o are one export of one process, so that connections to either
// are connections to the other.
func (s *source) same(o *source) bool {
	return s.export == o.export && s.socket == o.socket && s.pid == o.pid && s.started.Equal(o.started)
}

// A Want selects an export. An empty field matches all.
type Want struct{ Export, Socket string }

// ParseWant reads an export's name, or nbd+unix:///EXPORT?socket=PATH.
func ParseWant(s string) (Want, error) {
	scheme, _, isURI := strings.Cut(s, "://")
	if isURI && scheme != "nbd+unix" {
		return Want{}, fmt.Errorf("%q is not served here on a unix socket without TLS: give the name of an export, as pmnbd status shows it, or nbd+unix:///EXPORT?socket=PATH", s)
	}
	if !strings.HasPrefix(s, "nbd+unix:") {
		return Want{Export: s}, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host != "" || u.Query().Get("socket") == "" {
		return Want{}, fmt.Errorf("%q is not the URI of a unix socket: use nbd+unix:///EXPORT?socket=PATH", s)
	}
	return Want{strings.TrimPrefix(u.Path, "/"), u.Query().Get("socket")}, nil
}

// String names what is wanted in errors.
func (w Want) String() string {
	s := "an export"
	if w.Export != "" {
		s = fmt.Sprintf("export %q", w.Export)
	}
	if w.Socket != "" {
		s += " on " + w.Socket
	}
	return s
}

// findSource looks for w at the control sockets of p. If w matches all, every process must
// answer: the export could be that of a silent one.
func findSource(ctx context.Context, p *status.Place, w Want) (*source, error) {
	all, err := status.Find[report.Document](ctx, p, report.Program)
	var found []*source
	var uris []string
	for _, f := range all {
		for i, e := range f.Document.Exports {
			// A URI without a name means the default export, which is the first.
			if w.Export != e.Name && (w.Export != "" || w.Socket != "" && i > 0) {
				continue
			}
			for _, uri := range e.Listen {
				l, err := ParseWant(uri)
				if err == nil && l.Socket != "" && (w.Socket == "" || w.Socket == l.Socket) {
					found = append(found, &source{e.Name, l.Socket, f.Document.PID, f.Document.Started, e.Device})
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
		if err != nil && w == (Want{}) {
			return nil, fmt.Errorf("name the export: it could be another than %s: %w", uris[0], err)
		}
		return found[0], nil
	}
	return nil, fmt.Errorf("several could be meant, name one: %s", strings.Join(uris, " "))
}

// connectTimeout bounds a negotiation. A server on the same machine needs much less.
const connectTimeout = 10 * time.Second

// connect makes a connection and negotiates for the export.
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
		return nil, export, sizes, err // client.New closed conn
	}
	if sock, err = c.Detach(); err != nil {
		return nil, export, sizes, errors.Join(err, c.Close())
	}
	return sock, c.Export(), c.BlockSizes(), nil
}
