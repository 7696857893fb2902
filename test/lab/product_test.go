package lab_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server is pmnbd or pmnbd-target, running in the guest. Its log goes to the test's output
// and to /run/NAME.log.
type server struct {
	t     *testing.T
	cmd   *exec.Cmd
	ready []string      // the addresses in its ready line
	done  chan struct{} // closed when it has ended
}

// serve starts a server, waits until it is ready, and kills it when the test ends.
func serve(t *testing.T, name string, args ...string) *server {
	t.Helper()
	s := &server{t: t, cmd: exec.Command(name, append([]string{"serve"}, args...)...), done: make(chan struct{})}
	log, err := os.OpenFile("/run/"+name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	s.cmd.Stderr = io.MultiWriter(os.Stdout, log)
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	ready := make(chan []string, 1)
	go func() {
		defer close(s.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
				ready <- strings.Fields(rest)
			}
		}
		_ = s.cmd.Wait() // stop looks at the exit code
	}()
	t.Cleanup(s.kill)
	select {
	case s.ready = <-ready:
	case <-s.done:
		require.FailNow(t, "not ready", "%v", s.cmd)
	}
	return s
}

// kill sends SIGKILL.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it fails if the server has ended, which is fine
	<-s.done
}

// stop ends the server and requires a clean exit.
func (s *server) stop() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.done
	require.Zero(s.t, s.cmd.ProcessState.ExitCode(), "exit code of %v", s.cmd)
}

// sh runs a bash script in which every command must succeed.
func sh(t *testing.T, script string) {
	t.Helper()
	require.NoError(t, try(script), script)
}

// try runs a bash script that may fail.
func try(script string) error {
	cmd := exec.Command("bash", "-eu", "-o", "pipefail", "-c", script)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	return cmd.Run()
}

const (
	dax    = "/dev/dax0.0"
	socket = "/run/pmnbd.sock"
)

// device makes the target serve the region disk, which is on dax, at listen, and starts an
// initiator that serves it on socket.
func device(t *testing.T, listen string, more ...string) (target, initiator *server) {
	t.Helper()
	target = serve(t, "pmnbd-target", "--insecure-no-auth", "--listen", listen, "--region", "disk="+dax)
	return target, initiate(t, target.ready[0], more...)
}

// initiatorID is the id of every initiator in a guest.
const initiatorID = "6d6e6264-0000-4000-8000-000000000001"

// initiate starts an initiator. Its id is the same in every guest, but its windows end with the
// guest. After a guest that left a window, the next must pass --accept-loss.
func initiate(t *testing.T, target string, more ...string) *server {
	t.Helper()
	return serve(t, "pmnbd", append([]string{
		"--target", target + "/disk", "--listen", "unix:" + socket, "--id", initiatorID,
	}, more...)...)
}

// Pieces of scripts.
const (
	attach = "nbd-client -unix " + socket + " -N disk /dev/nbd0\n"
	mount  = "mkdir -p /mnt/disk; mount /dev/nbd0 /mnt/disk\n"
	umount = "umount /mnt/disk\n"
	// extend makes a file of 7 MB, the same each time, and syncs it.
	extend = "seq 1000000 | dd of=/mnt/disk/synced bs=64k iflag=fullblock conv=fsync status=none\n"
	// extended checks that file.
	extended = "seq 1000000 | cmp - /mnt/disk/synced\n"
)
