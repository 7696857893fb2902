package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine is a set of namespaces that look like a machine to what runs in it, and that leave
// nothing behind (testdata/machine).
type machine struct {
	name string
	pid  string // of its first process
	root string
	init *process
	tty  map[string]*terminal
}

// A terminal is a shell in a machine.
type terminal struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  journal
	pid  string // of the shell, as the machine has it
	busy string // the command that has not ended
	done chan struct{}
}

// newMachines makes a machine for each name, app1 and pm1 to pm4, with a network between them.
func newMachines(t *testing.T, names ...string) map[string]*machine {
	t.Helper()
	need(t, peer{"ip", "iproute2"}, peer{"unshare", "util-linux"})
	require.NoError(t, buildOnce())
	if out, err := exec.Command("unshare", "-mnpu", "--fork", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces: %v: %s (needs root)", err, out)
	}
	all := map[string]*machine{}
	for i, name := range names {
		m := newMachine(t, name)
		all[name] = m
		if len(names) == 1 {
			continue
		}
		// The first machine is also the switch.
		number := map[string]int{"app1": 1, "pm1": 2, "pm2": 3, "pm3": 4, "pm4": 5}[name]
		if i == 0 {
			m.ip(t, "link add net type bridge", "link set net up", fmt.Sprintf("addr add 192.0.2.%d/24 dev net", number))
			continue
		}
		hub := all[names[0]]
		hub.ip(t, fmt.Sprintf("link add %s type veth peer name net netns %s", name, m.pid), "link set "+name+" master net up")
		m.ip(t, fmt.Sprintf("addr add 192.0.2.%d/24 dev net", number), "link set net up")
	}
	return all
}

func newMachine(t *testing.T, name string) *machine {
	t.Helper()
	dir := newHost(t).disk
	data, err := filepath.Abs("testdata")
	require.NoError(t, err)
	repository, err := filepath.Abs("../..")
	require.NoError(t, err)
	cmd := exec.Command("unshare", "-mnpu", "--fork", "--kill-child", "--propagation", "private",
		filepath.Join(data, "machine"), dir, name, binaries, repository)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m := &machine{name: name, init: startCommand(t, cmd), tty: map[string]*terminal{}}
	m.init.waitLog(t, "on stdout: up ")
	_, up, _ := strings.Cut(m.init.stderr.String(), "on stdout: up ")
	fields := strings.Fields(up)
	m.pid, m.root = fields[0], fields[1]
	return m
}

// ip runs commands of ip(8) in the machine's network.
func (m *machine) ip(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		args := append([]string{"-t", m.pid, "-n", "ip"}, strings.Fields(c)...)
		out, err := exec.Command("nsenter", args...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", c, out)
	}
}

// enter makes a command that runs in the machine.
func (m *machine) enter(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", m.pid, "-m", "-n", "-p", "-u", "chroot", m.root, "env", "-i",
		"HOME=/root", "USER=root", "TERM=dumb", "LC_ALL=C.UTF-8", "GOFLAGS=-mod=mod -buildvcs=false", "GOTOOLCHAIN=local", "GOMAXPROCS=" + os.Getenv("GOMAXPROCS"),
		"PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// mark ends the output of a command; its exit code follows.
const mark = "=== the command ended with "

// terminal returns the machine's terminal of that name, and opens it first if need be.
func (m *machine) terminal(t *testing.T, name string) *terminal {
	t.Helper()
	if tty := m.tty[name]; tty != nil {
		return tty
	}
	tty := &terminal{done: make(chan struct{})}
	tty.cmd = m.enter("bash", "--norc")
	tty.cmd.Stdout, tty.cmd.Stderr = &tty.out, &tty.out
	var err error
	tty.in, err = tty.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, tty.cmd.Start())
	go func() {
		defer close(tty.done)
		_ = tty.cmd.Wait() // killed with the machine
	}()
	t.Cleanup(func() {
		_ = tty.in.Close()
		_ = tty.cmd.Process.Kill()
		m.init.kill(t) // and with it what holds the pipe
		<-tty.done
	})
	tty.run(t, "cd ~/pmnbd 2>/dev/null || cd; echo shell $$")
	_, pid, _ := strings.Cut(tty.out.String(), "shell ")
	tty.pid, _, _ = strings.Cut(pid, "\n")
	m.tty[name] = tty
	return tty
}

// wait waits until has returns true of what the terminal has shown since from.
func (tty *terminal) wait(t *testing.T, from int, what string, has func(string) bool) {
	t.Helper()
	giveUp := time.After(2 * outer)
	for {
		out, more := tty.out.next()
		if has(out[from:]) {
			return
		}
		select {
		case <-more:
		case <-tty.done:
			require.FailNow(t, "the terminal ended", "%s\n%s", what, out[from:])
		case <-giveUp:
			require.FailNow(t, "waited for "+strconv.Quote(what), "%s", out[from:])
		}
	}
}

// run types a command, waits until it has ended with 0, and returns what it has printed.
func (tty *terminal) run(t *testing.T, command string) string {
	t.Helper()
	out, ok := tty.try(t, command)
	require.True(t, ok, "%s\n%s", command, out)
	return out
}

// try types a command, waits until it has ended, and returns what it has printed, with its exit code as the
// last line if that is not 0.
func (tty *terminal) try(t *testing.T, command string) (out string, ok bool) {
	t.Helper()
	from := tty.enter(t, command)
	tty.wait(t, from, "the end of "+command, tty.hasEnded)
	tty.busy = ""
	out, rest, _ := strings.Cut(tty.out.String()[from:], mark)
	if strings.HasPrefix(rest, "0\n") {
		return out, true
	}
	return out + "exit code " + rest, false
}

func (tty *terminal) hasEnded(out string) bool {
	_, rest, ok := strings.Cut(out, mark)
	return ok && strings.Contains(rest, "\n")
}

// enter types a command, and returns where its output begins.
func (tty *terminal) enter(t *testing.T, command string) (from int) {
	t.Helper()
	require.Empty(t, tty.busy, "the terminal is busy: %s", command)
	from = len(tty.out.String())
	tty.busy = command
	_, err := fmt.Fprintf(tty.in, "{ %s\n} </dev/null; echo '%s'$?\n", command, mark)
	require.NoError(t, err)
	return from
}

// asks matches commands that change nothing, and may be typed again.
var asks = regexp.MustCompile(`^(?:bin/)?pmnbd(?:-target)? (?:mirror )?status `)

// do does what a page shows.
func (m *machine) do(t *testing.T, s step) {
	t.Helper()
	tty := m.terminal(t, s.terminal)
	switch {
	case s.command == "^C":
		require.NotEmpty(t, tty.busy, "nothing runs in the terminal")
		from := len(tty.out.String())
		out, err := m.enter("pkill", "-INT", "-P", tty.pid).CombinedOutput()
		require.NoError(t, err, "%s", out)
		tty.wait(t, from, "the end of "+tty.busy, tty.hasEnded)
		tty.busy = ""
		_, ok := printed(tty.out.String()[from:], s.prints)
		require.True(t, ok, "%s", tty.out.String()[from:])
	case s.stays():
		from := tty.enter(t, s.command)
		tty.wait(t, from, strings.Join(s.prints, "\n"), func(out string) bool {
			_, ok := printed(out, s.prints)
			return ok || tty.hasEnded(out)
		})
		out := tty.out.String()[from:]
		require.NotContains(t, out, mark, "the command does not stay: %s", s.command)
	default:
		giveUp := time.Now().Add(outer)
		for {
			out, ok := tty.try(t, s.command)
			missing := "exit code 0"
			if ok {
				if missing, ok = printed(out, s.prints); ok {
					return
				}
			}
			// A process notices in its own time what happened to another: ask again.
			if !asks.MatchString(s.command) || time.Now().After(giveUp) {
				require.FailNow(t, "a command prints something else", "%s\n%s\ndoes not print: %s", s.command, out, missing)
			}
		}
	}
}
