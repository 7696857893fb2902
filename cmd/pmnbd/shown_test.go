package main

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/nbd"
)

// The control socket says for whom exports wait, and then what they are.
func TestShown(t *testing.T) {
	var place status.Place
	require.NoError(t, place.Set("unix:"+filepath.Join(t.TempDir(), "s")))
	control, err := place.Listen("log")
	require.NoError(t, err)
	s := &shown{door: door{log: zaptest.NewLogger(t), control: control}}
	ask := func() report.Document {
		t.Helper()
		found, err := status.Find[report.Document](context.Background(), &place, report.Program)
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0].Document
	}
	first, second := report.Starting{Name: "log", Waits: "waits for A"}, report.Starting{Name: "data", Waits: "waits for B"}
	s.waits(first)
	require.Equal(t, []report.Starting{first}, ask().Starting)
	first.Waits = "waits for B"
	s.waits(first)
	s.waits(second)
	require.Equal(t, []report.Starting{first, second}, ask().Starting)
	s.begins("log")
	s.begins("other")
	require.Equal(t, []report.Starting{second}, ask().Starting)
	require.Empty(t, ask().Exports)
	answer := httptest.NewRecorder()
	status.MetricsHandler(nil, func() status.Document { return s.document() }).ServeHTTP(answer, httptest.NewRequest("GET", status.MetricsPath, nil))
	require.Equal(t, 200, answer.Code)
	s.begins("data")
	s.serve(func(d *report.Document) { d.Exports = []report.Export{{Snapshot: nbd.Snapshot{Name: "log"}}} })
	d := ask()
	require.Empty(t, d.Starting)
	require.Equal(t, "log", d.Exports[0].Name)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	s.waits(first)
}

// A start that fails before anybody could ask removes the socket.
func TestShownNever(t *testing.T) {
	dir := t.TempDir()
	var place status.Place
	require.NoError(t, place.Set("unix:"+dir+"/"))
	control, err := place.Listen("log")
	require.NoError(t, err)
	s := &shown{door: door{log: zaptest.NewLogger(t), control: control}}
	require.NoError(t, s.Close())
	names, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	require.Empty(t, names)
}
