package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/mem"
	"pmnbd/cmd/internal/keyfile"
	"pmnbd/persist/region"
	sessions "pmnbd/persist/target"
	"pmnbd/rdma/iwarp"
)

func TestMethodsUsage(t *testing.T) {
	code, stdout, stderr := runs(t, "methods", "--help")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "OVERWRITTEN")

	const uri = "iwarp://127.0.0.1:1/x"
	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"no target", nil, "TARGET"},
		{"not a target", []string{"nbd://h"}, "nbd://h"},
		{"one label twice", []string{"a=" + uri, "a=iwarp://h/x"}, `"a"`},
		{"no time", []string{"--time=1us", uri}, "--time"},
		{"no rounds", []string{"--rounds=0", uri}, "--rounds"},
		{"TLS without a key", []string{"iwarps://h/x"}, "needs --key-file"},
		{"a name without a key", []string{"iwarp://pm1@h/x"}, "needs --key-file"},
		{"keys of two initiators", []string{"--key-file=" + keyFile(t, aLine("1", "pm1"), aLine("2", "pm1")), uri}, "several initiators"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := runs(t, append([]string{"methods"}, tc.args...)...)
			require.Equal(t, 2, code)
			require.Contains(t, stderr, tc.says)
		})
	}
}

// aLine is a line of a key file: the key of the initiator whose id ends with digit, and a target.
func aLine(digit, target string) string {
	return "6f9619ff-8b86-d011-b42d-00c04fc9640" + digit + " " + target + " " + strings.Repeat(digit+"f0e", 16)
}

// keyFile makes a key file.
func keyFile(t *testing.T, lines ...string) string {
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	return path
}

// A region in memory has one sound method; of the others the reason is given. With a key the
// connections can be encrypted.
func TestMethods(t *testing.T) {
	path := keyFile(t, aLine("3", "pm1"))
	f, err := keyfile.Read(path)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		target sessions.Config
		wire   iwarp.Config
		args   []string
		uri    string
	}{
		"no key":    {uri: "go=iwarp://%s/r"},
		"a key":     {sessions.Config{Name: "pm1", Keys: f.OfTarget("pm1")}, iwarp.Config{}, []string{"--key-file=" + path}, "go=iwarp://%s/r"},
		"encrypted": {sessions.Config{Name: "pm1", Keys: f.OfTarget("pm1"), Encrypted: map[string]bool{"r": true}}, iwarp.Config{Encrypt: true}, []string{"--key-file=" + path}, "go=iwarps://pm1@%s/r"},
	} {
		t.Run(name, func(t *testing.T) { testMethods(t, c.target, c.wire, c.uri, c.args...) })
	}
	code, _, stderr := runs(t, "methods", "--key-file="+path, "iwarp://pm2@127.0.0.1/r")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no key of initiator")
}

func testMethods(t *testing.T, target sessions.Config, wire iwarp.Config, uri string, args ...string) {
	r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: "r", CreateSize: 4 << 20, AllowVolatile: true})
	require.NoError(t, err)
	l, err := iwarp.New(wire).Listen(context.Background(), "127.0.0.1:0")
	require.NoError(t, err)
	target.Log = slog.New(slog.DiscardHandler)
	s := sessions.New(target, []*region.Region{r})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
		require.NoError(t, r.Close())
	}()

	raw := filepath.Join(t.TempDir(), "raw.json")
	args = append(args, "--allow-volatile", "--time=1ms", "--rounds=2", "--json="+raw, fmt.Sprintf(uri, l.Addr()))
	code, stdout, stderr := runs(t, append([]string{"methods"}, args...)...)
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^\| 65536 × 32 \| [0-9.]+ \([0-9.]+–[0-9.]+\) \|$`, stdout)
	require.Regexp(t, `(?m)^\* go apm: .*only class pmem`, stdout)
	require.Regexp(t, `(?m)^\* go flush: .*FLUSH`, stdout)

	data, err := os.ReadFile(raw)
	require.NoError(t, err)
	var got methodReport
	require.NoError(t, json.Unmarshal(data, &got))
	require.Len(t, got.Cells, len(shapes()))
	for _, c := range got.Cells {
		require.Len(t, c.Rounds, 2)
		require.Positive(t, c.P50)
		for _, round := range c.Rounds {
			require.GreaterOrEqual(t, round.Ops, fewest)
		}
	}
}

func TestMethodRatios(t *testing.T) {
	r := newMethodReport(methodOptions{rounds: 3, targets: []methodTarget{{label: "x"}}})
	for i := range r.Ways {
		for _, c := range r.Ways[i].cells {
			for n := range 3 {
				c.Rounds = append(c.Rounds, round{P10: float64(80 + n), P50: float64(100 + n*100*(i+1))})
			}
		}
	}
	r.Ways[2].Refused = "it is not there"
	r.finish()
	require.Len(t, r.Cells, 2*len(shapes()))
	var out strings.Builder
	require.NoError(t, r.markdown(&out))
	// 100, 200, 300 and 100, 300, 500.
	require.Contains(t, out.String(), "| bytes × writes | x gpspm | x apm |\n|-|-:|-:|\n| 64 × 1 | 200 (100–300) | 1.50 (1.00–1.67) |\n")
	require.Contains(t, out.String(), "| 64 × 1 | 80.0 | 80.0 |\n")
	require.Contains(t, out.String(), "\n* x flush: it is not there\n")
}

// What is measured is written where it belongs, and all memory comes back.
func TestBarriers(t *testing.T) {
	for _, s := range shapes() {
		dev, err := mem.New(1 << 20)
		require.NoError(t, err)
		b, err := newBarriers(dev, s, 1<<20, rand.New(rand.NewPCG(1, 2)))
		require.NoError(t, err)
		samples, err := b.drive(0, 0)
		require.NoError(t, err)
		require.Len(t, samples, fewest)
		seen := make(map[uint64]bool)
		for _, op := range b.batch[:s.Writes] {
			require.Zero(t, op.Off%uint64(s.Bytes))
			require.LessOrEqual(t, op.Off+op.Len, uint64(1<<20))
			seen[op.Data[0].ArenaOff()] = true
		}
		require.Len(t, seen, s.Writes, "payloads of their own")
		b.close()
		require.NoError(t, dev.Close())
	}
}
