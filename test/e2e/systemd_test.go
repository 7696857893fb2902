package e2e

import (
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// handed makes cmd a process to which systemd passes sockets: they become descriptors from 3
// on, and variables name them and the process itself (sd_listen_fds(3)).
func handed(t *testing.T, cmd *exec.Cmd, listeners ...interface{ File() (*os.File, error) }) *exec.Cmd {
	t.Helper()
	var names []string
	for range listeners {
		names = append(names, "pmnbd.socket")
	}
	sh := exec.Command("/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`}, cmd.Args...)...)
	sh.SysProcAttr = cmd.SysProcAttr
	sh.Env = append(os.Environ(), "LISTEN_FDS="+strconv.Itoa(len(listeners)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	for _, l := range listeners {
		f, err := l.File()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		sh.ExtraFiles = append(sh.ExtraFiles, f)
	}
	return sh
}

func TestSocketsOfSystemd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.region(t, "r", "16M")
	_, uri := h.target(t, "r="+path)
	socket, own := filepath.Join(h.home, "theirs"), filepath.Join(h.home, "ours")
	local, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	require.NoError(t, err)
	defer func() { require.NoError(t, local.Close()) }()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, tcp.Close()) }()
	serve := func(more ...string) *exec.Cmd {
		return handed(t, command(t, h.home, "pmnbd", append([]string{"serve", "--target", uri + "/r"}, more...)...), local, tcp)
	}

	p := startCommand(t, serve())
	uris := p.waitReady(t)
	require.Equal(t, []string{"nbd+unix:///r?socket=" + socket, "nbd://" + tcp.Addr().String() + "/r"}, uris)
	data, got := noise(t, 4096), make([]byte, 4096)
	require.NoError(t, dialNBD(t, uris[0]).write(0, data))
	require.NoError(t, dialNBD(t, uris[1]).read(0, got))
	require.Equal(t, data, got)
	p.stop(t)
	require.FileExists(t, socket, "pmnbd must not remove systemd's socket")

	// A client that comes between two runs waits for the second one.
	waiting := make(chan error, 1)
	nc, err := net.Dial("unix", socket)
	require.NoError(t, err)
	require.NoError(t, nc.SetDeadline(time.Now().Add(outer)))
	go func() {
		_, err := nc.Read(make([]byte, 18))
		waiting <- err
	}()
	p = startCommand(t, serve("--listen", "unix:"+own))
	require.Contains(t, p.waitReady(t), "nbd+unix:///r?socket="+own, "--listen must be served too")
	require.NoError(t, <-waiting)
	require.NoError(t, nc.Close())
	p.stop(t)
	require.NoFileExists(t, own)
}

func TestRefusedSocketOfSystemd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.region(t, "r", "16M")
	_, uri := h.target(t, "r="+path)
	before := h.inspect(t, path).Epoch
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer func() { require.NoError(t, udp.Close()) }()
	code, stdout, stderr := output(t, handed(t, command(t, h.home, "pmnbd", "serve", "--target", uri+"/r"), udp))
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Equal(t, `pmnbd serve: socket "pmnbd.socket" of systemd: it does not listen: use ListenStream= with Accept=no`+"\n", stderr)
	require.Equal(t, before, h.inspect(t, path).Epoch, "the region must not be opened")
}

// TestExposedSocketOfSystemd checks that a socket unit does not open the exports to other hosts
// either.
func TestExposedSocketOfSystemd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.region(t, "r", "16M")
	_, uri := h.target(t, "r="+path)
	before := h.inspect(t, path).Epoch
	every, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4zero})
	require.NoError(t, err)
	defer func() { require.NoError(t, every.Close()) }()
	serve := func(more ...string) *exec.Cmd {
		return handed(t, command(t, h.home, "pmnbd", append([]string{"serve", "--target", uri + "/r"}, more...)...), every)
	}
	code, stdout, stderr := output(t, serve())
	require.Equal(t, 2, code, "which RestartPreventExitStatus= knows")
	require.Empty(t, stdout)
	require.Contains(t, stderr, "tcp:"+every.Addr().String()+" is not a loopback address")
	require.Contains(t, stderr, "--insecure-no-auth")
	require.Equal(t, before, h.inspect(t, path).Epoch, "the region must not be opened")
	p := startCommand(t, serve("--insecure-no-auth"))
	p.waitReady(t)
	p.stop(t)
}

// TestSystemdSocketActivate lets systemd's own tool start pmnbd when the first client comes.
func TestSystemdSocketActivate(t *testing.T) {
	t.Parallel()
	need(t, peer{"systemd-socket-activate", "systemd"})
	h := newHost(t)
	_, uri := h.target(t, "r="+h.region(t, "r", "16M"))
	socket := filepath.Join(h.home, "s")
	serve := command(t, h.home, "pmnbd", "serve", "--target", uri+"/r")
	activate := exec.Command("systemd-socket-activate", append([]string{"--listen", socket}, serve.Args...)...)
	activate.SysProcAttr = serve.SysProcAttr
	p := startCommand(t, activate)
	p.waitLog(t, "Listening on "+socket)
	require.NoError(t, dialNBD(t, "nbd+unix:///r?socket="+socket).write(0, noise(t, 4096)))
	require.Equal(t, []string{"nbd+unix:///r?socket=" + socket}, p.waitReady(t))
	p.stop(t)
}

// TestNotify checks that both daemons tell systemd when they start to serve and when they end.
// pmnbd asks for the time that draining may take.
func TestNotify(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(h.home, "notify"), Net: "unixgram"})
	require.NoError(t, err)
	defer func() { require.NoError(t, notify.Close()) }()
	require.NoError(t, notify.SetDeadline(time.Now().Add(outer)))
	told := func() string {
		t.Helper()
		for b := make([]byte, 1024); ; {
			n, err := notify.Read(b)
			require.NoError(t, err)
			if text := string(b[:n]); !strings.HasPrefix(text, "STATUS=") { // TestHealth looks at those
				return text
			}
		}
	}
	notifying := func(name string, args ...string) *process {
		cmd := command(t, h.home, name, args...)
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify.LocalAddr().String())
		return startCommand(t, cmd)
	}
	target := notifying("pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--region", "r="+h.region(t, "r", "16M"))
	uri := target.waitReady(t)[0]
	require.Equal(t, "READY=1\nSTATUS=region r: serving", told())
	pmnbd := notifying("pmnbd", "serve", "--target", uri+"/r", "--listen", "unix:"+filepath.Join(h.home, "s"), "--drain-timeout=200s")
	pmnbd.waitReady(t)
	require.Regexp(t, "^READY=1\nSTATUS=export r: serving since [^\n]*$", told())
	pmnbd.stop(t)
	require.Equal(t, "STOPPING=1\nSTATUS=ending\nEXTEND_TIMEOUT_USEC=205000000", told())
	target.stop(t)
	require.Contains(t, told(), "STOPPING=1\n")

	pmnbd = notifying("pmnbd", "serve", "--target", uri+"/r", "--listen", "unix:"+filepath.Join(h.home, "s"))
	require.Equal(t, 1, pmnbd.wait(t), "the target is gone")
	target = notifying("pmnbd-target", "serve", "--region", "r="+filepath.Join(h.disk, "nothing"))
	require.Equal(t, 1, target.wait(t))
	last, err := net.Dial("unixgram", notify.LocalAddr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, last.Close()) }()
	_, err = last.Write([]byte("the next"))
	require.NoError(t, err)
	require.Equal(t, "the next", told(), "a process that does not serve must tell systemd nothing")
}

// TestUnits checks that systemd understands the unit files, and that they deny the daemons what
// these do not need.
func TestUnits(t *testing.T) {
	t.Parallel()
	need(t, peer{"systemd-analyze", "systemd"})
	require.NoError(t, buildOnce())
	const from = "../../dist/systemd"
	dir := t.TempDir()
	files, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(from, f.Name()))
		require.NoError(t, err)
		// systemd-analyze verify looks for the binaries.
		here := strings.ReplaceAll(string(text), "/usr/bin/pmnbd", filepath.Join(binaries, "pmnbd"))
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name()), []byte(here), 0o600))
	}
	// The drop-in that docs/systemd.md shows.
	const credentials = "[Service]\nEnvironment=PMNBD_KEY=--key-file=%d/key\nLoadCredential=key:/etc/pmnbd/key\n"
	page, err := os.ReadFile("../../docs/systemd.md")
	require.NoError(t, err)
	require.True(t, strings.Contains(strings.ReplaceAll(string(page), "\n    ", "\n"), credentials), "docs/systemd.md shows another drop-in")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "pmnbd@log.service.d"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pmnbd@log.service.d", "keys.conf"), []byte(credentials), 0o600))
	for _, unit := range []string{"pmnbd@log.service", "pmnbd@log.socket", "pmnbd-target.service", "pmnbd-target-save.service"} {
		cmd := exec.Command("systemd-analyze", "verify", "./"+unit)
		cmd.Dir = dir
		code, stdout, stderr := output(t, cmd)
		require.Zero(t, code, stderr)
		require.Empty(t, stdout+stderr, unit)
		if strings.HasSuffix(unit, ".service") {
			require.Contains(t, directive(t, unit, "User"), "pmnbd", "not root")
			// The threshold is in tenths of the score, which goes to 10.
			cmd = exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold=20", "./"+unit)
			cmd.Dir = dir
			code, stdout, stderr = output(t, cmd)
			require.Zero(t, code, stdout+stderr)
		}
	}
}

// directive returns the value of a unit's setting.
func directive(t *testing.T, unit, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../dist/systemd/" + strings.Replace(unit, "@log", "@", 1))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSpace(value)
		}
	}
	require.FailNow(t, "no "+name+"=", unit)
	return ""
}

// TestSysusers checks that the sysusers file makes the user that the units name.
func TestSysusers(t *testing.T) {
	t.Parallel()
	need(t, peer{"systemd-sysusers", "systemd"})
	path, err := filepath.Abs("../../dist/sysusers.d/pmnbd.conf")
	require.NoError(t, err)
	code, stdout, stderr := output(t, exec.Command("systemd-sysusers", "--dry-run", path))
	require.Zero(t, code, stderr)
	if _, err := user.Lookup("pmnbd"); err != nil {
		require.Contains(t, stdout+stderr, "pmnbd")
	}
}

// TestServiceUser runs what the units run as a user without rights, with its own directories,
// and with keys passed as systemd passes credentials.
func TestServiceUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	const uid, id = 65534, "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	h := newHost(t)
	for _, name := range []string{"state", "window", "run", "regions"} {
		require.NoError(t, os.Mkdir(filepath.Join(h.home, name), 0o700))
		require.NoError(t, os.Chown(filepath.Join(h.home, name), uid, uid))
	}
	require.NoError(t, os.Chmod(h.home, 0o755))
	keys := filepath.Join(h.home, "keys")
	require.NoError(t, os.WriteFile(keys, []byte(id+" pm1 "+strings.Repeat("0123456789abcdef", 4)+"\n"), 0o400))
	// posix_acl_xattr.h: version 2; user::r--, user:65534:r--, group::---, mask::r--, other::---
	acl := "\x02\x00\x00\x00\x01\x00\x04\x00\xff\xff\xff\xff\x02\x00\x04\x00\xfe\xff\x00\x00" +
		"\x04\x00\x00\x00\xff\xff\xff\xff\x10\x00\x04\x00\xff\xff\xff\xff\x20\x00\x00\x00\xff\xff\xff\xff"
	if err := unix.Setxattr(keys, "system.posix_acl_access", []byte(acl), 0); err != nil {
		require.ErrorIs(t, err, unix.EOPNOTSUPP)
		require.NoError(t, os.Chown(keys, uid, uid), "as systemd does on a filesystem without ACLs")
	}
	started := func(unit, keyFlag, flag string, flags ...string) *process {
		require.NoError(t, buildOnce())
		file := filepath.Join(h.home, unit+".toml") // the flags say the rest
		require.NoError(t, os.WriteFile(file, []byte("log-level = \"debug\"\n"), 0o644))
		line := strings.NewReplacer("/etc/pmnbd/%i.toml", file, "/etc/pmnbd/target.toml", file, "/usr/bin", binaries, "unix:/run/pmnbd/", controls(h.home), "/var/lib/pmnbd", filepath.Join(h.home, "state"),
			"/dev/shm/pmnbd", filepath.Join(h.home, "window"), keyFlag, "--key-file="+keys, flag, strings.Join(flags, " ")).Replace(directive(t, unit, "ExecStart"))
		args := strings.Fields(line)
		require.NotContains(t, line, "$")
		cmd := exec.Command(args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return startCommand(t, cmd)
	}
	target := started("pmnbd-target.service", "$PMNBD_KEYS", "$PMNBD_TARGET",
		"--name pm1 --listen iwarp://127.0.0.1:0 --allow-volatile --region r="+filepath.Join(h.home, "regions", "r")+",size=16M")
	uri := target.waitReady(t)[0]
	socket := filepath.Join(h.home, "run", "nbd")
	pmnbd := started("pmnbd@.service", "$PMNBD_KEY", "$PMNBD", "--id "+id+" --target "+uri+"/r --allow-volatile --listen unix:"+socket)
	c := dialNBD(t, pmnbd.waitReady(t)[0])
	require.NoError(t, c.write(0, noise(t, 4096)))
	require.NoError(t, c.flush())
	require.Contains(t, h.run(t, "pmnbd", "status"), "export r: open", "root must see it")
	require.Contains(t, h.run(t, "pmnbd-target", "status"), "region r: in use")
	for _, p := range []*process{target, pmnbd} {
		p.signal(t, syscall.SIGHUP)
		p.waitLog(t, "read again")
	}
	c.close()
	pmnbd.stop(t)
	target.stop(t)
}
