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

	"pmnbd/internal/shmtest"
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
// and what to do. Exit code 2 means a mistake on the command line or in the configuration file,
// 1 anything else. Exit code 3 needs a loss: adopt_test.go and status_test.go test that.
func TestMistakes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	names := make(map[string]bool)
	for _, m := range slices.Concat(targetMistakes, configMistakes, regionMistakes, serveMistakes, commandMistakes) {
		require.False(t, names[m.name], "%s: twice", m.name)
		names[m.name] = true
		t.Run(m.name, func(t *testing.T) { p.make(t, &m) })
	}
	// None of that hurt the client that was there before.
	data := noise(t, 4096)
	require.NoError(t, p.client.write(0, data))
	require.NoError(t, p.client.flush())
	for _, name := range []string{"new", "new,b", "new,alow=" + p.words["id"]} {
		require.NoFileExists(t, filepath.Join(p.disk, name))
	}
}

// A place is a host with something to get wrong.
type place struct {
	host
	words  map[string]string
	client *conn
}

// newPlace makes a place: a target with regions, one of which a pmnbd serves.
func newPlace(t *testing.T) *place {
	h := newHost(t)
	id := uuid.NewString()
	file := func(name string, size int, mode os.FileMode, text string) string {
		path := filepath.Join(h.disk, name)
		require.NoError(t, os.WriteFile(path, append([]byte(text), make([]byte, size)...), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	dir := func(name string, mode os.FileMode) string {
		path := filepath.Join(h.disk, name)
		require.NoError(t, os.Mkdir(path, 0o700))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	shm := shmtest.Dir(t)
	vol := filepath.Join(shm, "vol")
	h.run(t, "pmnbd-target", "region", "create", "vol", vol, "--size", "4M")
	key := strings.Repeat("0123456789abcdef", 4)
	good, mine := h.region(t, "good", "4M"), h.region(t, "mine", "4M")
	_, uri := h.target(t, "good="+good, "idle="+h.region(t, "idle", "4M"), "mine="+mine+",allow="+id)
	_, served, _ := h.initiator(t, uri, "good")
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return l
	}
	taken := listen()
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	pki, open, noCA := selfSigned(t), selfSigned(t), selfSigned(t)
	require.NoError(t, os.Chmod(filepath.Join(open, "server-key.pem"), 0o644))
	require.NoError(t, os.Remove(filepath.Join(noCA, "ca-cert.pem")))
	badState := dir("badstate", 0o755)
	require.NoError(t, os.WriteFile(filepath.Join(badState, "initiator-id"), []byte("me\n"), 0o600))
	require.NoError(t, os.Chmod(h.disk, 0o755))
	nobodys := dir("nobodys", 0o700)
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(nobodys, nobody, nobody))
	}
	return &place{host: h, client: dialNBD(t, served), words: map[string]string{
		"home": h.home, "disk": h.disk, "id": id, "new": filepath.Join(h.disk, "new"),
		"good": good, "free": h.region(t, "free", "4M"), "vol": vol,
		"zeroes": file("zeroes", 4<<20, 0o600, ""), "data": file("data", 4<<20, 0o600, "precious"),
		"keys": file("keys", 0, 0o600, id+" pm1 "+key+"\n"), "openkeys": file("openkeys", 0, 0o644, id+" pm1 "+key+"\n"),
		"oldkeys": file("oldkeys", 0, 0o600, id+" "+key+"\n"), "twokeys": file("twokeys", 0, 0o600, id+" pm1 "+key+"\n"+id+" pm2 "+key+"00\n"),
		"nokeys": file("nokeys", 0, 0o600, "# none\n"), "shortkey": file("shortkey", 0, 0o600, id+" pm1 abcd\n"), "wordkeys": file("wordkeys", 0, 0o600, "me pm1 "+key+" x\n"),
		"empty": dir("empty", 0o700), "rootonly": dir("rootonly", 0o700), "nobodys": nobodys, "badstate": badState,
		"pki": pki, "openpki": open, "nocapki": noCA,
		"uri": uri, "targetport": strings.TrimPrefix(uri, "iwarp://"), "taken": taken.Addr().String(), "closed": closedPort(t),
		"socket": "unix:" + filepath.Join(h.home, "new.sock"), "goodsocket": filepath.Join(h.home, "good.sock"), "long": strings.Repeat("x", 200),
	}}
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
