package report

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
	"pmnbd/nbd"
)

func sample() Document {
	return Document{
		Header:  status.Header{Program: Program, PID: 4242, Started: time.Unix(1000, 0)},
		Exports: []Export{sampleExport("log"), sampleExport("data")},
	}
}

func sampleExport(name string) Export {
	return Export{
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
			Targets:  []remote.TargetSnapshot{{Target: "10.0.0.2:7204", Region: name, Key: "330b8fefc38ca1ed", Cipher: "TLS 1.3"}},
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
  trust     proven by key 330b8fefc38ca1ed, encrypted with TLS 1.3
  lane 0    10.0.0.2:7204, 1234 work requests, 5 outstanding
  window    3M of 80M, 12 of 32768 entries; 48K not flushed
  barriers  100 for 407 FLUSH and FUA, 4.1 each; 20 to make room; one under way, 3 waiting for the next
  clients   2 connected, 5 since the start
    command  requests  bytes  with FUA  errors
      WRITE      1000  3.91M         7       0
      FLUSH       400      0         0       1
`, e.Text(&h, time.Unix(1061, 0)))

	d := &e.Device
	d.Targets = append(d.Targets, remote.TargetSnapshot{Target: "10.0.0.3:7204"})
	require.Contains(t, e.Text(&h, time.Unix(1061, 0)), "\n  trust     10.0.0.3:7204: no key, not encrypted\n")
	d.Targets = d.Targets[:1]
	d.Barriers.AtTarget = 61.7
	require.Contains(t, e.Text(&h, time.Unix(1061, 0)), "one under way, the target has been syncing for 62 s, 3 waiting for the next\n")
	e.ReadOnly, d.Class, d.Doubt, d.State, d.Cause = true, "volatile", true, remote.StateFailed, "device failed: connection lost"
	text := e.Text(&h, time.Unix(1061, 0))
	d.Taken = true
	require.Contains(t, e.Text(&h, time.Unix(1061, 0)), "connection lost: unmount or detach the device, then start pmnbd with --accept-loss, and with --takeover if the other still holds the region\n")
	for _, s := range []string{"export log: read-only, FAILED: device failed: connection lost\n", "class volatile\n", "lost with the target's power", "doubt     yes"} {
		require.Contains(t, text, s)
	}
}
