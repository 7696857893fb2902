package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"pmnbd/backend/mem"
	"pmnbd/internal/sockio"
	"pmnbd/nbd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type document struct {
	Header
	Answer int    `json:"answer"`
	Bulk   string `json:"bulk"`
	// Names are what one of its metrics is labelled with.
	Names  []string `json:"-"`
	health Health
}

func (d document) Collect(s Scrape) {
	Gauge(s, "test_answer", "What the document says.", d.Answer)
	for _, name := range d.Names {
		Counter(s, "test_names_total", "How long a name is.", len(name), "name", name)
	}
}

// A mislabelled document has a metric with a label that has no value.
type mislabelled struct{}

func (mislabelled) Collect(s Scrape) { Gauge(s, "test_answer", "What the document says.", 1, "name") }

func directory(t *testing.T) *Place {
	p := &Place{}
	require.NoError(t, p.Set("unix:"+t.TempDir()+"/"))
	return p
}

func serve(t *testing.T, p *Place, name, program string, answer int) *Server {
	l, err := p.Listen(name)
	require.NoError(t, err)
	h := NewHeader(program)
	s := Serve(l, nil, zaptest.NewLogger(t), func() Document { return document{Header: h, Answer: answer} })
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func find(t *testing.T, p *Place, program string) []Found[document] {
	found, err := Find[document](t.Context(), p, program)
	require.NoError(t, err)
	return found
}

func names(t *testing.T, p *Place) []string {
	entries, err := os.ReadDir(p.path)
	require.NoError(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestFind(t *testing.T) {
	p := directory(t)
	require.Empty(t, find(t, p, "pmnbd"))
	first := serve(t, p, "b", "pmnbd", 1)
	serve(t, p, "a", "pmnbd", 2)
	serve(t, p, "target", "pmnbd-target", 3)

	found := find(t, p, "pmnbd")
	require.Len(t, found, 2)
	require.Equal(t, 2, found[0].Document.Answer, "in the order of their names")
	require.Equal(t, os.Getpid(), found[0].Document.PID)
	require.JSONEq(t, `1`, string(field(t, found[1].Raw, "answer")))
	require.Len(t, find(t, p, "pmnbd-target"), 1)

	require.NoError(t, first.Close())
	require.NoError(t, first.Close(), "idempotent")
	require.Len(t, find(t, p, "pmnbd"), 1)
	require.Len(t, names(t, p), 2, "it took its socket with it")
}

// What a process says reaches a terminal as text, in each form.
func TestWhatIsFoundIsPlain(t *testing.T) {
	const hostile, shown = "\x1b]0;owned\x07\u009b\x7f\u202e\nregion other: free", `\x1b]0;owned\a\u009b\x7f\u202e\nregion other: free`
	p := directory(t)
	l, err := p.Listen("a")
	require.NoError(t, err)
	h := NewHeader("pmnbd")
	s := Serve(l, nil, zaptest.NewLogger(t), func() Document { return document{Header: h, Answer: 1 << 53, Bulk: hostile} })
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	found := find(t, p, "pmnbd")
	require.Equal(t, shown, found[0].Document.Bulk)
	require.Equal(t, 1<<53, found[0].Document.Answer)
	require.Equal(t, h.Started.UnixNano(), found[0].Document.Started.UnixNano())

	var out bytes.Buffer
	require.NoError(t, WriteJSON(&out, found))
	require.Equal(t, -1, strings.IndexFunc(out.String(), func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }))
	var again []document
	require.NoError(t, json.Unmarshal(out.Bytes(), &again))
	require.Equal(t, hostile, again[0].Bulk, "programs read what was said")
}

func field(t *testing.T, raw json.RawMessage, name string) json.RawMessage {
	var m map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &m))
	return m[name]
}

func TestFindRemovesWhatNobodyAcceptsOn(t *testing.T) {
	p := directory(t)
	serve(t, p, "alive", "pmnbd", 1)
	dead := filepath.Join(p.path, "dead-1.sock")
	l, err := net.Listen("unix", dead)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	file := filepath.Join(p.path, "file.sock")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	require.Len(t, find(t, p, "pmnbd"), 1)
	require.NoFileExists(t, dead)
	require.FileExists(t, file, "not a socket")
}

func TestFindTellsWhoDoesNotAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"silence":       "",
		"no HTTP":       "hello\r\n\r\n",
		"an error":      "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
		"no JSON":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]",
		"cut short":     "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
		"without end":   "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat(" ", maxDocument+1),
		"another shape": `HTTP/1.1 200 OK` + "\r\n\r\n" + `{"program":"pmnbd","answer":"x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := directory(t)
			serve(t, p, "z", "pmnbd", 7)
			bad := filepath.Join(p.path, "bad-1.sock")
			l, err := net.Listen("unix", bad)
			require.NoError(t, err)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 4096))
					_, _ = io.WriteString(c, answer) // it may have hung up
					_ = c.Close()
				}
			}()
			found, err := Find[document](t.Context(), p, "pmnbd")
			require.ErrorContains(t, err, bad+" does not answer")
			require.Len(t, found, 1, "the other does")
			require.FileExists(t, bad)
			require.NoError(t, l.Close())
			<-ended
		})
	}
}

// Somebody may have NBD clients connect in the directory of the control sockets. That is no process that does not
// answer, unless it is the one that was asked for.
func TestFindLeavesNBDAlone(t *testing.T) {
	p := directory(t)
	serve(t, p, "z", "pmnbd", 7)
	path := filepath.Join(p.path, "nbd.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	dev, err := mem.New(1 << 20)
	require.NoError(t, err)
	s, err := nbd.New(nbd.Config{}, nbd.Export{Name: "mem", Device: dev})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	found, err := Find[document](t.Context(), p, "pmnbd")
	require.NoError(t, err)
	require.Len(t, found, 1)
	one := &Place{}
	require.NoError(t, one.Set("unix:"+path))
	_, err = Find[document](t.Context(), one, "pmnbd")
	require.ErrorIs(t, err, errNBD)
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, <-served)
	require.NoError(t, dev.Close())
}

// Processes are asked at the same time: each of these answers when all have been asked.
func TestFindAsksAllAtOnce(t *testing.T) {
	p := directory(t)
	const n = 5
	var asked, ended sync.WaitGroup
	asked.Add(n)
	for i := range n {
		l, err := net.Listen("unix", filepath.Join(p.path, strconv.Itoa(i)+".sock"))
		require.NoError(t, err)
		ended.Go(func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			asked.Done()
			asked.Wait()
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n\r\n{\"program\":\"pmnbd\",\"answer\":%d}", i)
			_ = c.Close()
			_ = l.Close()
		})
	}
	found := find(t, p, "pmnbd")
	ended.Wait()
	require.Len(t, found, n)
	for i, f := range found {
		require.Equal(t, i, f.Document.Answer, "in the order of their names")
	}
}

// One that takes the connection and says nothing has its time, and is named.
func TestFindHanging(t *testing.T) {
	p := directory(t)
	serve(t, p, "z", "pmnbd", 7)
	hanging := filepath.Join(p.path, "a.sock")
	l, err := net.Listen("unix", hanging) // the kernel accepts
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	found, err := Find[document](t.Context(), p, "pmnbd")
	require.EqualError(t, err, hanging+" does not answer: no answer in 5 s: its process hangs, or was stopped")
	require.Len(t, found, 1)
}

// A process that is slow to answer, as one does here only when the other was heard, keeps
// nobody waiting.
func TestAskWaitsForNone(t *testing.T) {
	p := directory(t)
	serve(t, p, "z", "pmnbd", 7)
	slow, err := net.Listen("unix", filepath.Join(p.path, "a.sock"))
	require.NoError(t, err)
	var heard []int
	require.NoError(t, Ask(t.Context(), p, "pmnbd", func(f Found[document]) {
		heard = append(heard, f.Document.Answer)
		if len(heard) > 1 {
			return
		}
		c, err := slow.Accept()
		require.NoError(t, err)
		_, _ = c.Read(make([]byte, 4096))
		_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n{\"program\":\"pmnbd\",\"answer\":8}")
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.NoError(t, slow.Close())
	}))
	require.Equal(t, []int{7, 8}, heard)
}

// A socket that was named may belong to a process that has bound it and does not listen
// yet: it stays.
func TestFindLeavesOneSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	p := &Place{}
	require.NoError(t, p.Set("unix:"+path))
	require.Empty(t, find(t, p, "pmnbd"))
	require.FileExists(t, path)
	require.NoError(t, unix.Listen(fd, 1))
	require.False(t, sockio.Abandoned(path), "and can be reached")
}

// A directory is not one socket, and the message says how it is asked for.
func TestDirectoryAsSocket(t *testing.T) {
	dir := t.TempDir()
	p := &Place{}
	require.NoError(t, p.Set("unix:"+dir))
	_, err := Find[document](t.Context(), p, "pmnbd")
	require.ErrorContains(t, err, dir+" is a directory: write unix:"+dir+"/, with a / at its end")
	_, err = p.Listen("x")
	require.ErrorContains(t, err, dir+" is a directory: write unix:"+dir+"/")
	require.DirExists(t, dir)
}

func TestNobody(t *testing.T) {
	own, other := Place{path: "/home/a/run"}, Place{path: "/home/b/run"}
	denied := &fs.PathError{Op: "open", Path: rootDir, Err: unix.EACCES}
	require.EqualError(t, nobody(&own, "pmnbd", own, nil), "no pmnbd is running: looked at unix:/home/a/run/")
	require.EqualError(t, nobody(&own, "pmnbd", own, fs.ErrNotExist), "no pmnbd is running: looked at unix:/home/a/run/")
	require.EqualError(t, nobody(&other, "pmnbd", own, denied), "no pmnbd is running: looked at unix:/home/b/run/", "it was told where to look")
	require.EqualError(t, nobody(&own, "pmnbd", own, denied), "no pmnbd of this user is running: looked at unix:/home/a/run/; "+
		"those of root and of the system's services are in /run/pmnbd, which this user cannot read: ask as root")
}

func TestOneSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	p := &Place{}
	require.NoError(t, p.Set("unix:"+path))
	require.Empty(t, find(t, p, "pmnbd"))
	s := serve(t, p, "ignored", "pmnbd", 5)
	require.Len(t, find(t, p, "pmnbd"), 1)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, info.Mode())
	_, err = p.Listen("")
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.NoError(t, s.Close())
	require.NoFileExists(t, path)
}

func TestNames(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	for name, want := range map[string]string{
		"log":                    "log-" + pid + ".sock",
		"a/b c":                  "a%2Fb%20c-" + pid + ".sock",
		"..":                     "..-" + pid + ".sock",
		strings.Repeat("x", 999): strings.Repeat("x", maxName) + "-" + pid + ".sock",
	} {
		p := &Place{}
		require.NoError(t, p.Set("unix:"+filepath.Join(t.TempDir(), "made")+"/"))
		l, err := p.Listen(name)
		require.NoError(t, err)
		require.Equal(t, []string{want}, names(t, p))
		info, err := os.Stat(filepath.Join(p.path, want))
		require.NoError(t, err)
		require.Equal(t, fs.ModeSocket|0o600, info.Mode())
		info, err = os.Stat(p.path)
		require.NoError(t, err)
		require.Equal(t, fs.ModeDir|0o700, info.Mode())
		require.NoError(t, l.Close())
		require.Empty(t, names(t, p))
	}
}

func TestPlace(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{"unix:/a/b", "unix:/a/b"},
		{"unix:/a/b/", "unix:/a/b/"},
		{"unix:/a//../b", "unix:/b"},
		{"unix:", ""},
		{"/a/b", ""},
		{"tcp:1", ""},
		{"unix:/" + strings.Repeat("x", 107), ""},
	} {
		p := &Place{}
		err := p.Set(c.in)
		require.Equal(t, c.out == "", err != nil, "%s: %v", c.in, err)
		require.Equal(t, c.out, p.String())
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("unix:/a/b")
	f.Add("unix:/.")
	f.Fuzz(func(t *testing.T, s string) {
		var p, again Place
		if p.Set(s) != nil {
			return
		}
		require.NoError(t, again.Set(p.String()), "%q → %q", s, p.String())
		require.Equal(t, p, again)
	})
}

func TestDefaultPlace(t *testing.T) {
	for _, c := range []struct {
		uid  int
		env  map[string]string
		want string
	}{
		{0, map[string]string{"XDG_RUNTIME_DIR": "/run/user/0", "HOME": "/root"}, "/run/pmnbd"},
		{1000, map[string]string{"XDG_RUNTIME_DIR": "/run/user/1000", "HOME": "/home/x"}, "/run/user/1000/pmnbd"},
		{1000, map[string]string{"XDG_RUNTIME_DIR": "relative", "HOME": "/home/x"}, "/home/x/.local/state/pmnbd/run"},
		{1000, nil, ""},
	} {
		require.Equal(t, c.want, defaultDir(c.uid, func(name string) string { return c.env[name] }))
	}
	nowhere := &Place{}
	_, err := nowhere.Listen("x")
	require.ErrorContains(t, err, "--control unix:/PATH")
	require.Empty(t, find(t, nowhere, "pmnbd"))
}

// Close does not wait for a client that does not ask, or does not read, but for who
// is making an answer.
func TestCloseCutsConnections(t *testing.T) {
	p := directory(t)
	l, err := p.Listen("x")
	require.NoError(t, err)
	asked, more := make(chan struct{}), make(chan struct{})
	var made atomic.Bool
	s := Serve(l, nil, zaptest.NewLogger(t), func() Document {
		close(asked)
		<-more
		made.Store(true)
		return document{Bulk: strings.Repeat("x", 8<<20)}
	})
	silent, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	deaf, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, deaf.Close()) }()
	_, err = io.WriteString(deaf, "GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	<-asked
	closed := make(chan bool)
	go func() {
		err := s.Close()
		closed <- err == nil && made.Load()
	}()
	_, err = deaf.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	close(more)
	require.True(t, <-closed)
}

func TestWhatIsServed(t *testing.T) {
	p := directory(t)
	control, err := p.Listen("x")
	require.NoError(t, err)
	var a Address
	require.NoError(t, a.Set("0"))
	metrics, err := a.Listen()
	require.NoError(t, err)
	s := Serve(control, metrics, zaptest.NewLogger(t), func() Document { return document{} })
	for _, c := range []struct {
		at           net.Addr
		method, path string
		code         int
	}{
		{control.Addr(), http.MethodGet, "/status", 200},
		{control.Addr(), http.MethodGet, "/metrics", 200},
		{control.Addr(), http.MethodGet, "/", 404},
		{control.Addr(), http.MethodPost, "/status", 405},
		{control.Addr(), http.MethodPost, "/metrics", 405},
		{metrics.Addr(), http.MethodGet, "/metrics", 200},
		{metrics.Addr(), http.MethodGet, "/status", 404},
		{metrics.Addr(), http.MethodGet, "/", 200},
		{metrics.Addr(), http.MethodGet, "/else", 404},
		{metrics.Addr(), http.MethodPost, "/", 405},
		{metrics.Addr(), http.MethodPost, "/metrics", 405},
	} {
		code, _ := get(t, c.at, c.method, c.path)
		require.Equal(t, c.code, code, "%s %s of %s", c.method, c.path, c.at.Network())
	}
	require.NoError(t, s.Close())
	_, err = net.Dial("tcp", metrics.Addr().String())
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	require.Empty(t, names(t, p))
}

// get asks for path at an address, and returns the code and the body of the answer.
func get(t *testing.T, at net.Addr, method, path string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial(at.Network(), at.String())
	}}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, nil)
	require.NoError(t, err)
	res, err := client.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	if path == MetricsPath { // those of the process differ
		require.Equal(t, res.StatusCode == 200, strings.Contains(string(body), "\ngo_goroutines ") && strings.Contains(string(body), "\nprocess_open_fds "))
		body = regexp.MustCompile(`(?m)^(# (HELP|TYPE) )?(go|process)_.*\n`).ReplaceAll(body, nil)
	}
	return res.StatusCode, string(body)
}

// If too many come, one is cut: the oldest where everybody may come, else the newest. Those who leave make
// room.
func TestTooMany(t *testing.T) {
	for name, public := range map[string]bool{"the metrics": true, "the control socket": false} {
		t.Run(name, func(t *testing.T) { tooMany(t, &door{public: public}) })
	}
}

func tooMany(t *testing.T, d *door) {
	come := func() net.Conn {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { require.NoError(t, errors.Join(ours.Close(), theirs.Close())) })
		d.track(ours, http.StateNew)
		return ours
	}
	leave := func(c net.Conn) {
		require.NoError(t, c.Close())
		d.track(c, http.StateClosed)
	}
	cut := func(c net.Conn) bool { return errors.Is(c.SetDeadline(time.Time{}), io.ErrClosedPipe) }
	var inside []net.Conn
	for range maxConns {
		inside = append(inside, come())
	}
	require.False(t, slices.ContainsFunc(inside, cut))
	inside = append(inside, come())
	which := maxConns
	if d.public {
		which = 0
	}
	require.Equal(t, which, slices.IndexFunc(inside, cut))
	leave(inside[which])
	inside = slices.Delete(inside, which, which+1)
	require.False(t, slices.ContainsFunc(inside, cut))
	leave(inside[0])
	inside = append(inside[1:], come())
	require.False(t, slices.ContainsFunc(inside, cut))
	for range maxConns {
		inside = append(inside, come()) // the handlers of those that were cut go on
	}
	which = maxConns
	if d.public {
		which = 0
	}
	for i, c := range inside {
		require.Equal(t, i/maxConns == which/maxConns, cut(c), "%d", i)
	}
	inside = append(inside, come())
	require.True(t, cut(inside[2*maxConns]))
	for _, c := range inside {
		leave(c)
	}
	d.conns.Wait()
}
