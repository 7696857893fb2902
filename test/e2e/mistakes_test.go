package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
	"pmnbd/rdma/verbs"
)

// A mistake is something that a person gets wrong, and what the command says about it.
type mistake struct {
	name string
	// line is the command line, cut at spaces. A {word} stands for a file or an address of the
	// place, {toml:…} for a configuration file with the given lines, cut at semicolons.
	line string
	code int
	// says is the line on standard error after the command's name. It uses the same {words},
	// and … for text that the test does not compare.
	says string
	// nobody runs the command as a user without rights.
	nobody bool
}

// TestMistakes makes every mistake that we know of. Each gets one line: what happened, to what,
// and what to do. Exit code 2 means a mistake on the command line or in the configuration file, 3 that
// going on would lose data (adopt_test.go and, for mirrors, mirror_test.go have more of those), and 1
// anything else.
func TestMistakes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	names := make(map[string]bool)
	for _, m := range slices.Concat(
		serveMistakes, serveTargetMistakes, listenMistakes, serveMirrorMistakes, configMistakes,
		commandMistakes, attachMistakes, mirrorCreateMistakes, mirrorMistakes,
		targetMistakes, servedRegionMistakes, targetConfigMistakes, targetCommandMistakes, regionMistakes,
		benchMistakes,
	) {
		require.False(t, names[m.name], "%s: twice", m.name)
		names[m.name] = true
		t.Run(m.name, func(t *testing.T) {
			if verbs.Built && strings.Contains(m.says, "this build has no RDMA verbs") {
				t.Skip("this build has RDMA verbs")
			}
			p.make(t, &m)
		})
	}
	// None of that hurt the client that was there before.
	data := noise(t, 4096)
	require.NoError(t, p.client.write(0, data))
	require.NoError(t, p.client.flush())
	for _, name := range []string{"new", "new2", "new,b", "new,alow=" + p.words["id"]} {
		require.NoFileExists(t, filepath.Join(p.disk, name))
	}
	require.NoFileExists(t, strings.TrimPrefix(p.words["socket"], "unix:"))
}

// A place is a host with something to get wrong.
type place struct {
	host
	words  map[string]string
	client *conn
}

// newPlace makes a place: a target with regions, a pmnbd that serves one of them, and another one that
// serves a mirror.
func newPlace(t *testing.T) *place {
	h := newHost(t)
	p := &place{host: h, words: map[string]string{
		"home": h.home, "disk": h.disk, "id": uuid.NewString(), "new": filepath.Join(h.disk, "new"),
		"socket": "unix:" + filepath.Join(h.home, "new.sock"), "goodsocket": filepath.Join(h.home, "good.sock"), "controls": controls(h.home),
		"closed": closedPort(t), "long": strings.Repeat("x", 200),
	}}
	p.files(t)
	p.regions(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	p.words["taken"] = taken.Addr().String()
	return p
}

// files makes files and directories that commands refuse, and a few that they take.
func (p *place) files(t *testing.T) {
	file := func(name, text string) string {
		p.words[name] = filepath.Join(p.disk, name)
		require.NoError(t, os.WriteFile(p.words[name], []byte(text), 0o600))
		return p.words[name]
	}
	for _, name := range []string{"empty", "rootonly", "nobodys", "badstate"} {
		p.words[name] = filepath.Join(p.disk, name)
		require.NoError(t, os.Mkdir(p.words[name], 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(p.words["badstate"], "initiator-id"), []byte("me\n"), 0o600))
	require.NoError(t, os.Chmod(p.disk, 0o755))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(p.words["nobodys"], nobody, nobody))
	}
	file("zeroes", string(make([]byte, 4<<20)))
	file("data", "precious"+string(make([]byte, 4<<20)))
	file("text", "none")
	file("nofigures", "{}")
	file("nothing", "")
	id, key := p.words["id"], strings.Repeat("0123456789abcdef", 4)
	file("keys", id+" pm1 "+key+"\n")
	require.NoError(t, os.Chmod(file("openkeys", id+" pm1 "+key+"\n"), 0o644))
	file("oldkeys", id+" "+key+"\n")
	file("twokeys", id+" pm1 "+key+"\n"+id+" pm2 "+key+"00\n")
	file("nokeys", "# none\n")
	file("shortkey", id+" pm1 abcd\n")
	file("badkey", id+" pm1 "+key+"xy\n")
	file("badid", "me pm1 "+key+"\n")
	file("wordkeys", "me pm1 "+key+" x\n")
	for _, name := range []string{"pki", "openpki", "nocapki"} {
		p.words[name] = selfSigned(t)
	}
	require.NoError(t, os.Chmod(filepath.Join(p.words["openpki"], "server-key.pem"), 0o644))
	require.NoError(t, os.Remove(filepath.Join(p.words["nocapki"], "ca-cert.pem")))
}

// regions makes regions, and the processes that serve some of them.
func (p *place) regions(t *testing.T) {
	id, shm := p.words["id"], testhost.Memory(t)
	args := []string{"serve", "--listen", "iwarp://127.0.0.1:0", "--allow-volatile"}
	for _, name := range []string{"good", "idle", "mine", "lost", "left", "right"} {
		p.words[name] = p.region(t, name, "4M")
		region := name + "=" + p.words[name]
		if name == "mine" {
			region += ",allow=" + id
		}
		args = append(args, "--region", region)
	}
	args = append(args, "--region", "large="+p.region(t, "large", "8M"), "--region", "fast="+filepath.Join(shm, "fast")+",size=4M")
	target := start(t, p.home, "pmnbd-target", args...)
	uri := target.waitReady(t)[0]
	p.words["uri"], p.words["targetport"] = uri, strings.TrimPrefix(uri, "iwarp://")

	p.words["free"], p.words["readonly"] = p.region(t, "free", "4M"), p.region(t, "readonly", "4M")
	require.NoError(t, os.Chmod(p.words["readonly"], 0o444))
	p.words["vol"] = filepath.Join(shm, "vol")
	p.run(t, "pmnbd-target", "region", "create", "vol", p.words["vol"], "--size", "4M")
	p.words["live"], p.words["saved"] = filepath.Join(shm, "live"), filepath.Join(p.disk, "saved")
	require.NoError(t, os.Mkdir(p.words["saved"], 0o700))
	p.run(t, "pmnbd-target", "region", "create", "live", p.words["live"], "--class", "protected", "--save", p.words["saved"], "--size", "4M")
	p.run(t, "pmnbd-target", "region", "clear", p.words["live"], "--save", p.words["saved"], "--reason", "so that its image is not whole")
	p.words["split"], p.words["split2"] = filepath.Join(p.disk, "split"), filepath.Join(p.disk, "split-2")
	p.run(t, "pmnbd-target", "region", "create", "split", "--part", p.words["split"], "--part", p.words["split2"], "--size-per-part", "4M")

	_, served, _ := p.initiator(t, uri, "good")
	p.client = dialNBD(t, served)
	killed, unflushed, _ := p.initiator(t, uri, "lost")
	require.NoError(t, dialNBD(t, unflushed).write(0, noise(t, 4096)))
	killed.kill(t)
	// The mirror has a control socket of its own, so that "good" is the only export at the other one.
	p.words["pair"], p.words["mirrors"] = uri+"/left,"+uri+"/right", "unix:"+filepath.Join(p.home, "mirrors")
	p.run(t, "pmnbd", "mirror", "create", "--state-dir", p.home, "--target", p.words["pair"])
	start(t, p.home, "pmnbd", "serve", "--target", p.words["pair"], "--export", "pair", "--listen", "unix:"+filepath.Join(p.home, "pair.sock"), "--control", p.words["mirrors"]).waitReady(t)
}

// closedPort returns an address at which nobody listens. A socket holds the port, so that no
// other process comes to listen there.
func closedPort(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := unix.Getsockname(fd)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
}

// cut finds the words of a line. Those in braces may contain spaces.
var cut = regexp.MustCompile(`(?:\{[^}]*\}|[^ ])+`)

// braced matches a {word}.
var braced = regexp.MustCompile(`\{[^}]*\}`)

// meter is a line of how far a command is, which shows what takes more than a second: on a machine
// that is busy, that may be anything.
var meter = regexp.MustCompile(`(?m)^(create|clear) \S+?(: [a-z ]+)? (for \S+|\S+ of \S+, \d+ %(, \S+/s, \S+ left)?)\n`)

// make makes the mistake.
func (p *place) make(t *testing.T, m *mistake) {
	toml := filepath.Join(t.TempDir(), "target.toml")
	var args []string
	for _, arg := range cut.FindAllString(m.line, -1) {
		args = append(args, braced.ReplaceAllStringFunc(arg, func(w string) string {
			w = strings.Trim(w, "{}")
			if text, ok := strings.CutPrefix(w, "toml:"); ok {
				require.NoError(t, os.WriteFile(toml, []byte(strings.ReplaceAll(text, ";", "\n")), 0o600))
				return toml
			}
			require.Contains(t, p.words, w)
			return p.words[w]
		}))
	}
	cmd := command(t, p.home, args[0], args[1:]...)
	if m.nobody {
		p.asNobody(t, cmd)
	}
	code, stdout, stderr := output(t, cmd)
	require.Empty(t, stdout)
	stderr = meter.ReplaceAllString(stderr, "")
	require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %s", stderr)
	_, says, _ := strings.Cut(strings.TrimSuffix(stderr, "\n"), ": ")
	require.Equal(t, m.code, code, stderr)
	var want strings.Builder
	for i, part := range strings.Split(m.says, "…") {
		if i > 0 {
			want.WriteString(".*")
		}
		want.WriteString(regexp.QuoteMeta(part))
	}
	require.Regexp(t, "^"+want.String()+"$", p.unword(says, toml))
}

// unword replaces what the place put into a command's output by its {words}, longest first.
func (p *place) unword(says, toml string) string {
	says = strings.ReplaceAll(says, toml, "{toml}")
	words := make([]string, 0, len(p.words))
	for w := range p.words {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int { return len(p.words[b]) - len(p.words[a]) })
	for _, w := range words {
		says = strings.ReplaceAll(says, p.words[w], "{"+w+"}")
	}
	return says
}

// asNobody makes cmd run as a user without rights.
func (p *place) asNobody(t *testing.T, cmd *exec.Cmd) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to run a command as another user")
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
}
