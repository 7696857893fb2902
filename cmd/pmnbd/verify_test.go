package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
)

// told says what differs, which members have what, and that it is an error unless all was copied.
func TestVerifyTells(t *testing.T) {
	sum := strings.Repeat("0123456789abcdef", 4)
	differ := func(copied bool) []remote.Difference {
		return []remote.Difference{{Offset: 1 << 20, Length: 256 << 10, Digests: map[string]string{"A": sum, "C": "f" + sum[1:]}, Copied: copied}}
	}
	for name, tt := range map[string]struct {
		found remote.Verification
		says  string
		fails string
	}{
		"equal": {remote.Verification{Members: "ABC", Compared: 128 << 20, Total: 128 << 20}, "mirror log: compared members ABC, 64M of each; chunks that differ: 0\n", ""},
		"different": {remote.Verification{Members: "ABC", Compared: 128 << 20, Total: 128 << 20, Different: 3, Differences: differ(false)},
			"differs: offset 1048576, length 262144: A 0123456789abcdef C f123456789abcdef\nand 2 more\nmirror log: compared members ABC, 64M of each; chunks that differ: 3\n", "differ in 3 chunks"},
		"copied": {remote.Verification{Members: "AC", Compared: 64 << 20, Total: 64 << 20, Different: 1, Differences: differ(true)},
			"differs: offset 1048576, length 262144: A 0123456789abcdef C f123456789abcdef, copied\nmirror log: compared members AC, 64M of each; chunks that differ: 1\n", ""},
		"cut short": {remote.Verification{Members: "AB", Compared: 1, Total: 64 << 20}, "mirror log: compared members AB in part; chunks that differ: 0\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, asJSON := range []bool{false, true} {
				var out bytes.Buffer
				err := told(&out, "log", &tt.found, name == "copied", asJSON)
				if tt.fails == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, tt.fails)
				}
				if asJSON {
					var again remote.Verification
					require.NoError(t, json.Unmarshal(out.Bytes(), &again))
					require.Equal(t, tt.found, again)
				} else {
					require.Equal(t, tt.says, out.String())
				}
			}
		})
	}
}

func TestLetterOf(t *testing.T) {
	m := &remote.MirrorSnapshot{Members: "AB", Legs: []remote.LegSnapshot{{Target: "pm2:7204", Region: "log", Slot: "B"}, {Target: "pm1:7204", Region: "log", Slot: "A"}}}
	for from, want := range map[string]string{"": "", "A": "A", "b": "B", "iwarp://pm1/log": "A", "iwarp://pm2:7204/log": "B"} {
		letter, err := letterOf(from, m)
		require.NoError(t, err, from)
		require.Equal(t, want, letter, from)
	}
	for _, from := range []string{"C", "AB", "pm1", "iwarp://pm3/log", "iwarp://pm1/data"} {
		_, err := letterOf(from, m)
		require.Error(t, err, from)
	}
}

// Without a pmnbd that serves a mirror there is nothing to compare. Where no person looks there is no
// progress.
func TestVerifyWithoutAMirror(t *testing.T) {
	var out, errs bytes.Buffer
	call := command.NewCall([]string{"--control=unix:" + t.TempDir() + "/"}, &out, &errs)
	require.ErrorContains(t, verifyMirror(call), "no pmnbd of this machine serves a mirror")
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	progressOn(f)(&remote.Verification{Total: 5})
	info, err := f.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.NoError(t, f.Close())
}
