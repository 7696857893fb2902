package e2e

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/shmtest"
)

// A refusal is a command line that cannot work, and what the command says about it.
type refusal struct {
	name string
	args []string
	says []string // words of the one line on standard error
}

// check runs the rows of a table. Each command must end with code, print one line on standard
// error and nothing on standard output.
func (h host) check(t *testing.T, code int, rows []refusal) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			got, stdout, stderr := h.result(t, r.args[0], r.args[1:]...)
			require.Equal(t, code, got, "%s%s", stdout, stderr)
			require.Empty(t, stdout)
			require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %s", stderr)
			require.True(t, strings.HasSuffix(stderr, "\n"))
			for _, s := range r.says {
				require.Contains(t, stderr, s)
			}
		})
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	socket := "unix:" + filepath.Join(h.home, "s")
	path := filepath.Join(h.disk, "r")
	const target = "iwarp://127.0.0.1:1/r"
	h.check(t, 2, []refusal{
		{"target: no command", []string{"pmnbd-target"}, []string{"serve", "region"}},
		{"target: unknown command", []string{"pmnbd-target", "swerve"}, []string{"swerve", "serve"}},
		{"target: unknown flag", []string{"pmnbd-target", "serve", "--regoin", "r=" + path}, []string{"--regoin"}},
		{"target: no region", []string{"pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0"}, []string{"--region"}},
		{"target: a region without a path", []string{"pmnbd-target", "serve", "--region", "r"}, []string{"NAME=PATH"}},
		{"target: a region twice", []string{"pmnbd-target", "serve", "--region", "r=" + path, "--region", "r=" + path}, []string{"r"}},
		{"target: an address of another kind", []string{"pmnbd-target", "serve", "--listen", "nbd://127.0.0.1:0", "--region", "r=" + path}, []string{"iwarp://"}},
		{"target: verbs are not built in", []string{"pmnbd-target", "serve", "--listen", "rdma://127.0.0.1:0", "--region", "r=" + path}, []string{"rdma"}},
		{"target: surplus words", []string{"pmnbd-target", "serve", "--region", "r=" + path, "now"}, []string{"now"}},
		{"region: no command", []string{"pmnbd-target", "region"}, []string{"create"}},
		{"region: no path", []string{"pmnbd-target", "region", "create", "r"}, []string{"PATH"}},
		{"region: an invalid size", []string{"pmnbd-target", "region", "create", "r", path, "--size", "much"}, []string{"much"}},
		{"region: not a multiple of 4 KiB", []string{"pmnbd-target", "region", "create", "r", path, "--size", "4097"}, []string{"4"}},
		{"region: clear without a reason", []string{"pmnbd-target", "region", "clear", path}, []string{"--reason"}},
		{"no command", []string{"pmnbd"}, []string{"serve"}},
		{"unknown command", []string{"pmnbd", "swerve"}, []string{"swerve", "serve"}},
		{"unknown flag", []string{"pmnbd", "serve", "--tagret", target}, []string{"--tagret"}},
		{"no target", []string{"pmnbd", "serve", "--listen", socket}, []string{"--target"}},
		{"no listener", []string{"pmnbd", "serve", "--target", target}, []string{"--listen"}},
		{"a target without a region", []string{"pmnbd", "serve", "--target", "iwarp://127.0.0.1:1", "--listen", socket}, []string{"REGION"}},
		{"a target of another kind", []string{"pmnbd", "serve", "--target", "http://127.0.0.1/r", "--listen", socket}, []string{"iwarp://"}},
		{"a listener of another kind", []string{"pmnbd", "serve", "--target", target, "--listen", "udp:1"}, []string{"unix:", "tcp:"}},
		{"an invalid window", []string{"pmnbd", "serve", "--target", target, "--listen", socket, "--window", "lots"}, []string{"--window"}},
		{"surplus words", []string{"pmnbd", "serve", "--target", target, "--listen", socket, "now"}, []string{"now"}},
	})
	require.NoFileExists(t, path)
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	good := h.region(t, "good", "16M")
	_, uri := h.target(t, "good="+good)
	_, unix, tcp := h.initiator(t, uri, "good")
	c := dialNBD(t, unix) // so somebody is listening on the socket

	zeroes := filepath.Join(h.disk, "zeroes")
	require.NoError(t, os.WriteFile(zeroes, make([]byte, 4<<20), 0o600))
	other := h.region(t, "other", "16M")
	socket := "unix:" + filepath.Join(h.home, "new.sock")
	targetPort := strings.TrimPrefix(uri, "iwarp://")
	nbdPort := strings.TrimSuffix(strings.TrimPrefix(tcp, "nbd://"), "/good")

	// A port on which nobody listens any more.
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := nobody.Addr().String()
	require.NoError(t, nobody.Close())

	serve := func(region string, more ...string) []string {
		return append([]string{"pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", region}, more...)
	}
	initiate := func(target, listen string, more ...string) []string {
		return append([]string{"pmnbd", "serve", "--target", target, "--listen", listen}, more...)
	}
	h.check(t, 1, []refusal{
		{"target: no superblock", serve("zeroes=" + zeroes), []string{zeroes, "superblock"}},
		{"target: no file", serve("none=" + zeroes + "-"), []string{zeroes + "-"}},
		{"target: a directory", serve("dir=" + h.disk), []string{h.disk}},
		{"target: another name than the superblock's", serve("good=" + other), []string{"good", "other"}},
		{"target: region served already", serve("good=" + good), []string{good, "in use"}},
		{"target: port in use", []string{"pmnbd-target", "serve", "--listen", uri, "--region", "other=" + other}, []string{targetPort, "in use"}},
		{"region: create over a region", []string{"pmnbd-target", "region", "create", "other", other, "--size", "16M"}, []string{other, "--force"}},
		{"region: inspect a file that is no region", []string{"pmnbd-target", "region", "inspect", zeroes}, []string{zeroes}},
		{"target unreachable", initiate("iwarp://"+closed+"/good", socket), []string{closed + ": connect: connection refused: is pmnbd-target serving there?"}},
		{"region unknown", initiate(uri+"/nowhere", socket), []string{"nowhere"}},
		{"region busy: the same initiator", initiate(uri+"/good", socket), []string{"another pmnbd", "process "}},
		{"region busy: another initiator", initiate(uri+"/good", socket, "--id", "6ba7b810-9dad-41d1-80b4-00c04fd430c8"), []string{"good", "busy", "held by ", "--takeover"}},
		{"NBD port in use", initiate(uri+"/good", "tcp:"+nbdPort), []string{"in use"}},
		{"NBD socket in use", initiate(uri+"/good", "unix:"+filepath.Join(h.home, "good.sock")), []string{"in use", "another path"}},
	})

	// None of that hurt the client that was there before.
	data := noise(t, 4096)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())
	require.NoFileExists(t, filepath.Join(h.home, "new.sock"))
}

func TestNotWritable(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.region(t, "ro", "16M")
	require.NoError(t, os.Chmod(path, 0o444))
	require.NoError(t, os.Chmod(h.disk, 0o755))
	require.NoError(t, os.Chmod(h.home, 0o777))
	cmd := command(t, h.home, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", "ro="+path)
	if os.Getuid() == 0 { // root may write to every file
		const nobody = 65534
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	code, stdout, stderr := output(t, cmd)
	require.Equal(t, 1, code, stderr)
	require.Empty(t, stdout)
	require.Contains(t, stderr, path)
	require.Contains(t, stderr, "permission denied")
}

// TestVolatileNeedsTheFlagTwice checks that class volatile needs the flag at both ends, and
// that the product says what FLUSH means there.
func TestVolatileNeedsTheFlagTwice(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	dir := shmtest.Dir(t)
	path := filepath.Join(dir, "vol")
	h.run(t, "pmnbd-target", "region", "create", "vol", path, "--size", "16M")

	h.check(t, 1, []refusal{{"the target's",
		[]string{"pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", "vol=" + path},
		[]string{path, "volatile", "--allow-volatile"}}})
	target := start(t, h.home, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", "vol="+path, "--allow-volatile")
	uri := target.waitReady(t)[0]
	h.check(t, 1, []refusal{{"the initiator's",
		[]string{"pmnbd", "serve", "--target", uri + "/vol", "--listen", "unix:" + filepath.Join(h.home, "s")},
		[]string{"vol", "volatile", "--allow-volatile"}}})

	pmnbd, unix, _ := h.initiator(t, uri, "vol", "--allow-volatile")
	c := dialNBD(t, unix)
	data := noise(t, 1<<20)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())
	got := make([]byte, len(data))
	require.NoError(t, c.read(0, got))
	require.Equal(t, data, got)
	c.close()
	pmnbd.stop(t)
	target.stop(t)
}

func TestHelp(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, tc := range []struct {
		args []string
		says []string
	}{
		{[]string{"pmnbd", "--help"}, []string{"serve"}},
		{[]string{"pmnbd", "--version"}, []string{"pmnbd ", "protocol ", runtime.GOARCH}},
		{[]string{"pmnbd", "-V"}, []string{"pmnbd ", "protocol "}},
		{[]string{"pmnbd-target", "-V"}, []string{"pmnbd-target ", "protocol "}},
		{[]string{"pmnbd-target", "--version"}, []string{"pmnbd-target ", "protocol ", runtime.GOARCH}},
		{[]string{"pmnbd", "serve", "--help"}, []string{"--target", "--listen", "--export", "--window", "--allow-volatile", "iwarp://", "unix:", "tcp:"}},
		{[]string{"pmnbd-target", "--help"}, []string{"serve", "region"}},
		{[]string{"pmnbd-target", "serve", "--help"}, []string{"--listen", "--region", "--allow-volatile", "NAME=PATH"}},
		{[]string{"pmnbd-target", "region", "--help"}, []string{"create", "inspect", "clear"}},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			code, stdout, stderr := h.result(t, tc.args[0], tc.args[1:]...)
			require.Zero(t, code)
			require.Empty(t, stderr)
			for _, s := range tc.says {
				require.Contains(t, stdout, s)
			}
		})
	}
}

// TestExportName checks that --export replaces the region's name, also as the default export.
func TestExportName(t *testing.T) {
	t.Parallel()
	need(t, nbdinfo)
	h := newHost(t)
	path := h.region(t, "inner", "16M")
	_, uri := h.target(t, "inner="+path)
	socket := filepath.Join(h.home, "s")
	p := start(t, h.home, "pmnbd", "serve", "--target", uri+"/inner", "--listen", "unix:"+socket, "--export", "outer")
	require.Equal(t, []string{"nbd+unix:///outer?socket=" + socket}, p.waitReady(t))
	for _, name := range []string{"outer", ""} {
		require.Contains(t, nbdinfo.run(t, "--size", "nbd+unix:///"+name+"?socket="+socket), "16777216")
	}
	require.Contains(t, nbdinfo.run(t, "--list", "nbd+unix:///?socket="+socket), `export="outer"`)
}
