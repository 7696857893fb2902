package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/nbd"
)

// --from is found however its address is written.
func TestFrom(t *testing.T) {
	at, err := parseTargets([]string{"iwarp://pm1/log,iwarp://pm2:7204/log", "iwarp://pm3/log"})
	require.NoError(t, err)
	require.Equal(t, "iwarp://pm1:7204/log,iwarp://pm2:7204/log,iwarp://pm3:7204/log", uris(at))
	for from, want := range map[string]int{"": 0, "iwarp://pm1:7204/log": 1, "iwarp://pm2/log": 2, "iwarp://pm3/log": 3} {
		n, err := numberOf(from, at)
		require.NoError(t, err)
		require.Equal(t, want, n, from)
	}
}

// Which mirrors status shows, and how.
func TestServedMirrors(t *testing.T) {
	mirror := func(targets ...string) *remote.MirrorSnapshot {
		m := &remote.MirrorSnapshot{Generation: "1.1"}
		for _, a := range targets {
			m.Legs = append(m.Legs, remote.LegSnapshot{Target: a, Region: "log", State: remote.LegOwnWay})
		}
		return m
	}
	export := func(name string, m *remote.MirrorSnapshot) report.Export {
		return report.Export{Snapshot: nbd.Snapshot{Name: name}, Device: remote.Snapshot{Mirror: m}}
	}
	all := []status.Found[report.Document]{
		{Document: report.Document{Header: status.Header{PID: 1}, Exports: []report.Export{export("log", mirror("pm1:7204", "pm2:7204")), export("alone", nil)}}},
		{Document: report.Document{Header: status.Header{PID: 2}, Exports: []report.Export{export("data", mirror("pm3:7204", "pm4:7204"))}}},
	}
	names := func(name string, targets ...string) (names []string) {
		at, err := parseTargets(targets)
		require.NoError(t, err)
		for _, m := range served(all, name, at) {
			names = append(names, m.Export)
		}
		return names
	}
	require.Equal(t, []string{"log", "data"}, names(""))
	require.Equal(t, []string{"data"}, names("data"))
	require.Empty(t, names("alone"))
	require.Empty(t, names("other"))
	require.Equal(t, []string{"log"}, names("", "iwarp://pm9/log,iwarp://pm2/log"))
	require.Empty(t, names("", "iwarp://pm2/other"))

	var out bytes.Buffer
	require.ErrorContains(t, show(&out, served(all, "", nil), true), "name one of log, data")
	require.Empty(t, out.String())
	require.NoError(t, show(&out, served(all, "log", nil), true))
	var one struct {
		Export string
		PID    int
		Legs   []struct{ State string }
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &one))
	require.Equal(t, "log", one.Export)
	require.Equal(t, 1, one.PID)
	require.Equal(t, "went its own way", one.Legs[1].State)
	out.Reset()
	require.NoError(t, show(&out, served(all, "", nil), false))
	require.Contains(t, out.String(), "mirror log: process 1\n")
	require.Contains(t, out.String(), "mirror data: process 2\n")
}
