package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// pmnbdStatus is what the tests read of `pmnbd status --json`, by its published names.
type pmnbdStatus struct {
	Program string         `json:"program"`
	PID     int            `json:"pid"`
	Exports []exportStatus `json:"exports"`
}

type exportStatus struct {
	Name        string   `json:"name"`
	ReadOnly    bool     `json:"read_only"`
	Listen      []string `json:"listen"`
	Connections int      `json:"connections"`
	Commands    map[string]struct {
		Requests uint64 `json:"requests"`
		Bytes    uint64 `json:"bytes"`
		Errors   uint64 `json:"errors"`
	} `json:"commands"`
	Device struct {
		UUID       string           `json:"region_uuid"`
		Lineage    string           `json:"lineage"`
		Class      string           `json:"class"`
		Method     string           `json:"method"`
		Epoch      uint64           `json:"epoch"`
		State      string           `json:"state"`
		Cause      string           `json:"cause"`
		Recoveries uint64           `json:"recoveries"`
		Lanes      []map[string]any `json:"lanes"`
		Window     struct {
			Unflushed uint64 `json:"unflushed_bytes"`
		} `json:"window"`
		Barriers struct {
			Done  uint64 `json:"done"`
			Asked uint64 `json:"asked"`
		} `json:"barriers"`
	} `json:"device"`
}

type targetStatus struct {
	Program string `json:"program"`
	Regions []struct {
		Name    string               `json:"name"`
		Class   string               `json:"class"`
		Epoch   uint64               `json:"epoch"`
		Owner   *struct{ ID string } `json:"owner"`
		Held    bool                 `json:"held"`
		Session *struct {
			Lanes   []any
			Method  string
			Methods []struct{ Sound bool }
		} `json:"session"`
		Lease   float64 `json:"lease_left_seconds"`
		Failed  bool    `json:"failed"`
		Failure string  `json:"failure"`
		Syncs   uint64  `json:"syncs"`
	} `json:"regions"`
}

func statusOf[T any](t *testing.T, h host, args ...string) []T {
	t.Helper()
	var all []T
	require.NoError(t, json.Unmarshal([]byte(h.run(t, args[0], append(args[1:], "--json")...)), &all))
	return all
}

// documented checks that docs/status.md names every field of a document.
func documented(t *testing.T, document string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/status.md")
	require.NoError(t, err)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				require.Contains(t, string(page), "`"+name+"`")
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	var all any
	require.NoError(t, json.Unmarshal([]byte(document), &all))
	walk(all)
}

// exports returns the exports of all processes.
func (h host) exports(t *testing.T) (all []exportStatus) {
	t.Helper()
	for _, p := range statusOf[pmnbdStatus](t, h, "pmnbd", "status") {
		all = append(all, p.Exports...)
	}
	return all
}

func TestStatusWhileServing(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "a="+h.region(t, "a", "16M"), "b="+h.region(t, "b", "16M"))
	code, stdout, stderr := h.result(t, "pmnbd", "status")
	require.Equal(t, 1, code, "a target must not count as a pmnbd")
	require.Empty(t, stdout)
	require.Equal(t, "pmnbd status: no pmnbd is running: looked at "+controls(h.home)+"\n", stderr)

	pmnbd, unix, tcp := h.initiator(t, uri, "a", "--lanes", "2")
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, noise(t, 4096)))
	s := h.exports(t)
	require.Len(t, s, 1)
	p := statusOf[pmnbdStatus](t, h, "pmnbd", "status")[0]
	require.Equal(t, "pmnbd", p.Program)
	require.Equal(t, pmnbd.cmd.Process.Pid, p.PID)
	require.Equal(t, []string{unix, tcp}, s[0].Listen)
	require.Equal(t, "a", s[0].Name)
	require.Equal(t, 1, s[0].Connections)
	require.EqualValues(t, 1, s[0].Commands["WRITE"].Requests)
	require.EqualValues(t, 4096, s[0].Commands["WRITE"].Bytes)
	d := s[0].Device
	require.Equal(t, "file gpspm open 2", strings.Join([]string{d.Class, d.Method, d.State, strconv.Itoa(len(d.Lanes))}, " "))
	require.EqualValues(t, 4096, d.Window.Unflushed)
	require.NoError(t, c.flush())
	d = h.exports(t)[0].Device
	require.Zero(t, d.Window.Unflushed)
	require.EqualValues(t, 1, d.Barriers.Done)
	require.EqualValues(t, 1, d.Barriers.Asked)

	at := statusOf[targetStatus](t, h, "pmnbd-target", "status")
	require.Len(t, at, 1)
	require.Equal(t, "pmnbd-target", at[0].Program)
	require.Len(t, at[0].Regions, 2)
	a, b := at[0].Regions[0], at[0].Regions[1]
	require.Equal(t, "a", a.Name)
	require.True(t, a.Held)
	require.Len(t, a.Session.Lanes, 2)
	require.Equal(t, d.Epoch, a.Epoch)
	require.Positive(t, a.Lease)
	require.NotZero(t, a.Syncs)
	require.Equal(t, "b", b.Name)
	require.False(t, b.Held)
	require.Nil(t, b.Owner)

	// A second process, and the output for people.
	other, _, _ := h.initiator(t, uri, "b")
	require.Len(t, h.exports(t), 2)
	text := h.run(t, "pmnbd", "status")
	for _, s := range []string{"export a: open", "export b: open", "gpspm", "class file", "lane 1", unix, "window", "barriers", "WRITE"} {
		require.Contains(t, text, s)
	}
	text = h.run(t, "pmnbd", "status", "b")
	require.Contains(t, text, "export b: open")
	require.NotContains(t, text, "export a")
	text = h.run(t, "pmnbd-target", "status")
	for _, s := range []string{"region a: in use", "region b: in use", "not apm: only class pmem", "lease", "lane 1"} {
		require.Contains(t, text, s)
	}
	documented(t, h.run(t, "pmnbd", "status", "--json"))
	documented(t, h.run(t, "pmnbd-target", "status", "--json"))

	c.close()
	pmnbd.stop(t)
	other.stop(t)
	text = h.run(t, "pmnbd-target", "status")
	require.Contains(t, text, "region a: free, closed cleanly")
	target.stop(t)
	left, err := os.ReadDir(filepath.Join(h.home, "run"))
	require.NoError(t, err)
	require.Empty(t, left, "the processes left their sockets")
	code, _, stderr = h.result(t, "pmnbd-target", "status")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no pmnbd-target is running")
}

func TestStatusOfTheDead(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "dead="+h.region(t, "dead", "16M"))
	pmnbd, _, _ := h.initiator(t, uri, "dead")
	socket := filepath.Join(h.home, "run", "dead-"+strconv.Itoa(pmnbd.cmd.Process.Pid)+".sock")
	require.FileExists(t, socket)
	pmnbd.kill(t)
	require.FileExists(t, socket, "a killed process must leave its socket")
	code, _, stderr := h.result(t, "pmnbd", "status")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no pmnbd is running")
	require.NoFileExists(t, socket)

	at := statusOf[targetStatus](t, h, "pmnbd-target", "status")
	require.True(t, at[0].Regions[0].Held, "the lease must go on")
	target.stop(t)
}

// TestStatusOfTheSilent checks that status names a process that hangs, and still shows the
// others.
func TestStatusOfTheSilent(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, uri := h.target(t, "a="+h.region(t, "a", "16M"), "b="+h.region(t, "b", "16M"))
	silent, _, _ := h.initiator(t, uri, "a")
	h.initiator(t, uri, "b")
	silent.signal(t, syscall.SIGSTOP)
	code, stdout, stderr := h.result(t, "pmnbd", "status")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "export b: open")
	require.Contains(t, stderr, "a-"+strconv.Itoa(silent.cmd.Process.Pid)+".sock does not answer")
	require.Equal(t, 1, strings.Count(stderr, "\n"))
	silent.signal(t, syscall.SIGCONT)
}

func TestStatusAfterFailure(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	target, uri := h.target(t, "fail="+h.region(t, "fail", "16M"))
	_, unix, _ := h.initiator(t, uri, "fail", "--loss-timeout", lossTimeout)
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, noise(t, 8192)))
	target.kill(t)
	require.ErrorIs(t, c.flush(), syscall.EIO)
	s := h.exports(t)[0]
	require.Equal(t, "failed", s.Device.State)
	require.NotEmpty(t, s.Device.Cause)
	require.EqualValues(t, 8192, s.Device.Window.Unflushed, "unflushed bytes")
	require.EqualValues(t, 1, s.Commands["FLUSH"].Errors)
	require.Contains(t, h.run(t, "pmnbd", "status"), "export fail: FAILED: "+s.Device.Cause)
}

// TestStatusBesideRoot asks as another user, without --control, on a machine where only root's daemons run.
// Status must not say that none is running.
func TestStatusBesideRoot(t *testing.T) {
	t.Parallel()
	need(t, peer{"setpriv", "util-linux"})
	m := newMachines(t, "app1")["app1"]
	serve := func(terminal, command, scheme string) (uri string) {
		tty := m.terminal(t, terminal)
		from := tty.enter(t, command)
		tty.wait(t, from, "ready", func(out string) bool {
			_, rest, _ := strings.Cut(out, "ready "+scheme)
			var whole bool
			uri, _, whole = strings.Cut(rest, "\n")
			return whole
		})
		return scheme + uri
	}
	uri := serve("target", "pmnbd-target serve --listen iwarp://127.0.0.1:0 --region log=/var/lib/log,size=4M", "iwarp://")
	serve("initiator", "pmnbd serve --target "+uri+"/log --listen unix:/run/log.sock", "nbd+unix://")
	tty := m.terminal(t, "user")
	for _, program := range []string{"pmnbd", "pmnbd-target"} {
		out, _ := tty.try(t, fmt.Sprintf("HOME=/home/x setpriv --reuid %d --regid %d --clear-groups %s status", nobody, nobody, program))
		require.Equal(t, program+" status: no "+program+" of this user is running: looked at unix:/home/x/.local/state/pmnbd/run/; "+
			"those of root and of the system's services are in /run/pmnbd, which this user cannot read: ask as root\nexit code 1\n", out)
	}
	require.Contains(t, tty.run(t, "pmnbd status"), "export log: open")
}
