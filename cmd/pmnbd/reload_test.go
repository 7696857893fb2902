package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/endpoint"
	"pmnbd/ublk"
)

// openedExport is an export that serves regions, whose keys have the names of their hosts.
func openedExport(t *testing.T, name string, uris ...string) *export {
	t.Helper()
	x := &export{name: name}
	for _, u := range uris {
		e, err := endpoint.ParseTarget(u)
		require.NoError(t, err)
		x.targets, x.keys = append(x.targets, e), append(x.keys, "")
	}
	x.said = x.targets
	return x
}

// TestPlan: what a reload leaves, begins and ends, and what it refuses to take for either.
func TestPlan(t *testing.T) {
	const log, data, other = "iwarp://pm1/log", "iwarp://pm2/data", "iwarp://pm3/other"
	for name, tt := range map[string]struct {
		file     []string // --target and --export
		begin    string
		end      string
		refuses  string
		prepared func(*initiator)
	}{
		"nothing":                    {file: []string{"a=" + log, "b=" + data}},
		"another order":              {file: []string{"b=" + data, "a=" + log}},
		"one more":                   {file: []string{"a=" + log, "b=" + data, "c=" + other}, begin: "c"},
		"one less":                   {file: []string{"b=" + data}, end: "a"},
		"one for another":            {file: []string{"c=" + other, "b=" + data}, begin: "c", end: "a"},
		"another name":               {file: []string{"c=" + log, "b=" + data}, refuses: `export "c" would have a region of export "a"`},
		"another region":             {file: []string{"a=" + other, "b=" + data}, refuses: `export "a" has other targets in the file`},
		"two in turn":                {file: []string{"b=" + log, "a=" + data}, refuses: "has other targets in the file"},
		"the same, encrypted":        {file: []string{"a=iwarps://pm1/log", "b=" + data}, refuses: `export "a" has other targets in the file`},
		"the same, by a name":        {file: []string{"a=iwarp://x@pm1/log", "b=" + data}, refuses: "names the target, and without a key"},
		"its region in a mirror":     {file: []string{"m=" + log + "," + other, "b=" + data}, refuses: `export "m" would have a region of export "a"`},
		"one that is a block device": {file: []string{"a=" + log}, refuses: `export "b" is /dev/ublkb0: detach that first`, prepared: func(s *initiator) { s.ublks.devices = []ublkDevice{{Device: &ublk.Device{}, export: "b"}} }},
		"one that is none any more":  {file: []string{"a=" + log}, end: "b", prepared: func(s *initiator) { s.ublks.keepLocked("b", ublk.Snapshot{}) }},
		"a member that was added":    {file: []string{"a=" + log, "b=" + data + "," + other}, prepared: func(s *initiator) { s.all[1] = grown(t, s.all[1], other) }},
		"one that the file lacks":    {file: []string{"a=" + log, "b=" + data}, prepared: func(s *initiator) { s.all[1] = grown(t, s.all[1], other) }},
		"a member for itself":        {file: []string{"a=" + log, "b=" + data, "c=" + other}, refuses: `export "c" would have a region of export "b"`, prepared: func(s *initiator) { s.all[1] = grown(t, s.all[1], other) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := &initiator{all: []*export{openedExport(t, "a", log), openedExport(t, "b", data)}}
			if tt.prepared != nil {
				tt.prepared(s)
			}
			var args []string
			for _, e := range tt.file {
				name, target, _ := strings.Cut(e, "=")
				args = append(args, "--export="+name, "--target="+target)
			}
			next, err := parse(call(args...))
			require.NoError(t, err)
			p, err := s.plan(&next)
			if tt.refuses != "" {
				require.ErrorContains(t, err, tt.refuses)
				return
			}
			require.NoError(t, err)
			var begin, end []string
			for n, x := range p.all {
				if x == nil {
					begin = append(begin, next.exports[n].name)
				} else {
					require.Equal(t, next.exports[n].name, x.name)
				}
			}
			for _, x := range p.gone {
				end = append(end, x.name)
			}
			require.Equal(t, tt.begin, strings.Join(begin, " "))
			require.Equal(t, tt.end, strings.Join(end, " "))
		})
	}
}

// grown is an export to which pmnbd mirror has added a member.
func grown(t *testing.T, x *export, uri string) *export {
	t.Helper()
	e, err := endpoint.ParseTarget(uri)
	require.NoError(t, err)
	x.targets, x.keys = append([]endpoint.Endpoint{e}, x.targets...), append([]string{""}, x.keys...)
	return x
}

// TestMembersThatGo: a member that is removed takes its key along, so that the file need not have that any more.
func TestMembersThatGo(t *testing.T) {
	x := openedExport(t, "m", "iwarp://pm1/log", "iwarp://pm2/log", "iwarp://pm3/log")
	x.keys = []string{"one", "two", "three"}
	x.drop(address{"pm2:7204", "log"}.is)
	require.Equal(t, []string{"one", "three"}, x.keys)
	require.Equal(t, "iwarp://pm1:7204/log,iwarp://pm3:7204/log", uris(x.targets))
	require.Len(t, x.said, 3, "what the file says is another matter")
}

// TestPlanKeys: the file must have the keys of targets that stay, under the names that these have.
func TestPlanKeys(t *testing.T) {
	id, path := uuid.New(), filepath.Join(t.TempDir(), "keys")
	for name, tt := range map[string]struct {
		keys    []string
		target  string
		refuses string
	}{
		"as before":    {[]string{"pm1", "pm2"}, "iwarp://pm1/log", ""},
		"less":         {[]string{"pm1"}, "iwarp://pm1/log", ""},
		"not its own":  {[]string{"pm2"}, "iwarp://pm1/log", "has no key of this initiator and target pm1"},
		"another name": {[]string{"pm1", "pm2"}, "iwarp://pm2@pm1/log", `whose name is "pm2", and expects the name "pm1" there`},
	} {
		t.Run(name, func(t *testing.T) {
			text := ""
			for i, target := range tt.keys {
				text += id.String() + " " + target + " " + strings.Repeat("0123456789abcde"+string('0'+rune(i)), 4) + "\n"
			}
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			s := &initiator{id: id, all: []*export{openedExport(t, "log", "iwarp://pm1/log")}}
			s.all[0].keys = []string{"pm1"}
			next, err := parse(call("--target="+tt.target, "--key-file="+path))
			require.NoError(t, err)
			p, err := s.plan(&next)
			if tt.refuses != "" {
				require.ErrorContains(t, err, tt.refuses)
				return
			}
			require.NoError(t, err)
			require.NotEmpty(t, p.keys.get("pm1"))
		})
	}
}

// TestKeysDuringAReload: while a reload goes on, only the devices that it opens have its keys. If it fails nothing has
// changed for the others, also if they come back just then.
func TestKeysDuringAReload(t *testing.T) {
	generation := func(fill string) *keys {
		path, id := filepath.Join(t.TempDir(), "keys"), uuid.New()
		require.NoError(t, os.WriteFile(path, []byte(id.String()+" pm1 "+strings.Repeat(fill, 4)+"\n"), 0o600))
		k, err := readKeys(path, id)
		require.NoError(t, err)
		return k
	}
	before, next := generation("0123456789abcdef"), generation("fedcba9876543210")
	var r keyring
	r.now.Store(before)
	old := r.of(r.latest())
	r.next.Store(next)
	fresh := r.of(r.latest())
	require.Equal(t, before.get("pm1"), old("pm1"))
	require.Equal(t, next.get("pm1"), fresh("pm1"))
	r.now.Store(next)
	r.next.Store(nil)
	require.Equal(t, next.get("pm1"), old("pm1"))
	require.Equal(t, next.get("pm1"), fresh("pm1"))
}

// TestLater: what a person decided for the start does not count for exports that come later.
func TestLater(t *testing.T) {
	for name, args := range map[string][]string{
		"alone":          {logTarget, "--accept-loss", "--takeover", "--degraded-single"},
		"a member":       {logTarget, "--accept-loss", "--takeover", "--degraded"},
		"a mirror":       {"--target=iwarp://pm1/log,iwarp://pm2/log", "--degraded", "--without-arbiter"},
		"with arbiter":   {logTarget, "--arbiter=etcd://e:2379", "--accept-loss", "--degraded"},
		"nothing at all": {logTarget},
	} {
		c, err := parse(call(args...))
		require.NoError(t, err, name)
		l := c.later()
		require.False(t, l.acceptLoss || l.takeover || l.degraded || l.noArbiter || l.single, name)
		require.Equal(t, name == "with arbiter", l.member, name)
		require.Equal(t, c.window, l.window)
	}
}

// TestReread: a reload looks whether the file has changed anything that it cannot change.
func TestReread(t *testing.T) {
	const one, two = "[[export]]\ntarget = \"iwarp://pm1/log\"\n", "[[export]]\ntarget = \"iwarp://pm2/data\"\n"
	for name, tt := range map[string]struct {
		was, is string
		refuses string
	}{
		"nothing":                    {one, one, ""},
		"exports and the level":      {one, "log-level = \"debug\"\n" + one + two, ""},
		"a default that is written":  {one, "window = \"64M\"\n" + one, ""},
		"a setting":                  {one, "lanes = 2\nread-only = true\n" + one, "a change of lanes, read-only takes a restart"},
		"a setting that is gone":     {"lanes = 2\n" + one, one, "a change of lanes takes a restart"},
		"a first key file":           {one, "key-file = \"/k\"\n" + one, "a change of key-file takes a restart"},
		"no key file any more":       {"key-file = \"/k\"\n" + one, one, "a change of key-file takes a restart"},
		"another key file":           {"key-file = \"/k\"\n" + one, "key-file = \"/l\"\n" + one, ""},
		"TLS":                        {one, "tls = \"on\"\ntls-certificates = \"/nonexistent\"\n" + one, "--tls-certificates: "},
		"an arbiter":                 {one, "arbiter = \"etcd://e:2379\"\n" + one, "a change of arbiter takes a restart"},
		"a block device, named now":  {"ublk = [\"/dev/ublkb0\"]\n" + one, "ublk = [\"log=/dev/ublkb0\"]\n" + one + two, ""},
		"another block device":       {"ublk = [\"/dev/ublkb0\"]\n" + one, "ublk = [\"/dev/ublkb1\"]\n" + one, "a change of ublk takes a restart"},
		"its export is gone":         {"ublk = [\"log=/dev/ublkb0\"]\n" + one, "ublk = [\"log=/dev/ublkb0\"]\n" + two, `no export is called "log"`},
		"no export":                  {one, "", "no region"},
		"no TOML":                    {one, "[[export\n", "conf"},
		"an export for a listener":   {one, "listen = [\"unix:/tmp/x\"]\n" + one, "a change of listen takes a restart"},
		"a flag of mirrors for none": {one, "leg-timeout = \"1s\"\n" + one, "--leg-timeout is for mirrors"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "conf")
			require.NoError(t, os.WriteFile(path, []byte(tt.was), 0o600))
			c := call("--config", path)
			cfg, err := parse(c)
			require.NoError(t, err)
			s := &initiator{cfg: cfg, args: c.Args, said: settings(c.Flags)}
			require.NoError(t, os.WriteFile(path, []byte(tt.is), 0o600))
			_, _, err = s.reread()
			if tt.refuses == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.refuses)
			if strings.Contains(tt.refuses, "restart") {
				require.ErrorIs(t, err, flags.ErrUsage)
			}
		})
	}
}
