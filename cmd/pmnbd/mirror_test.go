package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/nbd"
)

const copyTarget = "--target=iwarp://pm2/log"

// Mistakes on the command lines of `pmnbd mirror`.
func TestMirrorMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no command":               {args: []string{"mirror"}, says: "use create, status, verify, add"},
		"no target":                {args: []string{"mirror", "create"}, says: "two members at least"},
		"one target":               {args: []string{"mirror", "create", logTarget}, says: "two members at least"},
		"five targets":             {args: []string{"mirror", "create", logTarget, copyTarget, "--target=iwarp://a/a,iwarp://b/b,iwarp://c/c"}, says: "at most 4"},
		"a target twice":           {args: []string{"mirror", "create", logTarget, logTarget}, says: "twice"},
		"too many copies":          {args: []string{"mirror", "create", logTarget, copyTarget, "--min-copies=3"}, says: "use 1 to 2"},
		"no copy":                  {args: []string{"mirror", "create", logTarget, copyTarget, "--min-copies=0"}, says: "use 1 to 2"},
		"from a stranger":          {args: []string{"mirror", "create", logTarget, copyTarget, "--from=iwarp://pm3/log"}, says: "none of the targets"},
		"from nothing":             {args: []string{"mirror", "create", logTarget, copyTarget, "--from=pm1"}, says: "is not an address"},
		"an id that is none":       {args: []string{"mirror", "create", logTarget, copyTarget, "--id=me"}, says: "uuidgen"},
		"no place for the lock":    {args: []string{"mirror", "create", logTarget, copyTarget, "--state-dir="}, says: "--state-dir is empty"},
		"two names":                {args: []string{"mirror", "status", "a", "b"}, says: "one argument too many"},
		"status of no target's":    {args: []string{"mirror", "status", "--target=pm1"}, says: "is not an address"},
		"no member to remove":      {args: []string{"mirror", "remove"}, says: "LEG is missing"},
		"too many to remove":       {args: []string{"mirror", "remove", "log", "A", "B"}, says: "one argument too many"},
		"nothing to add":           {args: []string{"mirror", "add"}, says: "is missing: give [NAME]"},
		"to add what is no URI":    {args: []string{"mirror", "add", "pm3"}, says: "is not an address"},
		"nothing to replace it by": {args: []string{"mirror", "replace", "A"}, says: "is missing: give [NAME] OLD"},
		"to forget without etcd":   {args: []string{"mirror", "forget", logTarget}, says: "the etcd with --arbiter"},
		"to forget nothing":        {args: []string{"mirror", "forget", "--arbiter=etcd://e1:2379"}, says: "name members"},
		"to discard nothing":       {args: []string{"mirror", "discard", logTarget, copyTarget}, says: "LEG is missing"},
		"to discard a stranger":    {args: []string{"mirror", "discard", logTarget, copyTarget, "iwarp://pm3/log"}, says: "none of the targets"},
		"to discard the only one":  {args: []string{"mirror", "discard", copyTarget, "iwarp://pm2/log"}, says: "name all members"},
		"to set nothing":           {args: []string{"mirror", "set"}, says: "--min-copies is missing: use 1 to 4"},
		"to set too much":          {args: []string{"mirror", "set", "--min-copies=5"}, says: "use 1 to 4"},
		"a list where one belongs": {args: []string{"mirror", "create", logTarget, copyTarget, "--from=iwarp://pm1/log,iwarp://pm2/log"}, says: "more than a region's name"},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			require.Equal(t, 2, run(c.args, io.Discard, &errs), errs.String())
			require.Contains(t, errs.String(), c.says)
		})
	}
	for _, args := range [][]string{{"mirror", "--help"}, {"mirror", "create", "--help"}, {"mirror", "status", "--help"}} {
		require.Zero(t, run(args, io.Discard, io.Discard), args)
	}
}

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
