package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"pmnbd/backend/remote"
	"pmnbd/nbd"
	"pmnbd/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sample() report {
	return report{
		Header:  status.Header{Program: program, PID: 4242, Started: time.Unix(1000, 0)},
		Exports: []exportReport{sampleExport("log"), sampleExport("data")},
	}
}

func sampleExport(name string) exportReport {
	return exportReport{
		Listen: []string{"nbd+unix:///" + name + "?socket=/tmp/s"},
		Snapshot: nbd.Snapshot{Name: name, Connections: 2, Entered: 5, Commands: nbd.Commands{
			Write: nbd.Count{Requests: 1000, Bytes: 4096000, FUA: 7},
			Flush: nbd.Count{Requests: 400, Errors: 1},
		}},
		Device: remote.Snapshot{
			Region: name, Target: "10.0.0.2:7204", Class: "file", Size: 1 << 30, Method: "gpspm", MethodWhy: "sound for every class",
			Epoch: 3, Owner: uuid.MustParse("6ba7b810-9dad-41d1-80b4-00c04fd430c8"), State: remote.StateOpen,
			Lanes: []remote.LaneSnapshot{{Peer: "10.0.0.2:7204", Posted: 1234, Outstanding: 5}},
			Window: remote.WindowSnapshot{
				Used: 3 << 20, Limit: 80 << 20, Entries: 12, EntriesLimit: 32768, Unflushed: 49152,
			},
			Barriers: remote.BarriersSnapshot{Done: 120, Answered: 100, Asked: 407, InFlight: true, Waiting: 3},
		},
	}
}

func TestText(t *testing.T) {
	h, e := sample().Header, sampleExport("log")
	require.Equal(t, `export log: open
  process   4242, for 1m1s
  listens   nbd+unix:///log?socket=/tmp/s
  region    log at 10.0.0.2:7204, 1G, class file
  method    gpspm: sound for every class
  session   epoch 3, owner 6ba7b810-9dad-41d1-80b4-00c04fd430c8
  lane 0    10.0.0.2:7204, 1234 work requests, 5 of them outstanding
  window    3M of 80M, 12 of 32768 entries; 48K not flushed
  barriers  100 for 407 FLUSH and FUA, 4.1 each; 20 to make room; one under way, 3 waiting for the next
  clients   2 connected, 5 since the start
    command  requests  bytes  with FUA  errors
      WRITE      1000  3.91M         7       0
      FLUSH       400      0         0       1
`, e.text(&h, time.Unix(1061, 0)))

	d := &e.Device
	d.Barriers.AtTarget = 61.7
	require.Contains(t, e.text(&h, time.Unix(1061, 0)), "one under way, the target has been syncing for 62 s, 3 waiting for the next\n")
	e.ReadOnly, d.Class, d.Doubt, d.State, d.Cause = true, "volatile", true, remote.StateFailed, "device failed: connection lost"
	text := e.text(&h, time.Unix(1061, 0))
	for _, s := range []string{"export log: read-only, FAILED: device failed: connection lost\n", "class volatile\n", "lost with the target's power", "doubt     yes"} {
		require.Contains(t, text, s)
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
		{[]string{"other"}, 1, `no pmnbd serves export "other"`},
		{[]string{"log", "other"}, 2, `"other" is one argument too many`},
		{[]string{"--josn"}, 2, "flags here: --json --control --help"},
		{[]string{"--help"}, 0, "docs/status.md"},
	} {
		code, out, errs := ran(c.args...)
		require.Equal(t, c.code, code, errs)
		require.Contains(t, out+errs, c.says)
		require.Equal(t, code == 0, errs == "")
		require.Equal(t, code == 0, out != "")
	}
}
