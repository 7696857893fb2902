package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pmnbd/internal/testhost"
)

// outer is how long a test waits for something that hangs. No test waits that long for
// something that works.
const outer = 60 * time.Second

// outerCopy is outer for what copies or compares a whole region, which has taken 50 s on a busy
// machine.
const outerCopy = 5 * time.Minute

// buildFlags are flags of go build; race_test.go adds one.
var buildFlags []string

// binaries is the directory of our binaries, once buildOnce has built them. TestMain does not
// build them, because it also runs when somebody only lists the tests.
var (
	binaries  string
	buildOnce = sync.OnceValue(build)
)

// TestMain lets more tests run at a time than there are CPUs, because most of them mostly wait. Those
// that measure something do not run in parallel: go test runs them first, one at a time.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil { // -parallel still counts, as m.Run parses the flags
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(binaries) // "" if nothing was built
		os.Exit(code)
	}))
}

func build() error {
	var err error
	if binaries, err = os.MkdirTemp("", "pmnbd-e2e-"); err != nil {
		return err
	}
	// A test runs a binary as the user nobody.
	if err := os.Chmod(binaries, 0o755); err != nil {
		return err
	}
	args := append([]string{"build", "-o", binaries}, buildFlags...)
	out, err := exec.Command("go", append(args, "pmnbd/cmd/pmnbd", "pmnbd/cmd/pmnbd-target", "pmnbd/cmd/pmnbd-bench")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the binaries: %w\n%s", err, out)
	}
	return nil
}

// A process is a running binary of ours.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr journal
	ready  chan string   // the rest of its ready line
	done   chan struct{} // closed when it has ended and its output has been read
}

// start starts a binary with home as the directory for everything that belongs to the host.
// When the test ends it kills the process if it still runs, and prints its log if the test
// failed.
func start(t *testing.T, home, name string, args ...string) *process {
	t.Helper()
	return startCommand(t, command(t, home, name, args...))
}

func command(t *testing.T, home, name string, args ...string) *exec.Cmd {
	t.Helper()
	require.NoError(t, buildOnce())
	if len(args) > 0 && (args[0] == "serve" || args[0] == "status" || args[0] == "reload" || args[0] == "save" || args[0] == "resume") {
		own := []string{args[0], "--control", controls(home)}
		if name == "pmnbd" && args[0] == "serve" {
			own = append(own, "--state-dir", home, "--window-dir", home)
		}
		args = append(own, args[1:]...)
	}
	cmd := exec.Command(filepath.Join(binaries, name), args...)
	// A test that reaches its time limit cleans nothing up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// controls returns where the processes of a host have their control sockets.
func controls(home string) string { return "unix:" + filepath.Join(home, "run") + "/" }

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{
		name:  strings.Join(append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...), " "),
		cmd:   cmd,
		ready: make(chan string, 1),
		done:  make(chan struct{}),
	}
	cmd.Stderr = &p.stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
				select {
				case p.ready <- rest:
				default:
					p.stderr.note("a second ready line: " + lines.Text())
				}
			} else {
				p.stderr.note("on stdout: " + lines.Text())
			}
		}
		_, _ = io.Copy(io.Discard, stdout) // the rest of a line that is too long
		_ = cmd.Wait()                     // its code is in cmd.ProcessState
	}()
	t.Cleanup(func() {
		p.kill(t)
		log := p.stderr.String()
		if t.Failed() {
			t.Logf("%s (exit code %d):\n%s", p.name, cmd.ProcessState.ExitCode(), log)
		}
		for _, bad := range []string{"DATA RACE", "panic:", "fatal error:"} {
			if strings.Contains(log, bad) && !t.Failed() {
				t.Errorf("%s:\n%s", p.name, log)
			}
		}
	})
	return p
}

// waitReady returns the addresses of the ready line.
func (p *process) waitReady(t *testing.T) []string {
	t.Helper()
	select {
	case rest := <-p.ready:
		return strings.Fields(rest)
	case <-p.done:
		require.FailNow(t, "the process ended before it was ready", "%s: %s", p.name, p.stderr.String())
	case <-time.After(outer):
		require.FailNow(t, "no ready line", p.name)
	}
	return nil
}

// signal sends a signal to the process. Behind SIGSTOP it waits until all threads have stopped: until then they go on,
// and may answer what the test sends next.
func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return
	}
	require.NoError(t, err)
	if s != syscall.SIGSTOP {
		return
	}
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			require.NoError(t, err)
			return
		}
	}
}

// wait returns the exit code, or -1 if a signal ended the process.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(outer):
		require.FailNow(t, "the process does not end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill sends SIGKILL and waits.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.wait(t)
}

// stop ends the process as an init system does, and requires a clean end.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	require.Zero(t, p.wait(t), "exit code of %s", p.name)
}

// A journal collects what a process writes while others read it.
type journal struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	wrote chan struct{} // closed by the next Write, if somebody waits
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wrote != nil {
		close(j.wrote)
		j.wrote = nil
	}
	return j.buf.Write(p)
}

// note adds a line of the test's own.
func (j *journal) note(line string) { _, _ = j.Write([]byte(line + "\n")) } // it never fails

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// next returns what was written so far, and a channel that closes when there is more.
func (j *journal) next() (string, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wrote == nil {
		j.wrote = make(chan struct{})
	}
	return j.buf.String(), j.wrote
}

// waitLog waits until the process has written text to its standard error.
func (p *process) waitLog(t *testing.T, text string) {
	t.Helper()
	giveUp := time.After(outer)
	for {
		log, more := p.stderr.next()
		if strings.Contains(log, text) {
			return
		}
		select {
		case <-more:
		case <-p.done:
			require.Contains(t, p.stderr.String(), text, "%s ended", p.name)
			return
		case <-giveUp:
			require.FailNow(t, "the process does not log "+strconv.Quote(text), p.name)
		}
	}
}

// A host stands for a machine: it has the directories of the processes on it.
type host struct {
	home  string // state and sockets; a short path, because those of sockets have a limit
	disk  string // on a disk, for regions of class file
	plain string // the directory of the pmnbd that initiator starts, or empty: then it is the one that all tests share
}

// newHost makes a host.
func newHost(t *testing.T) host {
	t.Helper()
	home, err := os.MkdirTemp("", "pmnbd-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	return host{home: home, disk: testhost.Disk(t)}
}

// region creates a region of class file.
func (h host) region(t *testing.T, name, size string) string {
	t.Helper()
	path := filepath.Join(h.disk, name)
	h.run(t, "pmnbd-target", "region", "create", name, path, "--size", size)
	return path
}

// run runs one of our binaries to its end and requires exit code 0.
func (h host) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	code, stdout, stderr := h.result(t, name, args...)
	require.Zero(t, code, "%s %s: %s", name, strings.Join(args, " "), stderr)
	return stdout
}

// result runs one of our binaries to its end and returns what came of it.
func (h host) result(t *testing.T, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return outputWithin(t, outerCopy, command(t, h.home, name, args...))
}

func output(t *testing.T, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	return outputWithin(t, outer, cmd)
}

// outputWithin runs cmd to its end, and kills it if it hangs for longer than within.
func outputWithin(t *testing.T, within time.Duration, cmd *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	giveUp := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
	defer giveUp.Stop()
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, cmd.ProcessState.ExitCode(), 0, "%s did not end by itself: %s%s", cmd, out.String(), errs.String())
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// target starts a target with regions, given as NAME=PATH, and returns its URI.
func (h host) target(t *testing.T, regions ...string) (*process, string) {
	t.Helper()
	args := []string{"serve", "--listen", "iwarp://127.0.0.1:0"}
	for _, r := range regions {
		args = append(args, "--region", r)
	}
	p := start(t, h.home, "pmnbd-target", args...)
	addresses := p.waitReady(t)
	require.Len(t, addresses, 1)
	require.Regexp(t, `^iwarp://127\.0\.0\.1:[1-9][0-9]*$`, addresses[0])
	return p, addresses[0]
}

// initiator starts a pmnbd on a unix socket and on TCP.
func (h host) initiator(t *testing.T, target, region string, more ...string) (p *process, unix, tcp string) {
	t.Helper()
	socket := filepath.Join(h.home, region+".sock")
	args := append([]string{
		"serve", "--target", target + "/" + region,
		"--listen", "unix:" + socket, "--listen", "tcp:127.0.0.1:0",
	}, more...)
	cmd := command(t, h.home, "pmnbd", args...)
	if h.plain != "" {
		cmd.Path = filepath.Join(h.plain, "pmnbd")
	}
	p = startCommand(t, cmd)
	addresses := p.waitReady(t)
	require.Len(t, addresses, 2)
	require.Equal(t, "nbd+unix:///"+region+"?socket="+socket, addresses[0])
	require.Regexp(t, `^nbd://127\.0\.0\.1:[1-9][0-9]*/`+region+`$`, addresses[1])
	return p, addresses[0], addresses[1]
}

// A peer is a program that is not ours.
type peer struct{ program, pkg string }

var (
	nbdinfo = peer{"nbdinfo", "libnbd-bin"}
	nbdcopy = peer{"nbdcopy", "libnbd-bin"}
	qemuIO  = peer{"qemu-io", "qemu-utils"}
	qemuImg = peer{"qemu-img", "qemu-utils"}
	fio     = peer{"fio", "fio"}
	strace  = peer{"strace", "strace"}
)

// need skips the test if a program is missing, and says which package has it.
func need(t *testing.T, peers ...peer) {
	t.Helper()
	for _, c := range peers {
		if _, err := exec.LookPath(c.program); err != nil {
			t.Skipf("%s is missing: install the package %s", c.program, c.pkg)
		}
	}
}

// run runs a program to its end, requires exit code 0 and returns its output.
func (c peer) run(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	c.pipe(t, &out, args...)
	return out.String()
}

// pipe is run with the standard output going to w.
func (c peer) pipe(t *testing.T, w io.Writer, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*outer)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Dir = t.TempDir() // fio leaves its verify state in its working directory
	cmd.Stdout = w
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Run(), "%s: %s", cmd, stderr.String())
}
