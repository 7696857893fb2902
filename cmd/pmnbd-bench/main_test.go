package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asFloor in the environment makes this program pmnbd-bench floor, with the arguments given.
const asFloor = "PMNBD_BENCH_TEST_FLOOR"

func TestMain(m *testing.M) {
	if os.Getenv(asFloor) != "" {
		os.Exit(run(append([]string{"floor"}, os.Args[1:]...), os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

func runs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	code, stdout, stderr := runs(t, "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "OVERWRITTEN")
	require.Empty(t, stderr)

	for _, flag := range []string{"--version", "-V"} {
		code, stdout, stderr = runs(t, flag)
		require.Zero(t, code)
		require.Regexp(t, `^pmnbd-bench \S+, revision \S+, protocol \d`, stdout)
		require.Empty(t, stderr)
	}

	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"no target", nil, "no target"},
		{"unknown flag", []string{"--rate=1s", "disk:."}, "--rate"},
		{"no time", []string{"--time=1ms", "disk:."}, "--time"},
		{"no rounds", []string{"--rounds=0", "disk:."}, "--rounds"},
		{"no depth", []string{"--depth=0", "nbd://h"}, "--depth"},
		{"too many connections", []string{"--connections=65", "nbd://h"}, "--connections"},
		{"an odd block", []string{"--block=5000", "nbd://h"}, "--block"},
		{"a block of a disk", []string{"--block=8K", "disk:."}, "--block"},
		{"too many ranges", []string{"--ranges=2000000", "nbd://h"}, "--ranges"},
		{"no area", []string{"--area=1K", "nbd://h"}, "--area"},
		{"a disk with a depth", []string{"--depth=2", "disk:."}, "--depth 1"},
		{"one label twice", []string{"a=disk:.", "a=disk:/"}, `"a"`},
		{"a suite of one", []string{"--suite", "a=nbd://h"}, "two targets"},
		{"a suite of others", []string{"--suite", "a=nbd://h", "b=nbd://h", "c=nbd://h"}, "two targets"},
		{"a suite of a disk", []string{"--suite", "a=nbd://h", "disk:."}, "--suite"},
		{"a shape of no suite", []string{"--shape=qd1", "nbd://h"}, "--shape"},
		{"a shape that no row has", []string{"--suite", "--shape=qd2", "a=nbd://h", "b=nbd://h"}, "--shape"},
		{"a suite with a depth", []string{"--suite", "--depth=2", "a=nbd://h", "b=nbd://h"}, "--depth"},
		{"processes of nobody", []string{"--pids=b=1", "a=nbd://h"}, "--pids"},
		{"no process", []string{"--pids=a=1,x", "a=nbd://h"}, `"x"`},
		{"not a target", []string{"sda"}, "sda"},
		{"a floor nowhere", []string{"floor"}, "--listen"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := runs(t, tc.args...)
			require.Equal(t, 2, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, tc.says)
			require.Equal(t, 1, strings.Count(stderr, "\n"))
		})
	}
}

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	raw := filepath.Join(t.TempDir(), "raw.json")
	code, stdout, stderr := runs(t, "--time=10ms", "--rounds=2", "--area=1M", "--json="+raw, "local=disk:"+dir)
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^local +[0-9.]+ +[0-9.]+ +[0-9.]+ +- +- +- +[0-9.]+ +[0-9.]+ +[0-9.]+$`, stdout)
	require.FileExists(t, raw)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "its file is gone")
}

func TestCannotRun(t *testing.T) {
	for _, tc := range []struct {
		name, target, says string
	}{
		{"no such directory", "x=disk:" + filepath.Join(t.TempDir(), "none"), "x: "},
		{"no such socket", "x=nbd+unix:///?socket=" + filepath.Join(t.TempDir(), "none"), "x: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := runs(t, tc.target)
			require.Equal(t, 1, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, tc.says)
			require.Equal(t, 1, strings.Count(stderr, "\n"))
		})
	}
}
