package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/pmnbd-bench/internal/compare"
)

func TestCompare(t *testing.T) {
	if _, err := exec.LookPath("wipefs"); err != nil {
		t.Skip("wipefs of util-linux is missing")
	}
	t.Setenv("GOMAXPROCS", "") // set, but as good as not
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	unix, tcp := serveMem(t, 8<<20)
	dir, out := t.TempDir(), t.TempDir()
	page, raw := filepath.Join(out, "page.html"), filepath.Join(out, "raw.json")
	code, stdout, stderr := runs(t, "compare", "--time=10ms", "--rounds=1", "--connections=2", "--html="+page, "--json="+raw, "unix="+unix, "tcp="+tcp, "local="+dir)
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^With one writer, an append of 4 KiB with an fsync takes \S+ \S+ on unix, `, stdout)
	for _, label := range []string{"unix", "tcp", "local"} {
		require.Equal(t, len(compare.Patterns()), strings.Count(stdout, "\n  "+label+" "), label)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "its file is gone")

	b, err := os.ReadFile(raw)
	require.NoError(t, err)
	r, err := compare.Load(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, r.Text(), stdout)
	b, err = os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(b), "<title>What does an fsync cost?</title>")
}

func TestCompareUsage(t *testing.T) {
	code, stdout, _ := runs(t, "compare", "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "OVERWRITTEN")

	dir := t.TempDir()
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no place", nil, 2, "PLACE is missing"},
		{"no time", []string{"--time=1ms", dir}, 2, "--time"},
		{"no rounds", []string{"--rounds=0", dir}, 2, "--rounds"},
		{"no connections", []string{"--connections=0", dir}, 2, "--connections"},
		{"a small area", []string{"--area=1M", dir}, 2, "--area"},
		{"an empty label", []string{"=" + dir}, 2, "empty label"},
		{"a label alone", []string{"a="}, 2, "names no place"},
		{"one label twice", []string{"a=" + dir, "a=/"}, 2, `"a"`},
		{"another URI", []string{"http://x/"}, 2, "neither an NBD URI"},
		{"a URI without a socket", []string{"nbd+unix:///x"}, 2, "socket"},
		{"a device that is no place", []string{"--overwrite=/dev/sdz", dir}, 2, "--overwrite /dev/sdz"},
		{"no such place", []string{"a=" + dir + "/none"}, 1, "a: "},
		{"nowhere to report", []string{"--html=" + dir + "/none/page", dir}, 1, "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := runs(t, append([]string{"compare"}, tc.args...)...)
			require.Equal(t, tc.code, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, tc.says)
			require.Equal(t, 1, strings.Count(stderr, "\n"))
		})
	}
}
