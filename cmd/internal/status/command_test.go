package status

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
)

// commanded serves a command on a control socket, and at an address for metrics.
func commanded(t *testing.T, run func(context.Context, url.Values, func(any) error) error) (socket, metrics string) {
	control, err := directory(t).Listen("x")
	require.NoError(t, err)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := Serve(control, tcp, zaptest.NewLogger(t), func() Document { return document{} }, Command{Path: "/count", Run: run})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return control.Addr().String(), tcp.Addr().String()
}

func TestCommand(t *testing.T) {
	socket, metrics := commanded(t, func(_ context.Context, query url.Values, say func(any) error) error {
		for _, word := range strings.Fields(query.Get("words")) {
			if err := say(word); err != nil {
				return err
			}
		}
		if query.Has("fails") {
			return errors.New("no more\x1b[2J")
		}
		return nil
	})
	for name, tt := range map[string]struct {
		path  string
		query url.Values
		heard []string
		says  string
	}{
		"through":         {path: "/count", query: url.Values{"words": {"one two three"}}, heard: []string{"one", "two", "three"}},
		"nothing to say":  {path: "/count"},
		"fails":           {path: "/count", query: url.Values{"words": {"one"}, "fails": {""}}, heard: []string{"one"}, says: `no more\x1b[2J`},
		"not to a screen": {path: "/count", query: url.Values{"words": {"\x1b[2J"}}, heard: []string{`\x1b[2J`}},
		"unknown":         {path: "/other", says: "of a release that cannot do this"},
	} {
		t.Run(name, func(t *testing.T) {
			var heard []string
			err := Do(t.Context(), socket, tt.path, tt.query, func(line json.RawMessage) error {
				var word string
				require.NoError(t, json.Unmarshal(line, &word))
				heard = append(heard, word)
				return nil
			})
			require.Equal(t, tt.heard, heard)
			if tt.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.says)
			}
		})
	}
	res, err := http.Post("http://"+metrics+"/count", "", nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusNotFound, res.StatusCode, "metrics are for everybody")
}

// A command ends with whoever asked, and with the process.
func TestCommandEnds(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	socket, _ := commanded(t, func(ctx context.Context, _ url.Values, say func(any) error) error {
		defer close(ended)
		close(began)
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- Do(ctx, socket, "/count", nil, nil) }()
	<-began
	cancel(errors.New("enough"))
	require.Error(t, <-done)
	<-ended
}

// An answer without an end is an error: the process was killed.
func TestCommandIsCutOff(t *testing.T) {
	socket, _ := commanded(t, func(context.Context, url.Values, func(any) error) error { panic(http.ErrAbortHandler) })
	require.Error(t, Do(t.Context(), socket, "/count", nil, nil))
}
