package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/endpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var alice, bob = uuid.MustParse("6f9619ff-8b86-d011-b42d-00c04fc964ff"), uuid.MustParse("a1a2a3a4-b1b2-4c1c-9d1d-e1e2e3e4e5e6")

// parsed is what a file, if it is not empty, and a command line say.
func parsed(t *testing.T, file string, args ...string) (config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "target.toml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		args = append(args, "--config", path)
	}
	return parse(command.NewCall(args, io.Discard, io.Discard), func(*pflag.FlagSet) {})
}

// settings has, for each setting, two ways to say it, with two values that are not
// its default: in the file, and as flags.
var settings = map[string][2]struct {
	file  string
	flags []string
}{
	"region": {
		{"[[region]]\nname = \"a\"\nparts = ['\"/a,b\"', \"/p\"]\nsize = \"1G\"\nsave = '\"/s,t\"'\nallow = [\"" + alice.String() + "\"]\nencrypted = true\n", []string{"--region", `a="/a,b",part=/p,size=1G,save="/s,t",encrypted,allow=` + alice.String()}},
		{"[[region]]\nname = \"b\"\npath = \"/b\"\n[[region]]\nname = \"c\"\nparts = [\"/c\", '\"/d,e\"', \"/f\"]\n", []string{"--region", "b=/b", "--region", `c=/c,part="/d,e",part=/f`}},
	},
	"listen": {
		{`listen = ["iwarp://127.0.0.1:1"]`, []string{"--listen", "iwarp://127.0.0.1:1"}},
		{`listen = ["iwarps://127.0.0.1:2", "iwarp://[::1]:3"]`, []string{"--listen", "iwarps://127.0.0.1:2", "--listen", "iwarp://[::1]:3"}},
	},
	"control": {
		{`control = "unix:/run/a.sock"`, []string{"--control", "unix:/run/a.sock"}},
		{`control = "unix:/run/b/"`, []string{"--control", "unix:/run/b/"}},
	},
	"metrics": {
		{`metrics = "9104"`, []string{"--metrics", ":9104"}},
		{`metrics = "[::1]:9104"`, []string{"--metrics", "[::1]:9104"}},
	},
	"battery-command": {
		{`battery-command = "upsc ups@localhost"`, []string{"--battery-command", "upsc  ups@localhost"}},
		{`battery-command = "/usr/local/bin/ups"`, []string{"--battery-command", "/usr/local/bin/ups"}},
	},
	"log-level": {
		{`log-level = "debug"`, []string{"--log-level", "debug"}},
		{`log-level = "error"`, []string{"--log-level", "error"}},
	},
	"numa": {
		{`numa = "off"`, []string{"--numa", "off"}},
		{`numa = 1`, []string{"--numa", "1"}},
	},
	"spin": {
		{`spin = "50us"`, []string{"--spin", "50us"}},
		{`spin = "1ms"`, []string{"--spin", "1ms"}},
	},
	"key-file": {
		{`key-file = "/etc/pmnbd/keys"`, []string{"--key-file", "/etc/pmnbd/keys"}},
		{`key-file = "keys"`, []string{"--key-file", "keys"}},
	},
	"name": {
		{`name = "pm1"`, []string{"--name", "pm1"}},
		{`name = "pm2.example.org"`, []string{"--name", "pm2.example.org"}},
	},
	"insecure-no-auth":     truth("insecure-no-auth"),
	"allow-volatile":       truth("allow-volatile"),
	"direct-write-to-pmem": truth("direct-write-to-pmem"),
	"relaxed-ordering":     truth("relaxed-ordering"),
}

// truth is a setting that is true or false; false by default, so that it has no
// second value of its own.
func truth(name string) [2]struct {
	file  string
	flags []string
} {
	return [2]struct {
		file  string
		flags []string
	}{{name + " = true", []string{"--" + name}}, {name + " = false", []string{"--" + name + "=false"}}}
}

// Every flag has a key and every key a flag, and a flag takes the place of what the
// file says. Whoever adds one of them meets this test.
func TestFlagsAndKeys(t *testing.T) {
	var c config
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.declare(set)
	var names []string
	set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	var keys []string
	for i := range reflect.TypeFor[config]().NumField() {
		keys = append(keys, reflect.TypeFor[config]().Field(i).Tag.Get("toml"))
	}
	require.ElementsMatch(t, names, keys)

	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, settings, name)
			s := settings[name]
			var say [2]config
			for i, v := range s {
				byFlag, err := parsed(t, "", v.flags...)
				require.NoError(t, err)
				byFile, err := parsed(t, v.file)
				require.NoError(t, err)
				require.Equal(t, byFlag, byFile, "the same, said in two ways")
				say[i] = byFlag
			}
			require.NotEqual(t, say[0], say[1])
			require.NotEqual(t, defaults(), say[0])
			for i, v := range s {
				both, err := parsed(t, s[1-i].file, v.flags...)
				require.NoError(t, err)
				require.Equal(t, say[i], both, "the flag wins")
			}
			unrelated := "numa"
			if name == unrelated {
				unrelated = "listen"
			}
			both, err := parsed(t, s[0].file, settings[unrelated][0].flags...)
			require.NoError(t, err)
			field := func(c config) any {
				for i := range reflect.TypeOf(c).NumField() {
					if reflect.TypeOf(c).Field(i).Tag.Get("toml") == name {
						return reflect.ValueOf(c).Field(i).Interface()
					}
				}
				return nil
			}
			require.Equal(t, field(say[0]), field(both), "other flags leave it alone")
		})
	}
	for i := range reflect.TypeFor[servedRegion]().NumField() {
		keys = append(keys, "region."+reflect.TypeFor[servedRegion]().Field(i).Tag.Get("toml"))
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(fileSettings)), keys, "and the file's check knows each")
	// What a region's table can say, its flag can too: the first example says it all.
	full, err := parsed(t, settings["region"][0].file)
	require.NoError(t, err)
	for i := range reflect.TypeFor[servedRegion]().NumField() {
		require.False(t, reflect.ValueOf(full.Regions[0]).Field(i).IsZero(), reflect.TypeFor[servedRegion]().Field(i).Name)
	}
}

// TestMistakes of test/e2e has what people write. This has what they might, to the same keys.
func TestConfigErrors(t *testing.T) {
	const log = "[[region]]\nname = \"log\"\npath = \"/log\"\n"
	for name, c := range map[string]struct{ file, says string }{
		"a list of lists":        {"\nlisten = [[\"iwarp://127.0.0.1\"]]", `:2: listen takes a list`},
		"a table of addresses":   {"\n[listen]\na = 1", `:2: listen takes a list`},
		"a key with a dot":       {"\nkey-file.x = 1", `:2: key-file takes a path in quotes`},
		"a table for a node":     {"\n[numa]", `:2: numa takes "auto", "off"`},
		"a table for a name":     {"[[region]]\n[region.name]\nx = 1", `:2: region.name takes`},
		"regions, in a line":     {"region = [{name = \"a\", path = 3}]", `:1: region.path takes a path`},
		"one region, in a line":  {"region = {name = \"a\"}", `:1: region takes a table`},
		"in capitals":            {"\nLISTEN = 3", `:2: listen takes a list`},
		"no listener":            {log + "[x]", "unknown key"},
		"a region, not a string": {`region = [1]`, `:1: region takes a table`},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := parsed(t, c.file)
			if err == nil {
				err = cfg.check()
			}
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, err, flags.ErrUsage)
			require.NotRegexp(t, `\bmain\.|\bflags\.|\buuid\.|\[\]main|struct field`, err.Error(), "the types of the program are nobody's business")
		})
	}
}

// Keys, or the operator's word, let listeners be seen by others; of an adapter that is
// every user of this machine at least.
func TestBeyondLoopback(t *testing.T) {
	for _, c := range []struct {
		listen endpoint.Endpoint
		says   string
	}{
		{endpoint.Endpoint{Provider: "iwarp", Host: "0.0.0.0"}, "is not a loopback address: use --key-file"},
		{endpoint.Endpoint{Provider: "rdma", Host: "192.0.2.1"}, "is not a loopback address: use --key-file"},
		{endpoint.Endpoint{Provider: "iwarps", Host: "127.0.0.1"}, "needs --key-file: without keys nobody knows who is at the other end"},
		{endpoint.Endpoint{Provider: "rdma", Host: "127.0.0.1"}, "nobody knows which user of this machine connects by an adapter: use --key-file"},
	} {
		for _, flag := range []string{"--key-file=/keys", "--insecure-no-auth", ""} {
			args := []string{"--region", "log=/log"}
			if flag != "" {
				args = append(args, flag)
			}
			cfg, err := parsed(t, "", args...)
			require.NoError(t, err)
			cfg.Listen = []listenAddr{{c.listen}}
			if err := cfg.check(); flag == "" || c.listen.Encrypted() && flag == "--insecure-no-auth" {
				require.ErrorContains(t, err, c.says)
				require.ErrorIs(t, err, flags.ErrUsage)
			} else {
				require.NoError(t, err, "%v %s", c.listen, flag)
			}
		}
	}
}

// Without keys, and without the operator's word, listeners look at users.
func TestUsersAreLookedAt(t *testing.T) {
	for flag, looked := range map[string]bool{"--allow-volatile": true, "--key-file=/keys": false, "--insecure-no-auth": false} {
		for _, listen := range []string{"iwarp://127.0.0.1", "iwarp://[::1]", "iwarp://localhost"} {
			cfg, err := parsed(t, "", "--region", "log=/log", "--listen", listen, flag)
			require.NoError(t, err)
			require.NoError(t, cfg.check())
			require.Equal(t, looked, cfg.transport(nil).Allow != nil, flag)
		}
	}
}

// What TestMistakes of test/e2e has is not here, but for what rules.md asks this test for.
func TestRegionFlag(t *testing.T) {
	for _, c := range []struct {
		in   string
		want servedRegion
		says string
	}{
		{in: "log=/dev/shm/log", want: servedRegion{Name: "log", Path: regionPath{"/dev/shm/log"}}},
		{in: "log=/dev/shm/log,size=1G", want: servedRegion{Name: "log", Path: regionPath{"/dev/shm/log"}, Size: 1 << 30}},
		{in: `log="a=b,c",size=4K`, want: servedRegion{Name: "log", Path: regionPath{"a=b,c"}, Size: 4096}},
		{in: `log="a,size=4K",size=8K`, want: servedRegion{Name: "log", Path: regionPath{"a,size=4K"}, Size: 8192}},
		{in: `log=a"b`, want: servedRegion{Name: "log", Path: regionPath{`a"b`}}},
		{in: "log=memfd:,size=1M", want: servedRegion{Name: "log", Path: regionPath{"memfd:"}, Size: 1 << 20}},
		{in: "log=a,allow=" + alice.String() + ",size=4K,allow=" + bob.String(), want: servedRegion{Name: "log", Path: regionPath{"a"}, Size: 4096, Allow: []allowedID{{alice}, {bob}}}},
		{in: `log=a,save="/s,t",encrypted=`, says: "encrypted has no value"},
		{in: "log=a,save=/s", want: servedRegion{Name: "log", Path: regionPath{"a"}, Save: regionPath{"/s"}}},
		{in: `log=a,save="/s,t",allow=` + alice.String(), want: servedRegion{Name: "log", Path: regionPath{"a"}, Save: regionPath{"/s,t"}, Allow: []allowedID{{alice}}}},
		{in: `log=a,part="b,c",encrypted,part=d`, want: servedRegion{Name: "log", Path: regionPath{"a"}, Parts: []regionPath{{"b,c"}, {"d"}}, Encrypted: true}, says: "it is encrypted, and no address is"},
		{in: "log=a,part=b,part=c,allow=" + alice.String(), want: servedRegion{Name: "log", Path: regionPath{"a"}, Parts: []regionPath{{"b"}, {"c"}}, Allow: []allowedID{{alice}}}},
		{in: "log=a" + strings.Repeat(",part=x", 32), says: "named twice"},
		{in: "log=a,save=/s,", says: `unknown option ""`},
		{in: "log=,size=4K", says: "it has no path"},
		{in: "log=x,size=1", says: "multiple of 4096"},
		{in: "log=x,alow=" + alice.String() + ",size=16M", says: `unknown option "alow"`},
		{in: "log=x,size=16M,alow=" + alice.String(), says: `unknown option "alow"`},
		{in: "log=a,size=4K,b", says: `unknown option "b"`},
	} {
		t.Run(c.in, func(t *testing.T) {
			cfg, err := parsed(t, "", "--region", c.in)
			if err == nil {
				err = cfg.check()
			}
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				require.ErrorIs(t, err, flags.ErrUsage)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []servedRegion{c.want}, cfg.Regions)
		})
	}
}

// The sample can be served as it is, and names every setting: those that it leaves
// out stand in comments that would be right.
func TestSample(t *testing.T) {
	const path = "../../dist/target.toml"
	code, out, errs := ran("serve", "--config", path, "--check")
	require.Equal(t, "", errs)
	require.Zero(t, code)
	require.Regexp(t, `^ok: \d+ regions?, \d+ listeners?\n$`, out)

	b, err := os.ReadFile(path)
	require.NoError(t, err)
	all := regexp.MustCompile(`(?m)^#([a-z-]+ = |\[\[)`).ReplaceAllString(string(b), "$1")
	cfg, err := parsed(t, all)
	require.NoError(t, err)
	require.NoError(t, cfg.check())
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	for name := range settings {
		require.Regexp(t, `(?m)^(`+name+` = |\[\[`+name+`\]\])`, all)
		require.Regexp(t, "(?m)^\\| `(\\[\\[)?"+name+"(\\]\\])?` \\|", string(page))
	}
	for i := range reflect.TypeFor[servedRegion]().NumField() {
		require.True(t, strings.Contains(all, "\n"+reflect.TypeFor[servedRegion]().Field(i).Tag.Get("toml")+" = "))
	}
}

func TestCheckFlag(t *testing.T) {
	code, out, errs := ran("serve", "--region", "log=/nonexistent/log", "--check")
	require.Zero(t, code, errs)
	require.Equal(t, "ok: 1 region, 1 listener\n", out)
	code, _, errs = ran("serve", "--check")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "nothing to serve")
}

// Whatever the file holds, it is either understood or an error that says where.
func FuzzConfig(f *testing.F) {
	for _, s := range settings {
		f.Add(s[0].file)
		f.Add(s[1].file)
	}
	f.Add("[[region]]\nname = 1\n[x")
	f.Add("region = [{name.x = 1, size = [{}]}]\nnuma.x = {}")
	f.Fuzz(func(t *testing.T, file string) {
		if file == "" {
			return
		}
		cfg, err := parsed(t, file)
		if err == nil {
			err = cfg.check()
		}
		if err != nil {
			require.ErrorIs(t, err, flags.ErrUsage)
			require.NotContains(t, err.Error(), "struct field")
		}
	})
}
