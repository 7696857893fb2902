package attach

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/nbd"
)

func TestFindSource(t *testing.T) {
	place := status.Place{}
	require.NoError(t, place.Set("unix:"+t.TempDir()+"/"))
	l, err := place.Listen("both")
	require.NoError(t, err)
	served := report.Document{Header: status.NewHeader(report.Program), Exports: []report.Export{
		{Snapshot: nbd.Snapshot{Name: "log"}, Listen: []string{"nbd://127.0.0.1:1/log", "nbd+unix:///log?socket=/s"}},
		{Snapshot: nbd.Snapshot{Name: "data"}, Listen: []string{"nbd+unix:///data?socket=/s"}},
		{Snapshot: nbd.Snapshot{Name: "tls"}, Listen: []string{"nbds+unix:///tls?socket=/s", "nbds://127.0.0.1:1/tls"}},
	}}
	s := status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document { return served })
	defer func() { require.NoError(t, s.Close()) }()
	for _, tc := range []struct {
		want   Want
		export string
		err    string
	}{
		{Want{"data", ""}, "data", ""},
		{Want{"data", "/s"}, "data", ""},
		{Want{"", "/s"}, "log", ""},
		{Want{"", ""}, "", "several could be meant, name one: nbd+unix:///log?socket=/s nbd+unix:///data?socket=/s"},
		{Want{"tls", ""}, "", `no pmnbd serves export "tls" on a unix socket without TLS`},
		{Want{"log", "/other"}, "", `no pmnbd serves export "log" on /other`},
		{Want{"other", ""}, "", `no pmnbd serves export "other"`},
	} {
		found, err := findSource(t.Context(), &place, tc.want)
		if tc.err != "" {
			require.ErrorContains(t, err, tc.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tc.export, found.export)
		require.Equal(t, "/s", found.socket)
	}
}

// Where one does not answer, only who is named is meant.
func TestFindSourceOfMany(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	defer s.stop(t)
	l, err := net.Listen("unix", filepath.Join(b.dir, "mute.sock"))
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	defer func() {
		require.NoError(t, l.Close())
		<-ended
	}()
	_, err = findSource(t.Context(), &b.place, Want{})
	require.ErrorContains(t, err, "name the export: it could be another than nbd+unix:///log?socket=")
	require.ErrorContains(t, err, "mute.sock does not answer")
	for _, w := range []Want{{Export: "log"}, {Socket: filepath.Join(b.dir, "s")}} {
		_, err = findSource(t.Context(), &b.place, w)
		require.NoError(t, err)
	}
}

// What is remembered is about the process that the connections are to.
func TestServerReplacedMeanwhile(t *testing.T) {
	b := newBench(t)
	began, asked := time.Now(), 0
	s := startServing(t, b.dir, &b.place, offer{session: session(), header: func() status.Header {
		asked++ // by one at a time
		h := status.NewHeader(report.Program)
		h.Started = began.Add(time.Duration(asked) * time.Second)
		return h
	}})
	defer s.stop(t)
	_, err := b.attach()
	require.ErrorContains(t, err, "another process started serving export log")
	require.NoFileExists(t, b.sysfs("pid"))
}
