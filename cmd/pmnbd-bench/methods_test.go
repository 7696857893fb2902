package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/mem"
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
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, _, stderr := runs(t, append([]string{"methods"}, tc.args...)...)
			require.Equal(t, 2, code)
			require.Contains(t, stderr, tc.says)
		})
	}
}

// A region in memory has one sound method; of the others the reason is given.
func TestMethods(t *testing.T) {
	r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: "r", CreateSize: 4 << 20, AllowVolatile: true})
	require.NoError(t, err)
	l, err := iwarp.New(iwarp.Config{}).Listen(context.Background(), "127.0.0.1:0")
	require.NoError(t, err)
	s := sessions.New(sessions.Config{Log: slog.New(slog.DiscardHandler)}, []*region.Region{r})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
		require.NoError(t, r.Close())
	}()

	raw := filepath.Join(t.TempDir(), "raw.json")
	code, stdout, stderr := runs(t, "methods", "--allow-volatile", "--time=1ms", "--rounds=2", "--json="+raw, "go=iwarp://"+l.Addr()+"/r")
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
