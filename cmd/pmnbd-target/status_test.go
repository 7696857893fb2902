package main

import (
	"path/filepath"
	"testing"
	"time"

	googleuuid "github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/cmd/internal/status"
	"pmnbd/internal/testhost"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
)

func sample() report {
	alice := &target.OwnerSnapshot{ID: googleuuid.UUID{1}, Nonce: googleuuid.UUID{2}}
	return report{
		Header: status.Header{Program: program, PID: 4242, Started: time.Unix(1000, 0)},
		Listen: []string{"iwarp://127.0.0.1:7204"},
		Regions: []target.RegionSnapshot{
			{
				Name: "a", Path: "/var/a", Class: "file", Size: 1 << 30, Epoch: 3, Owner: alice, Held: true, LeaseLeft: 9.25,
				Session: &target.SessionSnapshot{
					Method: "gpspm", Key: "330b8fefc38ca1ed", Cipher: "TLS 1.3",
					Methods: []target.MethodSnapshot{{Method: "apm", Why: "only class pmem"}, {Method: "gpspm", Sound: true, Why: "sound"}},
					Lanes:   []target.LaneSnapshot{{Peer: "127.0.0.1:5000"}, {Lane: 1, Peer: "127.0.0.1:5001"}},
				},
				Member: &target.MemberSnapshot{
					Mirror: googleuuid.UUID{3}, Member: "A", Generation: "7.2", Life: 8, InSync: "AB", MinCopies: 2,
					Others: []target.OtherSnapshot{{Member: "B"}, {Member: "C", Behind: 1 << 20}},
				},
				Doubt: true, Barriers: 10, Syncs: 12,
			},
			{Name: "b", Path: "/var/b", Class: "volatile", Size: 4096, Epoch: 1, Clean: true},
		},
	}
}

func TestStatusText(t *testing.T) {
	r := sample()
	require.Equal(t, `process 4242, for 1m1s, at iwarp://127.0.0.1:7204
region a: in use
  path      /var/a, 1G, class file
  session   epoch 3, owner 01000000-0000-0000-0000-000000000000 (run 02000000-0000-0000-0000-000000000000)
  method    gpspm
            not apm: only class pmem
  trust     proven by key 330b8fefc38ca1ed, encrypted with TLS 1.3
  lane 0    127.0.0.1:5000
  lane 1    127.0.0.1:5001
  lease     9.2 s left
  mirror    member A of 03000000-0000-0000-0000-000000000000, generation 7.2, in sync AB
            member C may lack 1M
  doubt     yes: some of what can be read may not be durable
  barriers  10, with 12 fdatasyncs
region b: free, closed cleanly
  path      /var/b, 4K, class volatile
  session   epoch 1, no owner
  barriers  0, with 0 fdatasyncs
`, r.text(time.Unix(1061, 0)))
	r.Regions[0].Member.Torn = true
	require.Contains(t, r.text(time.Unix(1061, 0)), "  torn      yes: a copy to the region has begun and has not ended\n")
	r.Regions[0].Syncing = 61.7
	require.Contains(t, r.text(time.Unix(1061, 0)), "barriers  10, with 12 fdatasyncs; syncing for 62 s\n")
}

func TestUse(t *testing.T) {
	for want, r := range map[string]target.RegionSnapshot{
		"FAILED: medium error":                        {Failed: true, Failure: "medium error", Suspect: true, Held: true},
		"SUSPECT: serves nobody until `region clear`": {Suspect: true, Clean: true},
		"in use":                     {Held: true, Session: &target.SessionSnapshot{Lanes: make([]target.LaneSnapshot, 1)}},
		"its owner is not connected": {Held: true, Session: &target.SessionSnapshot{}},
		"free, closed cleanly":       {Clean: true},
		"free, not closed cleanly":   {},
	} {
		require.Equal(t, want, use(&r))
	}
}

func TestStatus(t *testing.T) {
	place := status.Place{}
	require.NoError(t, place.Set("unix:"+t.TempDir()+"/"))
	code, out, errs := ran("status", "--control", place.String())
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "pmnbd-target status: no pmnbd-target is running: looked at "+place.String()+"\n", errs)

	l, err := place.Listen("target")
	require.NoError(t, err)
	s := status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document { return sample() })
	defer func() { require.NoError(t, s.Close()) }()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 0, "region a: in use"},
		{[]string{"--json"}, 0, `"lease_left_seconds": 9.25`},
		{[]string{"a"}, 2, `"a" is one argument too many`},
		{[]string{"--help"}, 0, "docs/status.md"},
	} {
		code, out, errs := ran(append([]string{"status", "--control", place.String()}, c.args...)...)
		require.Equal(t, c.code, code, errs)
		require.Contains(t, out+errs, c.says)
		require.Equal(t, code == 0, errs == "")
	}
}

// `region inspect` of a region that is served shows which key has proven the session, and what encrypts it.
func TestInspectShowsTheSession(t *testing.T) {
	path := filepath.Join(testhost.Memory(t), "log")
	code, _, errs := ran("region", "create", "log", path, "--size", "1M")
	require.Zero(t, code, errs)
	info, err := region.Inspect(path)
	require.NoError(t, err)
	place := status.Place{}
	require.NoError(t, place.Set("unix:"+t.TempDir()+"/"))
	inspect := func(args ...string) string {
		code, out, errs := ran(append([]string{"region", "inspect", path, "--control", place.String()}, args...)...)
		require.Zero(t, code, errs)
		return out
	}
	require.NotContains(t, inspect(), "session", "nobody serves it")
	require.Contains(t, inspect("--json"), `"session": null`)

	l, err := place.Listen("target")
	require.NoError(t, err)
	served := sample()
	s := status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document { return served })
	require.NotContains(t, inspect(), "session", "the target serves others")
	require.NoError(t, s.Close())

	served.Regions[0].UUID = info.Superblock.UUID
	l, err = place.Listen("target")
	require.NoError(t, err)
	s = status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document { return served })
	defer func() { require.NoError(t, s.Close()) }()
	require.Regexp(t, `session +gpspm, proven by key 330b8fefc38ca1ed, encrypted with TLS 1\.3\n`, inspect())
	require.Contains(t, inspect("--json"), `"key": "330b8fefc38ca1ed"`)
}
