// Package etcdtest runs an etcd for a test. It is only for tests of this module, and imports nothing of
// it.
package etcdtest

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Server is an etcd of one member, whose data are gone with the test.
type Server struct {
	// Addr is where clients connect, HOST:PORT.
	Addr string

	dir, peer string
	cmd       *exec.Cmd
}

// patience is how long an etcd may take to start on a busy machine.
const patience = time.Minute

// Start starts an etcd, and ends it with the test. Without the program it skips the test.
func Start(t testing.TB) *Server {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("no etcd: install Debian's etcd-server (scripts/install-deps test)")
	}
	s := &Server{Addr: free(t), peer: free(t), dir: t.TempDir()}
	s.Run(t)
	t.Cleanup(s.Kill)
	return s
}

// Run starts the etcd again, with the data that it had, after Kill.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.cmd = exec.Command("etcd", "--name", "test", "--data-dir", s.dir,
		"--listen-client-urls", "http://"+s.Addr, "--advertise-client-urls", "http://"+s.Addr,
		"--listen-peer-urls", "http://"+s.peer, "--initial-advertise-peer-urls", "http://"+s.peer,
		"--initial-cluster", "test=http://"+s.peer, "--heartbeat-interval", "100", "--election-timeout", "1000", "--log-level", "error")
	s.cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, s.cmd.Start())
	require.Eventually(t, s.healthy, patience, 20*time.Millisecond, "etcd does not answer")
}

func (s *Server) healthy() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+"/health", nil)
	if err != nil {
		return false
	}
	r, err := http.DefaultClient.Do(ask)
	if err != nil {
		return false
	}
	return r.Body.Close() == nil && r.StatusCode == http.StatusOK
}

// Kill ends the etcd at once. It is idempotent.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()
	http.DefaultClient.CloseIdleConnections()
}

// free returns an address that nobody listens on.
func free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // it was only asked for its address
	return l.Addr().String()
}
