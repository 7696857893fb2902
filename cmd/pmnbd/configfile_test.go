package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// parsed parses a file and flags.
func parsed(t *testing.T, file string, args ...string) (config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "pmnbd.toml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		args = append(args, "--config", path)
	}
	cfg, err := parse(call(args...))
	cfg.file, cfg.logLevel = "", nil // the level's own test compares it
	return cfg, err
}

// values has a value for each kind of flag, as the file has it and as the flag takes it. Where the
// kind does not tell, it is that of the flag.
var values = map[string][2]string{
	"bool": {"true", "true"}, "int": {"3", "3"}, "duration": {`"7s"`, "7s"}, "SIZE": {`"8M"`, "8M"},
	"[HOST:]PORT": {"9204", "9204"}, "unix:/PATH": {`"unix:/run/a.sock"`, "unix:/run/a.sock"}, "debug|info|warn|error": {`"debug"`, "debug"},
	"method": {`"gpspm"`, "gpspm"}, "string": {`"/a"`, "/a"},
	"listen": {`["unix:/a", "tcp:2"]`, ""}, "arbiter": {`"etcd://e1:2379"`, "etcd://e1:2379"}, "socket-mode": {`"640"`, "640"},
	"id": {`"6ba7b810-9dad-41d1-80b4-00c04fd430c8"`, "6ba7b810-9dad-41d1-80b4-00c04fd430c8"}, "tls": {`"off"`, "off"},
	"ublk": {`["/dev/ublkb3"]`, "/dev/ublkb3"},
}

// TestFlagsAndKeys checks that each flag has a key in the file, which says the same, and that the
// flag wins.
func TestFlagsAndKeys(t *testing.T) {
	var c config
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.declare(set, &unread{})
	// Several flags need another: each line of more is in the file, too.
	more := map[string]string{
		"standby": `arbiter = "etcd://e1:2379"`, "arbiter-cert": `arbiter = "etcds://e1:2379"` + "\n" + `arbiter-key = "/k"`,
		"arbiter-ca": `arbiter = "etcds://e1:2379"`, "arbiter-lease": `arbiter = "etcd://e1:2379"`,
		"arbiter-key": `arbiter = "etcds://e1:2379"` + "\n" + `arbiter-cert = "/c"`,
	}
	tested := 0
	set.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(notInFile, f.Name) {
			return
		}
		if f.Name == "tls-certificates" || f.Name == "tls-verify-peer" { // with files: TestTLSFiles has those
			return
		}
		s, named := values[f.Name]
		if !named {
			s = values[f.Value.Type()]
		}
		require.NotEmpty(t, s[0], "%s of type %s", f.Name, f.Value.Type())
		tested++
		byFlag := []string{"--" + f.Name + "=" + s[1]}
		if f.Name == "listen" {
			byFlag = []string{"--listen=unix:/a", "--listen=tcp:2"}
		}
		const mirror = "--target=iwarp://pm1/log,iwarp://pm2/log"
		with := more[f.Name]
		want, err := parsed(t, with, append(byFlag, mirror)...)
		require.NoError(t, err, f.Name)
		got, err := parsed(t, f.Name+" = "+s[0]+"\n"+with, mirror)
		require.NoError(t, err, f.Name)
		require.Equal(t, want, got, f.Name)
		if f.Name == "listen" {
			got, err = parsed(t, `listen = ["tcp:3"]`, append(byFlag, mirror)...)
		} else {
			got, err = parsed(t, f.Name+" = "+s[0]+"\n"+with, append(byFlag, mirror)...)
		}
		require.NoError(t, err, f.Name)
		require.Equal(t, want, got, "the flag wins: %s", f.Name)
	})
	require.Greater(t, tested, 25)
}

func TestExportsOfFile(t *testing.T) {
	const two = "[[export]]\nname = \"a\"\ntarget = \"iwarp://pm1/log\"\n[[export]]\ntarget = [\"iwarp://pm1/data\", \"iwarp://pm2/data\"]\n"
	for name, c := range map[string]struct {
		file string
		args []string
		want string
	}{
		"two, one named":       {two, nil, "a=iwarp://pm1:7204/log data=iwarp://pm1:7204/data,iwarp://pm2:7204/data"},
		"in one line":          {`export = [{target = "iwarp://pm1/log"}]`, nil, "log=iwarp://pm1:7204/log"},
		"a flag for all":       {two, []string{dataTarget}, "data=iwarp://pm2:7204/data"},
		"a flag with its name": {two, []string{dataTarget, "--export=x"}, "x=iwarp://pm2:7204/data"},
		"an empty name":        {two, []string{dataTarget, "--export="}, ""},
		"in capitals":          {"[[EXPORT]]\nName = \"a\"\nTARGET = \"iwarp://pm1/log\"\n", nil, "a=iwarp://pm1:7204/log"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := parsed(t, c.file, c.args...)
			if c.want == "" {
				require.EqualError(t, err, "--export is empty: give it a value, or leave the flag out")
				return
			}
			require.NoError(t, err)
			var exports []string
			for _, e := range cfg.exports {
				exports = append(exports, e.name+"="+uris(e.targets))
			}
			require.Equal(t, c.want, strings.Join(exports, " "))
		})
	}
}

// The sample is right, and so are the settings that stand in comments. It names every setting.
func TestSample(t *testing.T) {
	b, err := os.ReadFile("../../dist/pmnbd.toml")
	require.NoError(t, err)
	cfg, err := parsed(t, string(b))
	require.NoError(t, err)
	require.Len(t, cfg.exports, 1)
	all := regexp.MustCompile(`(?m)^#([a-z-]+ = |\[\[)`).ReplaceAllString(string(b), "$1")
	all = regexp.MustCompile(`(?m)^(tls|arbiter)(-[a-z-]+)? = .*$`).ReplaceAllString(all, "") // they name files
	cfg, err = parsed(t, all)
	require.NoError(t, err)
	require.Len(t, cfg.exports, 2)
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	var c config
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.declare(set, &unread{})
	for name := range fileSettings(set) {
		table, key, in := strings.Cut(name, ".")
		if !in {
			key = table
		}
		require.Regexp(t, `(?m)^#?(`+key+` = |\[\[`+key+`\]\])`, string(b), name)
		require.Regexp(t, "(?m)^\\| (… )?`(\\[\\[)?"+key+"(\\]\\])?`", string(page), name)
	}
}
