package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/flush"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// meter is a line of a progress.Meter, which shows what takes more than a second: on a machine that is
// busy or stopped, that may be anything.
var meter = regexp.MustCompile(`(?m)^(create|clear) \S+?(: [a-z ]+)? (for \S+|\S+ of \S+, \d+ %(, \S+/s, \S+ left)?)\n`)

// ran runs a command line and returns its exit code and what it wrote, without how far it was.
func ran(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), meter.ReplaceAllString(errs.String(), "")
}

func TestRegionLife(t *testing.T) {
	path := filepath.Join(testhost.Memory(t), "log")
	code, out, errs := ran("region", "create", "log", path, "--size", "1M")
	require.Equal(t, "", errs)
	require.Zero(t, code)
	require.Equal(t, "created region log at "+path+": 1M, class volatile: its contents go with the power, serve needs --allow-volatile\n", out)

	code, out, errs = ran("region", "create", "log", path, "--size", "1M")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "pmnbd-target region create: "+path+": not empty: it holds data; --force discards all of it\n", errs)
	code, _, _ = ran("region", "create", "log", path, "--force")
	require.Zero(t, code)

	code, out, errs = ran("region", "inspect", path, "--json")
	require.Equal(t, "", errs)
	require.Zero(t, code)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	for name, want := range map[string]any{
		"path": path, "name": "log", "size": float64(1 << 20), "class": "volatile", "version": 2.0, "generation": 2.0, "epoch": 1.0, "mark": 0.0,
		"owner": nil, "life": 0.0, "member": nil, "clean": true, "doubt": false, "failed": false, "suspect": false, "unsafe_shutdowns": 0.0, "copies": []any{"good", "good"},
		"class_now": "volatile", "platform": nil, "bad_places": []any{}, "flush": flush.Instruction(),
	} {
		require.Equal(t, want, v[name], name)
	}
	for _, name := range []string{"uuid", "boot_id", "contents_id"} {
		require.Regexp(t, `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, v[name], name)
	}

	r, err := region.Open(path, region.OpenOptions{AllowVolatile: true})
	require.NoError(t, err)
	require.NoError(t, r.Update(func(sb *region.Superblock) error {
		sb.Owner.ID[0], sb.Mark, sb.Clean, sb.Suspect = 0xab, 1234, false, true
		return nil
	}))
	code, _, errs = ran("region", "clear", path, "--reason", "x")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "region is in use")
	code, out, _ = ran("region", "inspect", path)
	require.Zero(t, code)
	require.Contains(t, out, "SUSPECT")
	require.Contains(t, out, "ab000000-")
	require.Regexp(t, `mark +1234\n`, out)
	require.NotContains(t, out, "not served")
	require.NoError(t, os.Chmod(path, 0o660))
	_, out, _ = ran("region", "inspect", path)
	require.Regexp(t, `not served +.*chmod go-w`, out)
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, r.Close())

	code, out, errs = ran("region", "clear", path, "--reason", "UPS replaced")
	require.Equal(t, "", errs)
	require.Zero(t, code)
	require.Equal(t, "cleared region log at "+path+": epoch 2, no owner, new contents id, in doubt until its first flush; reason: \"UPS replaced\"\n", out)
	_, out, _ = ran("region", "inspect", path)
	require.NotContains(t, out, "SUSPECT")
	require.Contains(t, out, "in doubt")
	require.Contains(t, out, `"UPS replaced"`)
}

// What is shown of persistent memory, which few machines have.
func TestShowPlatform(t *testing.T) {
	info := region.Info{
		Path: "/dev/dax0.0", Class: persist.ClassPMem, Copies: [2]region.CopyState{region.CopyGood, region.CopyGood},
		Superblock: region.Superblock{Name: "log", Size: 1 << 30, Class: persist.ClassPMem, UnsafeShutdowns: 2},
		Platform:   region.Platform{Regions: []string{"region0", "region1"}, Domain: region.DomainMemory, Counted: true, UnsafeShutdowns: 3},
	}
	for _, c := range []struct {
		name    string
		change  func(*region.Info)
		json    string // of platform
		says    []string
		saysNot string
	}{
		{
			"ADR", func(*region.Info) {},
			`{"nd_regions":["region0","region1"],"persistence_domain":"memory_controller","eadr":false,"unsafe_shutdowns":3}`,
			[]string{"memory_controller (ADR) on region0, region1: cache lines are written back by " + flush.Instruction(), "2 at the last clean close, 3 now"}, "where it is now",
		},
		{
			"eADR", func(i *region.Info) { i.Platform.Domain, i.Platform.Counted = region.DomainCaches, false },
			`{"nd_regions":["region0","region1"],"persistence_domain":"cpu_cache","eadr":true,"unsafe_shutdowns":null}`,
			[]string{"cpu_cache (eADR) on region0, region1: a fence is enough", "not counted here (2 at the last clean close)"}, "where it is now",
		},
		{
			"a file without DAX", func(i *region.Info) { i.Superblock.Class, i.Class = persist.ClassFile, persist.ClassFile },
			`{"nd_regions":["region0","region1"],"persistence_domain":"memory_controller","eadr":false,"unsafe_shutdowns":3}`,
			[]string{"memory_controller (ADR) on region0, region1: not mapped directly (DAX)"}, "written back",
		},
		{
			"nothing is promised any more", func(i *region.Info) { i.Platform.Domain, i.Class = region.DomainNone, persist.ClassVolatile },
			`{"nd_regions":["region0","region1"],"persistence_domain":"","eadr":false,"unsafe_shutdowns":3}`,
			[]string{"pmem; where it is now it would be volatile, and is not served", "no persistence domain is promised on region0, region1"}, "",
		},
		{
			"a copy elsewhere", func(i *region.Info) { i.Platform, i.Class = region.Platform{}, 0 },
			`null`, []string{"pmem; where it is now it could not be served"}, "persistence",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := info
			c.change(&i)
			b, err := json.Marshal(viewOf(i).Platform)
			require.NoError(t, err)
			require.JSONEq(t, c.json, string(b))
			v := viewOf(i)
			shown := v.table(i)
			for _, s := range c.says {
				require.Contains(t, shown, s)
			}
			if c.saysNot != "" {
				require.NotContains(t, shown, c.saysNot)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for args, says := range map[string]string{
		"--help":                "pmnbd-target serve",
		"help":                  "region create NAME PATH",
		"region --help":         "region clear PATH --reason TEXT",
		"region create --help":  "--size SIZE",
		"region create -h":      "--force",
		"region inspect --help": "--json",
		"region clear --help":   "--reason",
	} {
		code, out, errs := ran(strings.Fields(args)...)
		require.Zero(t, code, args)
		require.Contains(t, out, says, args)
		require.Empty(t, errs, args)
	}
}

func TestRegionListAndRemove(t *testing.T) {
	dir := testhost.Memory(t)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, path := range []string{a, b} {
		code, _, errs := ran("region", "create", "r-"+filepath.Base(path), path, "--size", "1M")
		require.Zero(t, code, errs)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c"), []byte("no region"), 0o600))
	r, err := region.Open(b, region.OpenOptions{AllowVolatile: true})
	require.NoError(t, err)
	require.NoError(t, r.Update(func(sb *region.Superblock) error { sb.Clean = false; return nil }))

	code, out, errs := ran("region", "list", dir)
	require.Equal(t, "", errs)
	require.Zero(t, code)
	require.Equal(t, "REGION  SIZE  CLASS     STATE    PATH\n"+
		"r-a     1M    volatile  clean    "+a+"\n"+
		"r-b     1M    volatile  unclean  "+b+"\n", out)

	code, out, errs = ran("region", "remove", a)
	require.Equal(t, "", errs)
	require.Zero(t, code)
	require.Equal(t, "removed the region at "+a+"\n", out)
	require.NoFileExists(t, a)

	for _, c := range []struct {
		name  string
		args  []string
		code  int
		says  string
		close bool
	}{
		{"in use", []string{b, "--force"}, 1, "region is in use", true},
		{"unclean", []string{b}, 1, "--force", false},
		{"forced", []string{b, "--force"}, 0, "", false},
	} {
		code, _, errs := ran(append([]string{"region", "remove"}, c.args...)...)
		require.Equal(t, c.code, code, c.name)
		require.Contains(t, errs, c.says, c.name)
		if c.close {
			require.NoError(t, r.Close())
		}
	}
	code, _, errs = ran("region", "list", dir)
	require.Equal(t, 1, code)
	require.Equal(t, "pmnbd-target region list: no region found\n", errs)
}
