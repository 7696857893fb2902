package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/nbd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample is the document of a process with two exports.
func sample() report.Document {
	export := func(name string) report.Export {
		return report.Export{
			Snapshot: nbd.Snapshot{Name: name, Commands: nbd.Commands{Flush: nbd.Count{Requests: 400, Errors: 1}}},
			Device:   remote.Snapshot{State: remote.StateOpen, Window: remote.WindowSnapshot{Unflushed: 49152}},
		}
	}
	return report.Document{
		Header:  status.Header{Program: report.Program, PID: 4242, Started: time.Unix(1000, 0)},
		Exports: []report.Export{export("log"), export("data")},
	}
}

func TestStatus(t *testing.T) {
	place := status.Place{}
	require.NoError(t, place.Set("unix:"+t.TempDir()+"/"))
	ran := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(append([]string{"status", "--control", place.String()}, args...), &out, &errs)
		return code, out.String(), errs.String()
	}
	code, out, errs := ran()
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "pmnbd status: no pmnbd is running: looked at "+place.String()+"\n", errs)

	l, err := place.Listen("log")
	require.NoError(t, err)
	s := status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document { return sample() })
	defer func() { require.NoError(t, s.Close()) }()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, "1\n\nexport data: open"},
		{nil, 0, "export log: open"},
		{[]string{"log"}, 0, "export log: open"},
		{[]string{"data"}, 0, "export data: open"},
		{[]string{"data", "--json"}, 0, `"unflushed_bytes": 49152`},
		{[]string{"--check"}, 0, "export log: serving"},
		{[]string{"other", "--check"}, 2, `no pmnbd serves export "other"`},
		{[]string{"other"}, 1, `no pmnbd serves export "other"`},
		{[]string{"log", "other"}, 2, `"other" is one argument too many`},
		{[]string{"--josn"}, 2, "flags here: --json --check --watch --control --help"},
		{[]string{"--help"}, 0, "docs/status.md"},
	} {
		code, out, errs := ran(c.args...)
		require.Equal(t, c.code, code, errs)
		require.Contains(t, out+errs, c.says)
		require.Equal(t, code == 0, errs == "")
		require.Equal(t, code == 0, out != "")
	}
}
