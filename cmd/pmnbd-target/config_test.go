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

func TestConfigErrors(t *testing.T) {
	const log = "[[region]]\nname = \"log\"\npath = \"/log\"\n"
	for name, c := range map[string]struct{ file, says string }{
		"unknown key":            {"allow-volatile = true\n\nalow-volatile = true", `:3: unknown key "alow-volatile"`},
		"unknown key of region":  {log + "sise = \"1G\"", `:4: unknown key "region.sise"`},
		"unknown table":          {"[adapter]\nx = 1", `unknown key "adapter`},
		"not TOML":               {"numa = \"off\"\nlisten = [", `:2: `},
		"a key twice":            {"numa = \"off\"\nnuma = \"auto\"", `:2: `},
		"another type":           {"\nallow-volatile = \"yes\"", `:2: allow-volatile takes true or false, without quotes`},
		"one address":            {"\nlisten = \"iwarp://127.0.0.1\"", `:2: listen takes a list of addresses: listen = ["iwarp://127.0.0.1:7204"]`},
		"a list of numbers":      {"\nlisten = [7204]", `:2: listen takes a list`},
		"a list of lists":        {"\nlisten = [[\"iwarp://127.0.0.1\"]]", `:2: listen takes a list`},
		"a table of addresses":   {"\n[listen]\na = 1", `:2: listen takes a list`},
		"a number for a path":    {"\nkey-file = 3", `:2: key-file takes a path in quotes`},
		"a key with a dot":       {"\nkey-file.x = 1", `:2: key-file takes a path in quotes`},
		"a list for a node":      {"\nnuma = [1]", `:2: numa takes "auto", "off"`},
		"a table for a node":     {"\n[numa]", `:2: numa takes "auto", "off"`},
		"a part of a node":       {"\nnuma = 1.5", `:2: numa takes "auto", "off"`},
		"a date for a time":      {"\nspin = 1979-05-27", `:2: spin takes a duration in quotes`},
		"a list to scrape":       {"\nmetrics = [9204]", `:2: metrics takes a port`},
		"a number for a name":    {"[[region]]\nname = 3", `:2: region.name takes a name in quotes`},
		"one id":                 {log + "allow = \"" + alice.String() + "\"", `:4: region.allow takes a list of ids`},
		"numbers for ids":        {log + "allow = [1]", `:4: region.allow takes a list of ids`},
		"a size of truth":        {log + "size = true", `:4: region.size takes a size`},
		"a table for a name":     {"[[region]]\n[region.name]\nx = 1", `:2: region.name takes`},
		"one region":             {"\n[region]\nname = \"a\"", `:2: region takes a table for each region, under a line [[region]]`},
		"regions, in a line":     {"region = [{name = \"a\", path = 3}]", `:1: region.path takes a path`},
		"one region, in a line":  {"region = {name = \"a\"}", `:1: region takes a table`},
		"in capitals":            {"\nLISTEN = 3", `:2: listen takes a list`},
		"no address":             {`listen = ["tcp://127.0.0.1:1"]`, `"tcp://127.0.0.1:1" is not an address`},
		"no choice of nodes":     {`numa = "some"`, `:1: numa: "some" is not a node: use auto, off or the number of a node`},
		"no number of a node":    {`numa = -1`, `:1: numa takes "auto", "off"`},
		"a time that is past":    {`spin = "-1s"`, `:1: spin: "-1s" is negative`},
		"a number for a time":    {"\nspin = 50", `:2: spin takes a duration in quotes: spin = "50us"`},
		"a time without a unit":  {`spin = "50"`, `:1: spin: "50" has no unit: use 50s`},
		"no address to scrape":   {"\nmetrics = \"pm1\"", `:2: metrics: "pm1" is not an address for metrics`},
		"no place":               {`control = "/x"`, `:1: control: "/x" is not a control socket: use unix:`},
		"no command":             {`battery-command = " "`, `:1: battery-command: it names no command`},
		"a command in parts":     {"\nbattery-command = [\"upsc\"]", `:2: battery-command takes a command in quotes`},
		"saved, and made":        {log + "size = \"1G\"\nsave = \"/saved\"", `region "log": with save=, make it first, in a file: pmnbd-target region create log PATH --class protected`},
		"saved, in no file":      {"[[region]]\nname = \"log\"\npath = \"memfd:\"\nsave = \"/saved\"", "with save=, make it first, in a file"},
		"a flag for a directory": {log + "save = \"/saved,alow=x\"", `:4: region.save: /saved,alow=x: a comma ends a path`},
		"a path, and parts":      {log + "parts = [\"/b\"]", `region "log": it has path and parts: name all parts in parts`},
		"one part":               {"[[region]]\nname = \"log\"\nparts = [\"/b\"]", `region "log": it has one part: use path`},
		"parts in no list":       {"[[region]]\nname = \"log\"\nparts = \"/b\"", `:3: region.parts takes a list of paths`},
		"a flag for a part":      {"[[region]]\nname = \"log\"\nparts = [\"/b\", \"/c,size=1G\"]", `a comma ends a path`},
		"no size":                {"[[region]]\nname = \"a\"\npath = \"/a\"\nsize = \"much\"", `"much" is not a size`},
		"a size below nothing":   {"[[region]]\nname = \"a\"\npath = \"/a\"\nsize = -4096", `:4: `},
		"no id":                  {log + `allow = ["me"]`, `:4: region.allow: "me" is not the id of an initiator`},
		"a flag for a path":      {"[[region]]\nname = \"log\"\npath = \"/log,alow=x\"", `:3: region.path: /log,alow=x: a comma ends a path`},
		"nobody allowed":         {log + `allow = []`, `region "log": nobody is allowed`},
		"no region":              {`numa = "off"`, "nothing to serve"},
		"no listener":            {log + "[x]", "unknown key"},
		"listens nowhere":        {"listen = []\n" + log, "nowhere to listen"},
		"open to the world":      {"listen = [\"iwarp://0.0.0.0\"]\n" + log, "not a loopback address: use --key-file"},
		"two of a name":          {log + log, "region log is named twice"},
		"no path":                {"[[region]]\nname = \"log\"", `region "log": it has no path`},
		"no name":                {"[[region]]\npath = \"/log\"", `region "": `},
		"a size past the units":  {log + "size = 4097", "multiple of 4096"},
		"memory without a size":  {"[[region]]\nname = \"log\"\npath = \"memfd:\"", "needs a size"},
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
	_, err := parsed(t, "", "--config", "/nonexistent/target.toml")
	require.ErrorIs(t, err, os.ErrNotExist)
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
		{in: "log=a,part=", says: "part names no file or device"},
		{in: "log=a,part=b,part=b", says: "part b is named twice"},
		{in: "log=a,part=a", says: "part a is named twice"},
		{in: "log=a,part=memfd:", says: "anonymous memory cannot be a part"},
		{in: "log=a,part=b,size=1G", says: "is not made by serve: leave size out"},
		{in: "log=a,part=b,save=/s", says: "class protected cannot have several parts"},
		{in: "log=a" + strings.Repeat(",part=x", 32), says: "named twice"},
		{in: "log=a,save=/s,save=/t", says: "save is given twice"},
		{in: "log=a,save=", says: "save names no directory"},
		{in: "log=a,save", says: `unknown option "save"`},
		{in: `log=a,save="/s`, says: "quotation mark"},
		{in: "log=a,save=/s,", says: `unknown option ""`},
		{in: "log=a,encrypted", says: "it is encrypted, and no address is: add --listen iwarps://HOST"},
		{in: "log=a,encrypted=no", says: "encrypted has no value"},
		{in: "log=memfd:", says: "needs a size"},
		{in: "log", says: "use NAME=PATH"},
		{in: "log=", says: "it has no path"},
		{in: "log=,size=4K", says: "it has no path"},
		{in: "=x", says: "use 1 to 255"},
		{in: "a b=x", says: "use letters"},
		{in: "log=x,size=", says: "use bytes"},
		{in: "log=x,size=0", says: "multiple of 4096"},
		{in: "log=x,size=1", says: "multiple of 4096"},
		{in: "log=x,size=4K,size=8K", says: "given twice"},
		{in: "log=x,allow=me", says: `allow: "me" is not the id of an initiator`},
		{in: "log=x,allow=" + uuid.Nil.String(), says: "is not the id of an initiator"},
		{in: "log=x,alow=" + alice.String() + ",size=16M", says: `unknown option "alow"`},
		{in: "log=x,size=16M,alow=" + alice.String(), says: `unknown option "alow"`},
		{in: "log=x,", says: `unknown option ""`},
		{in: "log=a,size=4K,b", says: `unknown option "b"`},
		{in: `log="a,size=4K`, says: "quotation mark"},
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
